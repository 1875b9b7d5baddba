"""``neartie sign``, ``diff`` and ``history``: what is done with evidence of several runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ..banks.errors import printable

PASSPHRASE: Final = "NEARTIE_KEY_PASSPHRASE"

Directory = Annotated[str, typer.Argument(help="An evidence directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def sign(
    directory: Directory,
    key: Annotated[Path, typer.Option(help="Private key: PEM or OpenSSH; ed25519, ECDSA or RSA.")],
    signer: Annotated[
        str | None, typer.Option(help="Name of the signer; default: the comment of KEY.pub.")
    ] = None,
    comment: Annotated[str, typer.Option(help="Kept in what is signed.")] = "",
    as_json: Json = False,
) -> None:
    """Sign evidence: verdict and class of its record, bound to the digest of its manifest.

    An encrypted key's passphrase comes from NEARTIE_KEY_PASSPHRASE, or is asked for.
    """
    from .evidence.keys import load_signing_key
    from .evidence.load import load_evidence
    from .evidence.sign import sign_evidence
    from .evidence.view import record_view

    evidence = load_evidence(directory)
    signing = load_signing_key(key, _passphrase)
    file = sign_evidence(evidence, signing, signer=signer, comment=comment)
    view = record_view(evidence)
    if as_json:
        signed = {
            "file": str(file),
            "keyid": signing.keyid,
            "verdict": str(view.verdict.state),
            "numerics_class": view.class_text,
        }
        print(json.dumps(signed, indent=1))
    else:
        answer = f"{view.verdict.state}, {view.class_text}; keyid sha256:{signing.keyid}"
        print(f"{printable(str(file))}: {answer}")


def _passphrase() -> str | None:
    """The passphrase from the environment, or from a person at a terminal."""
    given = os.environ.get(PASSPHRASE)
    if given is not None or not sys.stdin.isatty():
        return given
    return str(typer.prompt("Passphrase of the key", hide_input=True, err=True))


def diff(
    first: Annotated[str, typer.Argument(help="Evidence directory or URL of the older run.")],
    second: Annotated[str, typer.Argument(help="Evidence directory or URL of the newer run.")],
    as_json: Json = False,
) -> None:
    """Compare two audits, or two gates; exit status 1 where the second is worse."""
    from .evidence.diff import evidence_diff
    from .evidence.load import load_evidence
    from .report.diff import print_diff

    found = evidence_diff(load_evidence(first), load_evidence(second))
    if as_json:
        print(json.dumps(found.as_dict(), indent=1, allow_nan=False))
    else:
        print_diff(found, _console())
    raise typer.Exit(found.exit_status)


def history(
    directories: Annotated[list[str], typer.Argument(help="Evidence directories or URLs.")],
    as_json: Json = False,
) -> None:
    """Show every figure over many audits beside its limit, and which ones drift."""
    from .evidence.history import evidence_history
    from .evidence.load import load_evidence
    from .report.history import print_history

    found = evidence_history([load_evidence(directory) for directory in directories])
    if as_json:
        print(json.dumps(found.as_dict(), indent=1, allow_nan=False))
    else:
        print_history(found, _console())


def _console() -> Console:
    """Terminal output; a pipe gets plain text wide enough for the tables."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)
