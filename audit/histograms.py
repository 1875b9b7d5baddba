"""Counts behind the rates, as rows of ``histograms.parquet``: a verdict is judged from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from .bank_run import BankOutcome
from .tally import Tally

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
- ``set_class``, ``weight_class``, ``input_flag``: keys are the names; counts over row x rank;
- ``flag``, ``breach``: the same for one path;
- ``weight_ulp``: weights by integer distance, in ``steps``;
- ``boundary``: rows by the gap between slots K and K+1 of the reference, cumulative keys.
"""


def histograms_table(outcomes: Sequence[BankOutcome]) -> pa.Table:
    """Return the counts of every bank and width as the table of ``histograms.parquet``."""
    records = [record for outcome in outcomes for record in _of_bank(outcome)]
    return pa.Table.from_pylist(records, schema=HISTOGRAMS_SCHEMA)


def _of_bank(outcome: BankOutcome) -> Iterator[dict[str, Any]]:
    for key, count in outcome.boundary.items():
        yield _line(outcome.bank, None, "boundary", count, key=str(key))
    for width, tally in outcome.tallies.items():
        yield from _of_tally(outcome.bank, width, tally)


def _of_tally(bank: str, width: int, tally: Tally) -> Iterator[dict[str, Any]]:
    sample = {
        "rows": tally.rows,
        "unique_rows": tally.unique_rows,
        "units": tally.units,
        "differing_units": tally.events,
    }
    named: Sequence[tuple[str, str | None, Mapping[str, int]]] = (
        ("sample", None, sample),
        ("set_class", None, tally.counts),
        ("weight_class", None, tally.weight_classes),
        ("input_flag", None, tally.input_flags),
        *(("flag", path, counts) for path, counts in tally.flags.items()),
        *(("breach", path, counts) for path, counts in tally.breaches.items()),
    )
    for metric, path, counts in named:
        for key in counts:
            yield _line(bank, width, metric, counts[key], path=path, key=str(key))
    for steps in sorted(tally.weight_ulp):
        yield _line(bank, width, "weight_ulp", tally.weight_ulp[steps], steps=steps)


def _line(
    bank: str,
    width: int | None,
    metric: str,
    count: int,
    *,
    path: str | None = None,
    key: str | None = None,
    steps: int | None = None,
) -> dict[str, Any]:
    return {
        "bank": bank, "width": width, "metric": metric, "path": path, "key": key, "steps": steps,
        "count": count,
    }  # fmt: skip
