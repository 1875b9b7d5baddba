"""The tables that every report shows, as rows of text made from the record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..certificates import severity
from ..number_words import number_of, percent
from ..value_table import TENSORS

# Classes that are told apart in the table of sets; the rest are one column.
_SET_COLUMNS = ("identical", "reordered", "exact_tie", "near_tie")
_OTHER_CLASSES = ("tie_group", "group_tie", "noise_swap", "far_swap", "multi_swap")


@dataclass(frozen=True)
class Table:
    """A titled table of text cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def filled_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without the columns that hold nothing, ``-``, in every row."""
    kept = [n for n, _ in enumerate(columns) if not rows or any(row[n] != "-" for row in rows)]
    return Table(title, [columns[n] for n in kept], [[row[n] for n in kept] for row in rows])


def set_table(record: Mapping[str, Any]) -> Table:
    """Return the set classes per width with both denominators and the bound."""
    confidence = record["policy"]["confidence"]
    widths = max(1, len(record["widths"]))
    columns = (
        "width",
        "row x rank",
        "rows",
        "units",
        *(c.replace("_", " ") for c in _SET_COLUMNS),
        "other",
        "invalid",
        "set rate",
        f"at most ({percent(confidence)})",
        f"certified, {number_of(widths, 'width')}",
    )
    rows = []
    for width in record["widths"]:
        counts = width["counts"]
        rate = width["set_rate"]
        rows.append(
            (
                str(width["width"]),
                f"{width['rows']:,}",
                f"{width['unique_rows']:,}",
                f"{width['units']:,}",
                *(f"{counts[name]:,}" for name in _SET_COLUMNS),
                f"{sum(counts[name] for name in _OTHER_CLASSES):,}",
                f"{width['invalid']:,}",
                "-" if rate is None else f"{rate:.2e}",
                f"{width['set_rate_upper']:.2e}",
                "yes" if width["certified"] else "no",
            )
        )
    return Table("Expert sets, counts over row x rank", columns, _same_widths(rows))


def triangle_table(record: Mapping[str, Any]) -> Table:
    """Return relative RMS of both paths against FP64 and of one against the other."""
    rows = []
    for width in record["widths"]:
        for tensor, sides in width["triangle"].items():
            closer = width["closer_to_reference"].get(tensor)
            rows.append(
                (
                    str(width["width"]),
                    tensor,
                    _figure(sides["candidate_reference"]),
                    _figure(sides["baseline_reference"]),
                    _figure(sides["candidate_baseline"]),
                    "-" if sides["rho"] is None else f"{sides['rho']:.2f}",
                    closer["answer"] if closer else "-",
                )
            )
    columns = (
        "width",
        "tensor",
        "candidate - FP64",
        "baseline - FP64",
        "apart",
        "rho",
        "candidate is",
    )
    rows.sort(key=lambda row: list(TENSORS).index(row[1]))
    return Table("Error triangle (relative RMS)", columns, _same_widths(rows))


def weight_table(record: Mapping[str, Any]) -> Table:
    """Return weight differences in FP32 ULP, on rows with equal sets."""
    rows = []
    for width in record["widths"]:
        bins = {int(k): v for k, v in width["weight_ulp_histogram"].items()}
        total = sum(bins.values())
        worst = width["worst_weight"]
        where = f"{worst['bank']} row {worst['row']}" if worst else "-"
        rows.append(
            (
                str(width["width"]),
                f"{total:,}",
                *(
                    _share(sum(v for k, v in bins.items() if low <= k <= high), total)
                    for low, high in ((0, 0), (1, 1), (2, 2), (3, 8), (9, 1 << 62))
                ),
                "-" if width["max_weight_ulp"] is None else f"{width['max_weight_ulp']:,}",
                where,
            )
        )
    columns = ("width", "weights", "0 ULP", "1", "2", "3-8", "more", "max", "worst at")
    return Table("Expert weights, aligned by id (FP32 ULP)", columns, _same_widths(rows))


def bank_table(record: Mapping[str, Any]) -> Table:
    """Return the banks with their near ties by the reference, whether or not paths differ."""
    rows = []
    for bank in record["banks"]:
        counts = bank["boundary"]
        control = bank["fp32_reference_control"]
        rows.append(
            (
                bank["name"],
                f"{bank['rows']:,}",
                bank["stage"],
                bank["independence_unit"],
                f"{counts.get('at_most_0', 0):,}",
                f"{counts.get('at_most_2', 0):,}",
                density_text(bank["margin_density"]),
                _figure(control.get("latent")),
                bank["digest"][:12],
            )
        )
    columns = (
        "bank",
        "rows",
        "stage",
        "unit",
        "exact ties",
        "within 2 ULP",
        "margin density (recorded)",
        "FP32 - FP64 (latent)",
        "sha256",
    )
    return filled_table("Banks", columns, rows)


def claims_table(record: Mapping[str, Any]) -> Table:
    """Return each claim of a claims file with its answer; no rows where none was asked about."""
    claims = record.get("claims")
    if claims is None:
        return Table("", (), ())
    rows = [
        (found["answer"], found["id"], found["text"], found["expected"] or "-", found["reason"])
        for found in claims["claims"]
    ]
    columns = ("answer", "claim", "as it is stated", "expected", "because")
    return Table(f"Claims of {claims['name']}", columns, rows)


def worst_certificates(swaps: pa.Table, count: int) -> list[dict[str, Any]]:
    """Return the gravest certificates: worse class first, wider gap first."""
    return sorted(swaps.to_pylist(), key=severity, reverse=True)[:count]


def not_run(record: Mapping[str, Any]) -> list[str]:
    """Return what was asked for and was not run, each with its reason."""
    return [
        f"{item['bank']} at width {item['width']} ({item['reason']})"
        for item in record["coverage"]
        if not item["ran"]
    ]


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """Return one sentence about a swap, with the figures that place it."""
    gap = certificate["gap_ulp"]
    fp64 = certificate["gap_fp64_ulp"]
    dropped = ", ".join(
        f"{expert} (slot {slot}, reference rank {rank})"
        for expert, slot, rank in zip(
            certificate["dropped"],
            certificate["slots_dropped"],
            certificate["reference_ranks_dropped"],
            strict=True,
        )
    )
    added = ", ".join(
        f"{expert} (slot {slot}, reference rank {rank})"
        for expert, slot, rank in zip(
            certificate["added"],
            certificate["slots_added"],
            certificate["reference_ranks_added"],
            strict=True,
        )
    )
    flags = f"; {', '.join(certificate['flags'])}" if certificate["flags"] else ""
    return (
        f"{certificate['set_class']}: {certificate['bank']} row {certificate['row']} at width "
        f"{certificate['width']}, rank {certificate['rank']} "
        f"({number_of(certificate['replicas'], 'rank')} alike): drops {dropped}, adds {added}; gap "
        f"{'undefined' if gap is None else f'{gap:,} ULP in FP32'}"
        f"{'' if fp64 is None else f', {fp64:.2f} ULP in FP64'}{flags}"
    )


def differences(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the reasons but for the limitations, which a report lists apart."""
    return [r for r in record["verdict"]["reasons"] if r["code"] != "limitation"]


