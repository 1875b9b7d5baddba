"""A score certificate as a person reads it in a terminal."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from ...kernels.cuda.facts import why_not_real
from ...kernels.cuda.forms import DEVICE_FORMS
from ...kernels.exhaustive.float_line import RANGES, bits_at, value_at
from ...kernels.exhaustive.record import FormCounts
from ...kernels.exhaustive.scan import SpecialScores, score_at
from ...kernels.scores import FORMS
from ..metrics.score_bounds import window_ulp
from ..score_certificate import ScoreCertificate, bins_of, magnitude

KEY_LOWS: Final = (1.0, 0.5, 0.25)
"""Least key magnitudes for which the window is also told in ULP."""

_BAR: Final = 24


def bounds_dict(
    certificate: ScoreCertificate, bias_low: float, bias_high: float
) -> dict[str, dict[str, Any]]:
    """Return, for each range, what the certificate proves for biases from low to high.

    ``window`` is None where no finite bound exists. ``window_ulp`` is by least key magnitude.

    Raises:
        InputError: a bias range that is reversed or not finite.
    """
    result: dict[str, dict[str, Any]] = {}
    for name in RANGES:
        bound = window = None
        if certificate.range(name).pair.undefined == 0:
            bound = certificate.key_bound(name, bias_low, bias_high)
            window = certificate.swap_window(name, bias_low, bias_high)
        result[name] = {
            "bias": [bias_low, bias_high],
            "key_bound": bound,
            "window": window,
            "window_ulp": None
            if window is None
            else {str(low): window_ulp(window, low) for low in KEY_LOWS},
        }
    return result


def print_certificate(
    certificate: ScoreCertificate, bias_low: float, bias_high: float, console: Console
) -> None:
    """Print distances, histogram, monotonicity, saturation, and what they prove of a swap."""
    made = certificate.provenance
    first, second = certificate.form_a, certificate.form_b
    console.print(
        f"[bold]{first}[/] ({_steps(first)})\n[bold]{second}[/] ({_steps(second)})\n"
        f"all 2^32 FP32 inputs evaluated in {made['seconds']} s on {made['date']} "
        f"({_where(certificate)})\n"
    )
    for table in (
        _distances(certificate),
        _histogram(certificate),
        _forms(certificate),
        _bounds(certificate, bias_low, bias_high),
    ):
        console.print(table)
        console.print()
    console.print(
        "If |key_a - key_b| <= bound for every expert, two selects can differ only in rows whose "
        "boundary gap,\non either form's own keys, is at most the window. Rows with a wider gap "
        "need no second selection."
    )
    if bias_low == bias_high == 0.0:
        console.print("[dim]Keys without bias; --bias LOW,HIGH bounds them with yours.[/]")


def _steps(form: str) -> str:
    return DEVICE_FORMS[form].steps if form in DEVICE_FORMS else FORMS[form].steps


def _where(certificate: ScoreCertificate) -> str:
    """The machine, or the device that the certificate holds for."""
    made, device = certificate.provenance, certificate.device
    if device is None:
        return f"{made['cores']} cores, {made['machine']}"
    return (
        f"{device['device']}, compute capability {device['compute_capability']}, CUDA "
        f"{device['cuda']}, libdevice {device['libdevice']}, Triton {device['triton']}; "
        f"it holds for these alone"
    )


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _distances(certificate: ScoreCertificate) -> Table:
    first, second = certificate.form_a, certificate.form_b
    columns = ("inputs", "differ", "largest", "x", "bits of x", first, second)
    table = _table("Distances", ("range", "in"), columns)
    for name, (_, words) in RANGES.items():
        pair = certificate.range(name).pair
        absolute = f"{magnitude(pair.max_abs_bits):.6g}"
        table.add_row(
            *(words, "absolute", f"{pair.inputs:,}", f"{pair.differ:,}", absolute),
            *_witness(certificate, pair.max_abs_at),
        )
        table.add_row(
            *("", "ULP", "", "", f"{pair.max_ulp:,}"), *_witness(certificate, pair.max_ulp_at)
        )
        if pair.undefined:
            table.add_row(
                *("", "not finite", f"{pair.undefined:,}", "", ""),
                *_witness(certificate, pair.undefined_at),
            )
    return table


def _witness(certificate: ScoreCertificate, place: int) -> tuple[str, str, str, str]:
    """An input, its bits, and both scores there; device forms have none without their device."""
    if place < 0:
        return "", "", "", ""
    a, b = (_score_text(form, place) for form in (certificate.form_a, certificate.form_b))
    return f"{value_at(place):.9g}", _hex(bits_at(place)), a, b


def _score_text(form: str, place: int) -> str:
    if form not in DEVICE_FORMS:
        return f"{score_at(form, place):.9g}"
    if why_not_real() is not None:
        return "-"
    import torch

    from ...kernels.cuda.scores_triton import device_score

    at = torch.tensor([value_at(place)], device="cuda")
    return f"{device_score(form, at).item():.9g}"


def _histogram(certificate: ScoreCertificate) -> Table:
    """Inputs by ULP distance; larger distances are gathered to fewer bins."""
    table = _table("Inputs by ULP distance", ("ULP",), tuple(w for _, w in RANGES.values()))
    table.add_column("log2 of inputs, all finite x")
    gathered = {name: _gathered(certificate.range(name).histogram) for name in RANGES}
    for low, high in sorted({key for bins in gathered.values() for key in bins}):
        counts = [bins.get((low, high), 0) for bins in gathered.values()]
        label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        length = round(_BAR * counts[-1].bit_length() / 32)
        table.add_row(label, *(f"{count:,}" for count in counts), "[cyan]" + "█" * length + "[/]")
    return table


def _gathered(histogram: tuple[int, ...]) -> dict[tuple[int, int], int]:
    result: dict[tuple[int, int], int] = {}
    for low, high, inputs in bins_of(histogram):
        key = (low, high)
        if high > 4:
            # Up to 64 the next power of two, above it one of 2^10, 2^14, 2^18, ...
            exponent = (high - 1).bit_length()
            if exponent > 6:
                exponent += -(exponent - 6) % 4
            key = (1 + (1 << (exponent - (1 if exponent <= 6 else 4))), 1 << exponent)
        result[key] = result.get(key, 0) + inputs
    return result


def _forms(certificate: ScoreCertificate) -> Table:
    columns = (
        "form",
        "monotone",
        "first x with score 1",
        "last x with score 0",
        "subnormal scores",
    )
    table = _table(
        "Forms, all finite x and what is not finite", columns, ("-inf", "+inf", "NaN gives")
    )
    forms = (certificate.form_a, certificate.form_b)
    counts = certificate.range("all").forms
    for form, one, special in zip(forms, counts, certificate.special, strict=True):
        table.add_row(
            form,
            _drops(one),
            _place(one.first_one),
            _place(one.last_zero),
            "none"
            if not one.subnormals
            else f"{_place(one.first_subnormal)} to\n{_place(one.last_subnormal)}",
            *(_score(bits) for bits in (special.minus_infinity, special.plus_infinity)),
            _nan(special),
        )
    return table


def _drops(counts: FormCounts) -> str:
    if counts.drops == 0:
        return "[green]yes[/]"
    return (
        f"[red]{counts.drops:,} drops[/], first at {_place(counts.first_drop)},\n"
        f"largest {magnitude(counts.drop_bits):.3g} at {_place(counts.drop_at)}"
    )


def _nan(special: SpecialScores) -> str:
    numbers = special.nan_inputs - special.nan_scores
    if numbers == 0:
        return "NaN, always"
    return f"a number, {numbers:,} times, first {_hex(bits_at(special.first_number_at))}"


def _bounds(certificate: ScoreCertificate, bias_low: float, bias_high: float) -> Table:
    title = f"Keys with bias from {bias_low:g} to {bias_high:g}"
    ulp = tuple(f"ULP, keys >= {low:g}" for low in KEY_LOWS)
    table = _table(title, ("range",), ("|score| apart", "|key| apart", "window", *ulp))
    for name, row in bounds_dict(certificate, bias_low, bias_high).items():
        words = RANGES[name][1]
        if row["window"] is None:
            table.add_row(words, "[red]no bound: a score is not finite[/]")
            continue
        table.add_row(
            words,
            f"{certificate.max_abs(name):.6g}",
            f"{row['key_bound']:.6g}",
            f"{row['window']:.6g}",
            *(f"{steps:,}" for steps in row["window_ulp"].values()),
        )
    return table


def _place(place: int) -> str:
    return "never" if place < 0 else f"{value_at(place):.9g} ({_hex(bits_at(place))})"


def _hex(bits: int) -> str:
    return f"0x{bits:08x}"


def _score(bits: int) -> str:
    return f"{np.uint32(bits).view(np.float32):.9g}"
