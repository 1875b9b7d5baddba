"""Small banks that a test makes of arrays, and that print as the code that makes them again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .bank import NO_UNIT, Array, Bank, Header, RowBlock, Stage
from .errors import InputError
from .generate import row_keys
from .geometry import Geometry, ScoringRule, TieContract
from .store import StoredBank, open_directory
from .write import BATCH_ROWS, write_bank

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_F32: Final = np.dtype(np.float32)
_RANKED: Final = ("latent_partials", "latent_shards", "logits_shards")
_DTYPES: Final = {
    "logits": _F32,
    "hidden": _BF16,
    "latent_partials": _BF16,
    "latent_shards": _BF16,
    "logits_shards": _F32,
    "bias": _F32,
    "router_weight": _BF16,
    "latent_down_weight": _BF16,
}
_AXES: Final = {
    "logits": 2,
    "hidden": 2,
    "latent_partials": 3,
    "latent_shards": 3,
    "logits_shards": 3,
    "bias": 1,
    "router_weight": 2,
    "latent_down_weight": 2,
}
_WEIGHTS: Final = {"bias": "correction_bias"}
_WHERE: Final = "memory_bank"


class MemoryBank(Bank):
    """A bank of arrays in memory; ``repr`` is the call of ``memory_bank`` that makes it again."""

    opens_again = False

    def __init__(
        self, header: Header, weights: Mapping[str, Array], rows: Mapping[str, Array], call: str
    ) -> None:
        super().__init__(header, weights)
        self._rows = dict(rows)
        self._call = call

    def _read(self, start: int, stop: int) -> RowBlock:
        part = slice(start, stop)
        tensors: dict[str, Any] = {
            name: array[:, part] if name in _RANKED else array[part]
            for name, array in self._rows.items()
        }
        return RowBlock(start, stop - start, row_keys(start, stop), **tensors)

    def save(self, directory: str | Path) -> StoredBank:
        """Write the bank to a new or empty directory and return it as it opens from there.

        The digest of a stored bank is its file's, so it is another than this one's.

        Raises:
            BankError: the directory is taken or cannot be made.
        """
        return store_bank(self, directory)

    def __repr__(self) -> str:
        return self._call


def store_bank(bank: Bank, directory: str | Path) -> StoredBank:
    """Write any bank to a new or empty directory and return it as it opens from there.

    Raises:
        BankError: the directory is taken or cannot be made.
    """
    starts = range(0, bank.rows, BATCH_ROWS)
    blocks = (bank.read(start, min(start + BATCH_ROWS, bank.rows)) for start in starts)
    write_bank(directory, bank.header, bank.weights, blocks)
    return open_directory(directory)


def memory_bank(
    top_k: int,
    *,
    logits: npt.ArrayLike | None = None,
    hidden: npt.ArrayLike | None = None,
    latent_partials: npt.ArrayLike | None = None,
    latent_shards: npt.ArrayLike | None = None,
    logits_shards: npt.ArrayLike | None = None,
    bias: npt.ArrayLike | None = None,
    router_weight: npt.ArrayLike | None = None,
    latent_down_weight: npt.ArrayLike | None = None,
    groups: int = 1,
    top_groups: int = 1,
    scoring: ScoringRule | None = None,
    tie_contract: TieContract = "unspecified",
    independence_unit: str = NO_UNIT,
    name: str | None = None,
) -> MemoryBank:
    """Return a bank of these arrays; they are rounded to the dtype that the bank holds.

    The stage is that of the tensor given: ``logits`` (select), ``hidden`` with ``router_weight``
    (the whole front), or ``logits_shards`` with latent pieces (exchange).

    Args:
        top_k: experts per row.
        logits: [row, expert] float32.
        hidden: [row, hidden] BF16.
        latent_partials: [rank, row, latent] BF16, K-split partial sums.
        latent_shards: [rank, row, latent / ranks] BF16, N-split columns.
        logits_shards: [rank, row, expert / ranks] float32.
        bias: [expert] float32; zeros where it is left out.
        router_weight: [expert, hidden] BF16.
        latent_down_weight: [latent, hidden] BF16.
        groups: consecutive expert groups.
        top_groups: how many of them may be selected from.
        scoring: rule from logits to experts; None takes sigmoid, renormalised.
        tie_contract: whether equal keys must go to the lower id.
        independence_unit: ``none``: rows that were chosen bound no rate; ``row`` where each was
            drawn by itself.
        name: how reports call it; None makes one of the content.

    Raises:
        InputError: no stage or two of them, or shapes that do not fit each other.

    Example:
        >>> bank = memory_bank(1, logits=[[0.0, 1.5]])
        >>> bank
        memory_bank(1, logits=[[0.0, 1.5]])
        >>> bank.stage, bank.rows, bank.geometry.experts
        ('logits', 1, 2)
    """
    given = {
        "logits": logits,
        "hidden": hidden,
        "latent_partials": latent_partials,
        "latent_shards": latent_shards,
        "logits_shards": logits_shards,
        "bias": bias,
        "router_weight": router_weight,
        "latent_down_weight": latent_down_weight,
    }
    arrays = {key: _array(key, value) for key, value in given.items() if value is not None}
    stage = _stage(arrays)
    geometry, ranks = _geometry(arrays, stage, top_k, groups, top_groups)
    _check_shapes(arrays, geometry, ranks)
    rule = scoring or ScoringRule()
    digest = _digest(arrays, geometry, rule, (tie_contract, independence_unit))
    header = Header(
        name=name or f"memory-{digest[:12]}",
        rows=_rows_of(arrays),
        geometry=geometry,
        scoring=rule,
        tie_contract=tie_contract,
        independence_unit=independence_unit,
        stage=stage,
        digest=digest,
        ranks=ranks,
        provenance={"model": "none: rows of a test", "source": "memory_bank"},
    )
    weights = {"correction_bias": np.zeros(geometry.experts, np.float32)}
    rows = {}
    for key, array in arrays.items():
        if key in ("bias", "router_weight", "latent_down_weight"):
            weights[_WEIGHTS.get(key, key)] = array
        else:
            rows[key] = array
    options: dict[str, tuple[Any, Any]] = {
        "groups": (groups, 1),
        "top_groups": (top_groups, 1),
        "scoring": (scoring, None),
        "tie_contract": (tie_contract, "unspecified"),
        "independence_unit": (independence_unit, NO_UNIT),
        "name": (name, None),
    }
    return MemoryBank(header, weights, rows, _call(top_k, arrays, options))


def _array(name: str, value: npt.ArrayLike) -> Array:
    # A number beyond the dtype's range is one of its infinities, as everywhere in the bank.
    with np.errstate(over="ignore"):
        array = np.array(value, dtype=np.float64 if isinstance(value, list | tuple) else None)
        array = array.astype(_DTYPES[name])
    if array.ndim != _AXES[name] or not array.size:
        expected = f"{_AXES[name]} axes, none of them empty"
        raise InputError(f"{name}.shape", array.shape, expected, _WHERE)
    array.flags.writeable = False
    return array


def _stage(arrays: Mapping[str, Array]) -> Stage:
    stages: dict[Stage, bool] = {
        "logits": "logits" in arrays,
        "hidden": "hidden" in arrays,
        "partials": "latent_partials" in arrays,
        "shards": "latent_shards" in arrays
        or ("logits_shards" in arrays and "latent_partials" not in arrays),
    }
    found: list[Stage] = [stage for stage, there in stages.items() if there]
    if len(found) != 1:
        got = " and ".join(found) or "nothing"
        raise InputError("rows", got, "tensors of exactly one stage", _WHERE)
    needed = {"hidden": "router_weight", "partials": "logits_shards", "shards": "logits_shards"}
    if found[0] in needed and needed[found[0]] not in arrays:
        raise InputError(needed[found[0]], "nothing", f"given with stage {found[0]}", _WHERE)
    return found[0]


def _geometry(
    arrays: Mapping[str, Array], stage: Stage, top_k: int, groups: int, top_groups: int
) -> tuple[Geometry, int | None]:
    """Sizes that the arrays show; a hidden size that none of them shows divides like experts."""
    ranks: int | None = None
    latent = 0
    if stage == "logits":
        experts = arrays["logits"].shape[1]
    elif stage == "hidden":
        experts = len(arrays["router_weight"])
        latent = len(arrays["latent_down_weight"]) if "latent_down_weight" in arrays else 0
    else:
        shards = arrays["logits_shards"]
        ranks, experts = len(shards), len(shards) * shards.shape[2]
        if "latent_partials" in arrays:
            latent = arrays["latent_partials"].shape[2]
        elif "latent_shards" in arrays:
            latent = ranks * arrays["latent_shards"].shape[2]
    size = arrays["hidden"].shape[1] if stage == "hidden" else experts
    label = f"{size}x{latent}x{experts}x{top_k}"
    return Geometry(label, size, latent, experts, top_k, groups, top_groups), ranks


def _rows_of(arrays: Mapping[str, Array]) -> int:
    """Rows of the first tensor that has any."""
    return next(
        array.shape[1] if name in _RANKED else len(array)
        for name, array in arrays.items()
        if name in (*_RANKED, "logits", "hidden")
    )


def _check_shapes(arrays: Mapping[str, Array], geometry: Geometry, ranks: int | None) -> None:
    rows, parts = _rows_of(arrays), ranks or 1
    if ranks is not None:
        geometry.check_ranks(ranks)
    expected = {
        "logits": (rows, geometry.experts),
        "hidden": (rows, geometry.hidden),
        "latent_partials": (parts, rows, geometry.latent),
        "latent_shards": (parts, rows, geometry.latent // parts),
        "logits_shards": (parts, rows, geometry.experts // parts),
        "bias": (geometry.experts,),
        "router_weight": (geometry.experts, geometry.hidden),
        "latent_down_weight": (geometry.latent, geometry.hidden),
    }
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise InputError(f"{name}.shape", array.shape, expected[name], _WHERE)


def _digest(
    arrays: Mapping[str, Array], geometry: Geometry, scoring: ScoringRule, rest: tuple[str, ...]
) -> str:
    digest = hashlib.sha256(f"{asdict(geometry)} {asdict(scoring)} {rest}".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _call(top_k: int, arrays: Mapping[str, Array], options: Mapping[str, tuple[Any, Any]]) -> str:
    words = [str(top_k)]
    words += [f"{name}={numbers(array)}" for name, array in arrays.items()]
    words += [f"{name}={value!r}" for name, (value, usual) in options.items() if value != usual]
    return f"memory_bank({', '.join(words)})"


def numbers(array: Array) -> str:
    """Return an array as nested lists of the shortest decimals that give its values again.

    NaN and the infinities are ``nan`` and ``inf``, as ``from math import inf, nan`` names them.

    Example:
        >>> numbers(np.array([[0.1, -0.0]], np.float32))
        '[[0.1, -0.0]]'
    """
    if array.ndim:
        return f"[{', '.join(numbers(part) for part in array)}]"
    # numpy prints the shortest decimal for the dtype; BF16 has that of its FP32 value.
    return str(np.float32(array[()]))
