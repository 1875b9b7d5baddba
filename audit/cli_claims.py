"""``neartie claims``: the sentences of a sign-off, answered from evidence."""

from __future__ import annotations

import json
from typing import Annotated

import typer

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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Answer each claim: supported, refuted, or unsupported with what is needed."""
    from .claims.check import check_claims
    from .claims.load import load_claims
    from .claims.text import claims_text
    from .evidence.load import load_evidence

    claims = load_claims(file)
    result = check_claims(claims, [load_evidence(directory) for directory in directories or ()])
    print(json.dumps(result.as_dict(), indent=1) if as_json else claims_text(result.as_dict()))
    raise typer.Exit(result.exit_status)


@claims_app.command()
def metrics() -> None:
    """List the figures that a claim can be about."""
    from .claims.text import metrics_text

    print(metrics_text())
