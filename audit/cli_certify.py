"""``neartie certify``: what two score forms can differ by, over all 2^32 FP32 inputs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..banks.errors import InputError

if TYPE_CHECKING:
    from .certify import Progress as Callback


def certify(
    form_a: Annotated[str, typer.Argument(help="A score form: exp, tanh, sigmoid, ...")],
    form_b: Annotated[str, typer.Argument(help="Another.")],
    bias: Annotated[
        str, typer.Option(help="LOW,HIGH: the biases for which keys and window are bounded.")
    ] = "0,0",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Evaluate all inputs again and compare.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the certificate here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Evaluate two score forms on all 2^32 FP32 inputs, and bound what a swap needs."""
    from .certify import certify_forms, load_certificate, write_certificate
    from .report.certificate import bounds_dict, print_certificate

    low, high = _bias(bias)
    known = load_certificate(form_a, form_b)
    try:
        with _progress() as advance:
            found = certify_forms(form_a, form_b, fresh=fresh, progress=advance)
    except KeyboardInterrupt:
        kept = "starts again" if fresh else "goes on from here"
        print(f"neartie: interrupted; the next run {kept}", file=sys.stderr)
        raise typer.Exit(130) from None
    if fresh and known is not None and known.record != found.record:
        got = f"counts unlike those of {known.provenance['date']}"
        expected = "the same; if the form was changed, raise its version"
        raise InputError("certificate", got, expected, f"{form_a}, {form_b}")
    if out is not None:
        write_certificate(found, out)
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


@contextmanager
def _progress() -> Iterator[Callback]:
    """Yield a callback that shows inputs done on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("inputs", total=None)

        def advance(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        yield advance
