"""Counts behind the rates, as rows of ``histograms.parquet``: a verdict is judged from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from .bank_outcome import BankOutcome
from .error_groups import METRIC, ErrorTally
from .tally import Tally
from .value_table import TENSORS

HISTOGRAMS_SCHEMA: Final = pa.schema(
    [
        pa.field("bank", pa.string(), nullable=False),
        pa.field("width", pa.int32(), metadata={"note": "null: the same rows at every width"}),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("path", pa.string(), metadata={"note": "baseline, candidate; null: of the pair"}),
        pa.field("key", pa.string(), metadata={"note": "name of the bin; null where steps has it"}),
        pa.field("steps", pa.int64(), metadata={"unit": "FP32 ULP"}),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""``metric`` is one of

- ``sample``: keys ``rows`` (row x rank), ``unique_rows``, ``units`` and ``differing_units``, which
  are the only denominator and numerator that a bound may use;
- ``rate_sample``: keys ``units`` and ``differing_units`` of the rows that may bound the set rate;
  a bank without these lines bounds none at this width;
- ``independence_unit``: the bank's, as the key;
- ``set_class``, ``weight_class``, ``input_flag``: keys are the names; counts over row x rank;
- ``flag``, ``breach``: the same for one path;
- ``bits_equal``: by tensor, 1 where every bit was the same, else 0;
- ``weight_ulp``: weights by integer distance, in ``steps`` (above 256: a power of two and up);
- ``worst_weight``: the largest distance of all, in ``steps``; the key is ``ROW/RANK``;
- ``row_error``: rows by the path with the smaller squared error, keys ``TENSOR/wins`` (of the
  candidate), ``/losses``, ``/ties``, ``/undefined``; ``/unpaired`` where the paths hold
  different rows;
- ``row_error_group``: of one path and one group of independence units, keys ``TENSOR/GROUP``:
  ``count`` rows, whose squared error is ``steps`` parts of 2^62 of both paths' over all groups;
- ``reference_gap``: rows of one path (replicas once) whose set is not the reference's, by the gap
  of a 1-for-1 exchange in ``steps``, binned as ``weight_ulp``; key ``beyond`` where no window can
  hold it;
- ``boundary``: rows by the gap between slots K and K+1 of the reference, cumulative keys;
- ``boundary_ulp``: those of them with a defined gap by it, in ``steps``, binned as ``weight_ulp``.

A gate has more of them, see ``gate.histograms``.
"""

PAIRED: Final = ("wins", "losses", "ties", "undefined")
UNPAIRED: Final = "unpaired"
BEYOND: Final = "beyond"

Line = dict[str, Any]


def histograms_table(outcomes: Sequence[BankOutcome]) -> pa.Table:
    """Return the counts of every bank and width as the table of ``histograms.parquet``."""
    return lines_table(histogram_lines(outcomes))


def histogram_lines(outcomes: Sequence[BankOutcome]) -> list[Line]:
    """Return the lines of every bank and width."""
    bounding = {
        width: _bounding(outcomes, width) for width in {w for o in outcomes for w in o.tallies}
    }
    return [
        found
        for outcome in outcomes
        for found in _of_bank(
            outcome, {w for w, names in bounding.items() if outcome.bank in names}
        )
    ]


def lines_table(lines: Iterable[Line]) -> pa.Table:
    """Return lines as the table of ``histograms.parquet``."""
    return pa.Table.from_pylist(list(lines), schema=HISTOGRAMS_SCHEMA)


def _bounding(outcomes: Sequence[BankOutcome], width: int) -> set[str]:
    """Banks whose rows bound the set rate of one width.

    Rows that start at the select stage share the paths' logits: they can only show differences of
    the select. Where the paths' own logits differ, or were not compared, only rows that ran all
    stages are samples of what differs.
    """
    ran = [o for o in outcomes if width in o.tallies]
    if logits_agree(outcomes, width):
        return {o.bank for o in ran}
    return {o.bank for o in ran if o.full_chain}


def logits_agree(outcomes: Sequence[BankOutcome], width: int) -> bool:
    """Return whether the paths' own logits have the same bits, on every row that ran all stages."""
    full = [o for o in outcomes if o.full_chain and width in o.tallies]
    return all(o.bits_equal.get(width, {}).get("logits", False) for o in full)


