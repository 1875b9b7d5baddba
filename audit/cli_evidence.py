"""``neartie verify`` and ``neartie report``: what stored evidence is worth, and says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Directory = Annotated[Path, typer.Argument(help="As --out wrote it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def verify(
    directory: Directory,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat the audit from the banks, in a new process.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check files, figures and banks of evidence; name every problem."""
    from .evidence.verify import verify_evidence

    result = verify_evidence(directory, rerun=rerun)
    print(result.to_json() if as_json else result.text())
    raise typer.Exit(result.exit_status)


def report(
    directory: Directory,
    policy: Annotated[
        Path | None, typer.Option(help="TOML file with limits to judge by instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Render the report again from the stored tables, judged by this or another policy."""
    from .evidence.load import load_evidence
    from .evidence.rejudge import rejudge
    from .evidence.write import report_text
    from .policy import load_policy

    limits = None if policy is None else load_policy(policy)
    result = rejudge(load_evidence(directory), limits)
    print(result.to_json() if as_json else report_text(result), end="\n" if as_json else "")
    raise typer.Exit(result.verdict.exit_status)
