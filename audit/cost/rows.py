"""Bytes and products of one row, and what it costs to make or read its logits."""

from __future__ import annotations

from ...banks.bank import Bank, RowBlock
from ...banks.geometry import Geometry
from ...banks.normal import NormalBank
from ...banks.resample import ResampledBank
from ...banks.store import StoredBank
from . import rates


def row_bytes(block: RowBlock) -> float:
    """Bytes of one of the block's rows, in memory: inputs, keys and recorded outputs."""
    inputs = (block.hidden, block.logits, block.latent_partials, block.latent_shards)
    arrays = [*block.keys.values(), *block.extra.values()]
    arrays += [array for array in (*inputs, block.logits_shards) if array is not None]
    for ids, weights in block.recorded.values():
        arrays += [ids] if weights is None else [ids, weights]
    return sum(array.nbytes for array in arrays) / block.rows


def front_products(geometry: Geometry) -> int:
    """Products of one row's two projections: hidden to latent, and hidden to logits."""
    return geometry.hidden * (geometry.latent + geometry.experts)


def logits_ns(bank: Bank) -> float:
    """CPU time until one row's logits are there, in ns, by ``rates``."""
    geometry = bank.geometry
    products = geometry.hidden * geometry.experts
    if isinstance(bank, NormalBank):
        return rates.NORMAL_NS_PER_LOGIT * geometry.experts
    if isinstance(bank, ResampledBank):
        return rates.RESAMPLE_NS_PER_PRODUCT * products
    block = bank.read(0, 1)
    made = rates.HIDDEN_NS_PER_PRODUCT * products if block.hidden is not None else 0.0
    if isinstance(bank, StoredBank):
        return made + rates.READ_NS_PER_BYTE * row_bytes(block)
    if block.hidden is None:
        return rates.NORMAL_NS_PER_LOGIT * geometry.experts
    return made + rates.GENERATED_NS_PER_HIDDEN * geometry.hidden