def _of_bank(outcome: BankOutcome, bounding: set[int]) -> Iterator[Line]:
    if outcome.independence_unit is not None and outcome.tallies:
        yield line(outcome.bank, None, "independence_unit", 1, key=outcome.independence_unit)
    for key, count in outcome.boundary.items():
        yield line(outcome.bank, None, "boundary", count, key=str(key))
    yield from step_lines(outcome.bank, None, "boundary_ulp", outcome.boundary_ulp)
    for width, tally in outcome.tallies.items():
        yield from tally_lines(outcome.bank, width, tally, bounds_rate=width in bounding)
        for name, same in outcome.bits_equal.get(width, {}).items():
            yield line(outcome.bank, width, "bits_equal", int(same), key=name)
        for path, gaps in outcome.reference_gaps.get(width, {}).items():
            yield from _gap_lines(outcome.bank, width, path, gaps)
        yield from _row_errors(outcome, width)


def tally_lines(bank: str, width: int | None, tally: Tally, *, bounds_rate: bool) -> Iterator[Line]:
    """Yield the lines of one tally."""
    rate = {"units": tally.units, "differing_units": tally.events}
    sample = {"rows": tally.rows, "unique_rows": tally.unique_rows, **rate}
    named: Sequence[tuple[str, str | None, Mapping[str, int]]] = (
        ("sample", None, sample),
        ("rate_sample", None, rate if bounds_rate else {}),
        ("set_class", None, tally.counts),
        ("weight_class", None, tally.weight_classes),
        ("input_flag", None, tally.input_flags),
        *(("flag", path, counts) for path, counts in tally.flags.items()),
        *(("breach", path, counts) for path, counts in tally.breaches.items()),
    )
    for metric, path, counts in named:
        for key in counts:
            yield line(bank, width, metric, counts[key], path=path, key=str(key))
    yield from step_lines(bank, width, "weight_ulp", tally.weight_ulp)
    worst = tally.worst_weight
    if worst is not None:
        key = f"{worst.row}/{worst.rank}"
        yield line(bank, width, "worst_weight", 1, key=key, steps=worst.value)


def step_lines(
    bank: str, width: int | None, metric: str, bins: Mapping[int, int], path: str | None = None
) -> Iterator[Line]:
    """Yield one line a bin, ascending."""
    for steps in sorted(bins):
        yield line(bank, width, metric, bins[steps], path=path, steps=steps)


def _gap_lines(bank: str, width: int, path: str, gaps: Mapping[int, int]) -> Iterator[Line]:
    """Gaps below 0 stand for those that no window holds."""
    yield from step_lines(
        bank, width, "reference_gap", {s: n for s, n in gaps.items() if s >= 0}, path
    )
    beyond = sum(n for steps, n in gaps.items() if steps < 0)
    if beyond:
        yield line(bank, width, "reference_gap", beyond, path=path, key=BEYOND)


def _row_errors(outcome: BankOutcome, width: int) -> Iterator[Line]:
    for tensor in TENSORS:
        ranked = outcome.values.errors.get((width, tensor))
        if ranked is None:
            continue
        errors = ranked.pooled()
        for name, count in _paired(errors).items():
            yield line(outcome.bank, width, "row_error", count, key=f"{tensor}/{name}")
        for path, group, parts, rows in errors.groups():
            key = f"{tensor}/{group}"
            yield line(outcome.bank, width, METRIC, rows, path=path, key=key, steps=parts)


def _paired(errors: ErrorTally) -> dict[str, int]:
    found = errors.paired()
    if found is None:
        return {UNPAIRED: errors.rows()}
    return {name: getattr(found, name) for name in PAIRED}


def line(
    bank: str,
    width: int | None,
    metric: str,
    count: int,
    *,
    path: str | None = None,
    key: str | None = None,
    steps: int | None = None,
) -> Line:
    """Return one row of ``HISTOGRAMS_SCHEMA``."""
    return {
        "bank": bank, "width": width, "metric": metric, "path": path, "key": key, "steps": steps,
        "count": count,
    }  # fmt: skip
