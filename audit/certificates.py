"""Swap certificates: one record per row whose selected set differs, enough to rebuild it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..kernels.reference import ReferenceSelection
from .compare import RowComparison
from .metrics.flags import RowFlag, names
from .metrics.swaps import SET_CLASSES, SetClass
from .metrics.ulp import ordered

SWAP_SCHEMA = pa.schema(
    [
        pa.field("bank", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("layer", pa.int64()),
        pa.field("step", pa.int64()),
        pa.field("width", pa.int32(), nullable=False),
        pa.field(
            "rank", pa.int32(), nullable=False, metadata={"note": "first rank with these bits"}
        ),
        pa.field("replicas", pa.int32(), nullable=False),
        pa.field("set_class", pa.string(), nullable=False),
        pa.field("dropped", pa.list_(pa.int32()), nullable=False),
        pa.field("added", pa.list_(pa.int32()), nullable=False),
        pa.field("slots_dropped", pa.list_(pa.int32()), nullable=False),
        pa.field("slots_added", pa.list_(pa.int32()), nullable=False),
        pa.field("reference_ranks_dropped", pa.list_(pa.int32()), nullable=False),
        pa.field("reference_ranks_added", pa.list_(pa.int32()), nullable=False),
        pa.field("gap_ulp", pa.int64()),
        pa.field("gap_abs", pa.float64()),
        pa.field("gap_fp64_ulp", pa.float64()),
        pa.field("gap_unbiased_ulp", pa.int64()),
        pa.field("gap_logit", pa.float64()),
        pa.field("gap_group_ulp", pa.int64()),
        pa.field("flags", pa.list_(pa.string()), nullable=False),
        pa.field("snippet", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a comparison was made; what every certificate of it repeats."""

    bank: str
    spec: str
    """What opens the bank again: a directory, a shipped name or a generator."""
    width: int
    rank: int
    replicas: int
    ranks: int
    baseline: str
    candidate: str
    keys: dict[str, npt.NDArray[Any]]
    first_row: int
    rows: npt.NDArray[np.int64] | None = None
    """[row] the bank's row numbers, where they do not follow one another from ``first_row``."""
    device: str = "cpu"


def certificates(
    place: Place,
    comparison: RowComparison,
    ids_a: npt.NDArray[np.int32],
    ids_b: npt.NDArray[np.int32],
    reference: ReferenceSelection,
    logits: npt.NDArray[Any],
) -> Iterator[dict[str, Any]]:
    """Yield a certificate per differing row, as a record of ``SWAP_SCHEMA``.

    Args:
        place: bank, width, rank and paths of this comparison.
        comparison: what ``compare_rows`` said of these rows.
        ids_a: [row, slot] of the baseline.
        ids_b: [row, slot] of the candidate.
        reference: what gaps and ranks are measured on.
        logits: [row, expert] that the reference judged, float64 or float32.
    """
    sets = comparison.sets
    for n, row in enumerate(sets.rows.tolist()):
        dropped = [int(e) for e in sets.dropped[n] if e >= 0]
        added = [int(e) for e in sets.added[n] if e >= 0]
        gap, group_gap = int(sets.gap_ulp[n]), int(sets.group_gap_ulp[n])
        bank_row = place.first_row + row if place.rows is None else int(place.rows[row])
        yield {
            "bank": place.bank,
            "row": bank_row,
            "layer": int(place.keys["layer"][row]),
            "step": int(place.keys["step"][row]),
            "width": place.width,
            "rank": place.rank,
            "replicas": place.replicas,
            "set_class": str(SET_CLASSES[sets.set_class[row]]),
            "dropped": dropped,
            "added": added,
            "slots_dropped": _slots(ids_a[row], dropped),
            "slots_added": _slots(ids_b[row], added),
            "reference_ranks_dropped": _ranks(reference.keys[row], dropped),
            "reference_ranks_added": _ranks(reference.keys[row], added),
            "gap_ulp": None if gap < 0 else gap,
            "gap_abs": None if gap < 0 else float(sets.gap_abs[n]),
            "gap_fp64_ulp": _fp64_gap(reference, row, dropped, added),
            "gap_unbiased_ulp": _steps(reference.scores32[row], dropped, added),
            "gap_logit": _largest_gap(logits[row].astype(np.float64), dropped, added),
            "gap_group_ulp": None if group_gap < 0 else group_gap,
            "flags": _flags(comparison, row),
            "snippet": snippet(place, bank_row),
        }


