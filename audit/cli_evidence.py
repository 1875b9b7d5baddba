"""``neartie verify`` and ``neartie report``: what stored evidence is worth, and says."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..banks.errors import InputError

if TYPE_CHECKING:
    from .evidence.keys import PublicKey
    from .evidence.load import Evidence

Directory = Annotated[str, typer.Argument(help="Directory or URL, as --out wrote it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


class ReportForm(StrEnum):
    """Documents that are made from stored tables; ``evidence.write.REPORT_FORMS`` has the files."""

    MD = "md"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"


def verify(
    directory: Directory,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Repeat the audit from the banks, in a new process.")
    ] = False,
    key: Annotated[
        list[Path] | None,
        typer.Option(help="Public key, PEM or OpenSSH, that must have signed; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check files, figures, banks and signatures of evidence; name every problem."""
    from .evidence.verify import verify_evidence

    result = verify_evidence(directory, rerun=rerun, keys=_public_keys(key or []))
    print(result.to_json() if as_json else result.text())
    raise typer.Exit(result.exit_status)


def report(
    directory: Directory,
    policy: Annotated[
        Path | None, typer.Option(help="TOML file with limits to judge by instead.")
    ] = None,
    form: Annotated[
        ReportForm | None,
        typer.Option(
            "--format", help="Document to print on stdout: md, html, junit or sarif; default: md."
        ),
    ] = None,
    trailer: Annotated[
        bool, typer.Option("--trailer", help="Print the two lines of a commit message instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a document again from the stored tables, judged by the recorded or another policy."""
    from .evidence.load import load_evidence
    from .evidence.rejudge import rejudge
    from .evidence.write import report_text
    from .policy import load_policy

    if as_json and form is not None:
        raise InputError("format", f"{form} with --json", "one of the two", "report")
    evidence = load_evidence(directory)
    if trailer:
        _print_trailer(evidence, given=policy is not None or form is not None or as_json)
        return
    limits = None if policy is None else load_policy(policy)
    result = rejudge(evidence, limits)
    if as_json:
        print(result.to_json())
    else:
        _print_document(report_text(result, form or ReportForm.MD))
    raise typer.Exit(result.verdict.exit_status)


def _public_keys(paths: Sequence[Path]) -> list[PublicKey]:
    """The keys; reading them needs the extra ``sign``, so it is not asked for without one."""
    if not paths:
        return []
    from .evidence.keys import load_public_key

    return [load_public_key(path) for path in paths]


def _print_document(text: str) -> None:
    """Print the bytes that the file has: XML and HTML say that they are UTF-8."""
    # What a caller put in its place takes text alone.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(text, end="")


def _print_trailer(evidence: Evidence, *, given: bool) -> None:
    from .report.trailer import render_trailer

    if given:
        raise InputError("trailer", "with --policy, --format or --json", "alone", "report")
    print(render_trailer(evidence), end="")
