"""``neartie policy``: the limits in force, and what a policy file may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

policy_app = typer.Typer(
    help="Show the limits in force, and what a policy file may hold.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@policy_app.command()
def schema() -> None:
    """Print the JSON schema of a policy file."""
    from .policy import policy_schema

    print(json.dumps(policy_schema(), indent=2))


@policy_app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="TOML file; default: the shipped one.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Print every limit in force, with where its figure comes from."""
    from .policy import load_policy
    from .policy.show import policy_text

    policy = load_policy(file)
    print(json.dumps(policy.model_dump(mode="json"), indent=1) if as_json else policy_text(policy))