def snippet(place: Place, row: int) -> str:
    """Return one line of Python that rebuilds a row and shows both selections."""
    device = "" if place.device == "cpu" else f", device={place.device!r}"
    return (
        f"neartie.replay_row({place.spec!r}, row={row}, width={place.width}, ranks={place.ranks}, "
        f"baseline={place.baseline!r}, candidate={place.candidate!r}{device})"
    )


def swaps_table(records: Sequence[dict[str, Any]]) -> pa.Table:
    """Return certificates as the table of ``swaps.parquet``."""
    return pa.Table.from_pylist(list(records), schema=SWAP_SCHEMA)


def severity(record: dict[str, Any]) -> tuple[int, float]:
    """Order certificates: the worse class first, then the wider gap (undefined is widest)."""
    order = [str(c) for c in SetClass]
    gap = record["gap_ulp"]
    return order.index(record["set_class"]), float("inf") if gap is None else float(gap)


def _slots(ids: npt.NDArray[np.int32], experts: list[int]) -> list[int]:
    """Slots (from 0) that hold the experts."""
    return [int(np.flatnonzero(ids == expert)[0]) for expert in experts]


def _ranks(keys: npt.NDArray[np.float32], experts: list[int]) -> list[int]:
    """Places (from 1) of the experts in the reference's order; NaN keys come last."""
    number = np.isfinite(keys) | np.isinf(keys)
    ranks = []
    for expert in experts:
        key = keys[expert]
        if number[expert]:
            before = (keys > key) | ((keys == key) & (np.arange(len(keys)) < expert))
        else:
            before = number | (np.arange(len(keys)) < expert)
        ranks.append(1 + int(np.count_nonzero(before)))
    return ranks


def _pairs(
    values: npt.NDArray[Any], dropped: list[int], added: list[int]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Values of the dropped and the added experts, each sorted; None if one is not finite."""
    a, b = np.sort(values[dropped]), np.sort(values[added])
    return (a, b) if np.isfinite(a).all() and np.isfinite(b).all() else None


def _steps(values: npt.NDArray[np.float32], dropped: list[int], added: list[int]) -> int | None:
    pair = _pairs(values, dropped, added)
    return None if pair is None else int(np.abs(ordered(pair[0]) - ordered(pair[1])).max())


def _largest_gap(
    values: npt.NDArray[np.float64], dropped: list[int], added: list[int]
) -> float | None:
    pair = _pairs(values, dropped, added)
    return None if pair is None else float(np.abs(pair[0] - pair[1]).max())


def _fp64_gap(
    reference: ReferenceSelection, row: int, dropped: list[int], added: list[int]
) -> float | None:
    """The gap of the FP64 keys in units of one FP32 ULP of the larger key.

    A gap of 0 in FP32 may hide a strict order: this says how far apart the experts really are.
    """
    gap = _largest_gap(reference.keys64[row], dropped, added)
    pair = _pairs(reference.keys[row], dropped, added)
    if gap is None or pair is None:
        return None
    return gap / float(np.spacing(np.abs(np.concatenate(pair)).max()))


def _flags(comparison: RowComparison, row: int) -> list[str]:
    every = comparison.input_flags[row]
    for flags in comparison.flags.values():
        every = every | flags[row]
    return names(RowFlag(int(every)))
