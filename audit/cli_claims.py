"""``neartie claims``: the sentences of a sign-off, answered from evidence."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..banks.errors import InputError

claims_app = typer.Typer(
    help="Check the sentences of a sign-off against evidence.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@claims_app.command()
def check(
    file: Annotated[str, typer.Argument(help="TOML file, or a shipped one: route-9-20.")],
    directories: Annotated[
        list[str] | None, typer.Argument(help="Evidence directories or URLs, audits and gates.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Show these answers only, such as refuted,unsupported.")
    ] = None,
    short: Annotated[
        bool, typer.Option("--short", help="One line a claim, without its figures.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Answer each claim: supported, refuted, or unsupported with what is needed."""
    from .claims.check import check_claims
    from .claims.load import load_claims
    from .claims.text import claims_text
    from .evidence.load import load_evidence

    if as_json and (only is not None or short):
        raise InputError("json", "with --only or --short", "alone: it holds every answer", "claims")
    shown = _answers(only)
    claims = load_claims(file)
    result = check_claims(claims, [load_evidence(directory) for directory in directories or ()])
    record = result.as_dict()
    text = json.dumps(record, indent=1) if as_json else claims_text(record, only=shown, short=short)
    print(text)
    raise typer.Exit(result.exit_status)


def _answers(only: str | None) -> set[str]:
    """Names of the answers that are shown; empty for all."""
    from .claims.check import Answer

    names = [] if only is None else [name.strip().upper() for name in only.split(",")]
    unknown = next((name for name in names if name not in set(Answer)), None)
    if unknown is not None:
        known = ", ".join(answer.lower() for answer in Answer)
        raise InputError("only", only, f"of {known}, separated by commas", "--only")
    return set(names)


@claims_app.command()
def metrics() -> None:
    """List the figures that a claim can be about."""
    from .claims.text import metrics_text

    print(metrics_text())
