"""Figures that need no evidence: a path is asked, or a copy is made, here and now."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import EnvelopeError, InputError
from ...banks.geometry import MAX_WIDTH, PRESETS, Geometry
from ...banks.open import open_bank
from ...kernels.contract import BFLOAT16
from ...kernels.gather import paired_gather
from ...kernels.registry import make_path
from ..launching import front_weights, make_launch
from ..number_words import number_of
from .measure import LiveMetric, Measure, Query

_DEFAULT_RANKS: Final = 8
_SEED: Final = 0


def width_check(query: Query) -> list[Measure]:
    """Ask a path's own ``check`` about a launch of each width: accepted or refused.

    The launch has the mini geometry: the envelope of rows does not depend on the sizes.
    """
    path = make_path(query.path)
    ranks = query.ranks or _DEFAULT_RANKS
    widths = query.widths or tuple(range(1, MAX_WIDTH + 1))
    bank = open_bank(f"gaussian:geometry=mini,rows={max(widths)},seed={_SEED}")
    weights = front_weights(bank)
    measures = []
    for width in widths:
        launch = make_launch(bank, weights, bank.read(0, width), width, ranks)
        try:
            path.check(launch)
        except EnvelopeError as error:
            measures.append(Measure(f"width {width}", "refused", f"EnvelopeError: {error}"))
        else:
            measures.append(Measure(f"width {width}", "accepted", f"check of {path.name}"))
    return measures


def row_blocks_changed_bits(query: Query) -> list[Measure]:
    """Run the paired gather with one and with two row blocks; count the bits that differ.

    Shards are random bits, NaNs and both zeros among them: latent [rank, row, latent / ranks] BF16
    and logits [rank, row, expert / ranks] float32.
    """
    geometry = _geometry(query.geometry or "k3")
    ranks = query.ranks or _DEFAULT_RANKS
    geometry.check_ranks(ranks)
    random = np.random.default_rng(_SEED)
    measures = []
    for width in query.widths or (MAX_WIDTH,):
        latent = _random_bits(random, (ranks, width, geometry.latent // ranks), BFLOAT16)
        logits = _random_bits(random, (ranks, width, geometry.experts // ranks), np.float32)
        one, two = _gathered(latent, logits, 1), _gathered(latent, logits, 2)
        changed = sum(_differing_bits(a, b) for a, b in zip(one, two, strict=True))
        note = (
            f"{number_of(ranks, 'rank')}, each BF16 [row, {latent.shape[2]}] and FP32 "
            f"[row, {logits.shape[2]}] of random bits, seed {_SEED}"
        )
        measures.append(Measure(f"width {width}", changed, note))
    return measures


def _geometry(name: str) -> Geometry:
    if name not in PRESETS:
        raise InputError("scope.geometry", name, f"one of {', '.join(PRESETS)}", "claims")
    return PRESETS[name][0]


def _random_bits(
    random: np.random.Generator, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    size = np.dtype(dtype).itemsize
    count = int(np.prod(shape)) * size
    return np.frombuffer(random.bytes(count), np.uint8).view(np.dtype(dtype)).reshape(shape)


def _gathered(
    latent: npt.NDArray[Any], logits: npt.NDArray[Any], row_blocks: int
) -> tuple[npt.NDArray[Any], ...]:
    """Both tensors after the exchange, over outputs that were filled with ones first."""
    outs = []
    for shards in (latent, logits):
        ranks, rows, width = shards.shape
        out = np.empty((rows, ranks * width), shards.dtype)
        out.view(np.uint8)[:] = 0xFF
        outs.append(out)
    paired_gather((latent, outs[0]), (logits, outs[1]), row_blocks)
    return tuple(outs)


def _differing_bits(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> int:
    return int(np.bitwise_count(a.view(np.uint8) ^ b.view(np.uint8)).sum(dtype=np.int64))


LIVE_METRICS: Final = (
    LiveMetric("width_check", "", ("path",),
               "what a path's check says of each width: accepted, refused", width_check),
    LiveMetric("row_blocks_changed_bits", "bits", (),
               "bits that two row blocks of the paired gather change", row_blocks_changed_bits),
)  # fmt: skip
