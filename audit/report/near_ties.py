"""Near ties and swap rates, of a gate and of the gate that an audit started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..number_words import number_of, percent
from .figures import Table, density_text, filled_table

# Shown by ``neartie gate`` and in the record; too wide beside an audit's own tables.
_NOT_IN_AUDIT = ("density at 0", "shift (std)", "swaps / near tie")


def near_tie_table(record: Mapping[str, Any]) -> Table:
    """Return near ties, swaps, and the rate that margins predict beside the observed one."""
    window = record["policy"]["window_ulp"]
    confidence = record["policy"]["confidence"]
    bound = f"at most ({percent(confidence)})"
    columns = (
        "bank", "rows", f"within {window} ULP", "swaps", "swaps / near tie", "violations",
        "density at 0", "shift (std)", "predicted rate", "observed", bound, "answer",
    )  # fmt: skip
    lines = [(bank["name"], bank) for bank in record["banks"]]
    if len(lines) > 1:
        lines.append(("all", record["pooled"]))
    rows = []
    for name, found in lines:
        predicted, observed = found["prediction"], found["observed"]
        rows.append(
            (
                name,
                f"{observed['units']:,}",
                _rate(found["near_tie_rate"]),
                f"{sum(found['swaps'].values()):,}",
                _plain(found["swaps_per_near_tie_row"], ".3f"),
                f"{found['violations']:,}",
                _with_error(predicted["density"], predicted["density_error"], ".0f"),
                _rate(predicted["spread"]),
                _with_error(predicted["rate"], predicted["rate_error"], ".1e"),
                _rate(observed["rate"]),
                _rate(observed["upper"]),
                predicted["agreement"],
            )
        )
    return Table("Near ties (A's own keys) and the swap rate they predict", columns, rows)


def sample_text(sample: Mapping[str, Any] | None, who: str = "a sample") -> str | None:
    """Return what a small sample says beside the gate; None where there is none."""
    if sample is None:
        return None
    answer = "contradicts the gate" if sample["contradicts"] else "does not contradict the gate"
    return (
        f"{who} of {sample['events']:,} in {sample['trials']:,} {answer}: "
        f"p = {sample['p_value']:.2g} (Fisher, two-sided), and p = {sample['p_at_bound']:.2g} for "
        f"so many at the gate's upper bound"
    )


def audit_gate_table(record: Mapping[str, Any]) -> Table:
    """Return the near ties of the gate that an audit started; no rows where there was none."""
    gate = record["gate"]
    if gate is None:
        return Table("", (), ())
    whole = near_tie_table({**gate, "policy": record["policy"]})
    kept = [n for n, column in enumerate(whole.columns) if column not in _NOT_IN_AUDIT]
    known = [density_text(bank["margin_density"]) for bank in gate["banks"]]
    densities = [*known, *["-"] * (len(whole.rows) - len(known))]
    rows = [
        [*(line[n] for n in kept), density]
        for line, density in zip(whole.rows, densities, strict=True)
    ]
    columns = [*(whole.columns[n] for n in kept), "margin density (recorded)"]
    title = "Near-tie gate: the rate that margins predict, and the observed one"
    return filled_table(title, columns, rows)


def audit_gate_lines(record: Mapping[str, Any]) -> list[str]:
    """Return what the gate of an audit ran, or why there was none, one sentence a line."""
    gate = record["gate"]
    if gate is None:
        return [f"near-tie gate: not run: {record['no_gate']}"]
    planned, groups = gate["rows_planned"], {w["rows_of_width"] for w in gate["widths"]}
    lines = [
        f"near-tie gate: {gate['baseline']} against {gate['candidate']}, "
        f"{gate['rows']:,} rows from {_sources(gate['sources'])}, seed {gate['seed']}, plan "
        f"{gate['plan'][:12]}: {len(groups)} share(s) of rows for "
        f"{number_of(len(gate['widths']), 'width')}, "
        f"sized for a rate of {planned['assumed_rate']:.1e} with {planned['spare_events']} "
        f"differing rows to spare"
    ]
    sampled = [width for width in gate["widths"] if width["sample"]]
    if sampled:
        worst = min(sampled, key=lambda width: float(width["sample"]["p_value"]))
        told = sample_text(worst["sample"], "the banks' own rows, a sample")
        lines.append(f"{told} (width {worst['width']})")
    lines += [f"no gate at width {item['width']}: {item['reason']}" for item in gate["skipped"]]
    return lines


def _sources(sources: list[str]) -> str:
    """Sources without their rows and seeds, which stand elsewhere."""
    if len(sources) == 1:
        return sources[0]
    return f"{len(sources)} sources ({sources[0]}, ...)"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _plain(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _with_error(value: float | None, error: float | None, form: str) -> str:
    if value is None or error is None:
        return "-"
    return f"{value:{form}} +- {error:{form}}"