def schedule_line(record: Mapping[str, Any]) -> str | None:
    """Return how the latent errors compare with the declared schedules; None without a latent."""
    fit = record["schedule"]
    if fit is None:
        return None
    if fit["fits"] is None:
        return f"latent schedule: {fit['declared']}: nothing that could be predicted"
    off = "no number" if fit["distance"] is None else f"{fit['distance']:.2%} off"
    limit = f"limit {fit['tolerance']:.2%}"
    nearest = f"; {'it shows' if fit['fits'] else 'nearest is'} {fit['nearest']}"
    if fit["fits"] and fit["nearest"] == fit["declared"]:
        nearest = ""
    answer = "fits" if fit["fits"] else "does not fit"
    return f"latent schedule: {answer} the declared {fit['declared']} ({off}, {limit}){nearest}"


def class_line(record: Mapping[str, Any]) -> str:
    """Return the class as it is signed, with its structural tag."""
    tag = f", {record['structural_tag']}" if record["structural_tag"] else ""
    line = f"NUMERICS-{record['numerics_class']}{tag}"
    if record["provisional_class"] != record["numerics_class"]:
        line = f"NUMERICS-UNKNOWN (so far {record['provisional_class']}{tag}: coverage too small)"
    return line


def _same_widths(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Put neighbouring widths with the same figures on one line: ``9, 10, 12``."""
    merged: list[Sequence[str]] = []
    for row in rows:
        if merged and list(merged[-1][1:]) == list(row[1:]):
            merged[-1] = (f"{merged[-1][0]}, {row[0]}", *row[1:])
        else:
            merged.append(row)
    return merged


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3e}"


def density_text(density: Mapping[str, float] | None) -> str:
    """Return rows per unit of margin at margin 0: resampled ones beside the recorded ones."""
    return "-" if not density else f"{density['resampled']:.0f} ({density['recorded']:.0f})"


def _share(count: int, total: int) -> str:
    """A percentage; what would round to 0 but is not keeps two digits."""
    if not total:
        return "-"
    share = count / total
    return f"{share:.1e}" if 0 < share < 1e-4 else f"{share:.2%}"
