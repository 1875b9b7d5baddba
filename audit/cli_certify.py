"""``neartie certify``: what two score forms can differ by, over all 2^32 FP32 inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..banks.errors import InputError
from .progress import Interrupted, progress_bar


def certify(
    form_a: Annotated[
        str, typer.Argument(help="A score form: exp, tanh, ..., or on a GPU exp.cuda, ...")
    ],
    form_b: Annotated[str, typer.Argument(help="Another, of the same kind.")],
    bias: Annotated[
        str, typer.Option(help="LOW,HIGH: the biases for which keys and window are bounded.")
    ] = "0,0",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Evaluate all inputs again and compare.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="Also write the certificate here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Evaluate two score forms on all 2^32 FP32 inputs, and bound what a swap needs."""
    from .certify import (
        certify_forms,
        check_certificate_target,
        load_certificate,
        write_certificate,
    )
    from .metrics.score_bounds import key_bound
    from .report.certificate import bounds_dict, print_certificate

    low, high = _bias(bias)
    # What the bounds would refuse after half a minute is refused now.
    key_bound(0.0, low, high)
    target = None if out is None else Path(out)
    if target is not None:
        check_certificate_target(target)
    known = load_certificate(form_a, form_b)
    try:
        with progress_bar("inputs") as advance:
            found = certify_forms(form_a, form_b, fresh=fresh, progress=advance)
    except KeyboardInterrupt:
        kept = "starts again" if fresh else "goes on from here"
        raise Interrupted(f"the next run {kept}") from None
    if fresh and known is not None and known.record != found.record:
        got = f"counts unlike those of {known.provenance['date']}"
        expected = "the same; if the form was changed, raise its version"
        raise InputError("certificate", got, expected, f"{form_a}, {form_b}")
    if target is not None:
        write_certificate(found, target)
    if as_json:
        document = {**found.as_dict(), "bounds": bounds_dict(found, low, high)}
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        wide = None if sys.stdout.isatty() else 160
        print_certificate(found, low, high, Console(width=wide))


def _bias(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError("bias", text, "LOW,HIGH", "--bias") from None
    return low, high
