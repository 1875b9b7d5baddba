"""The commit trailer that names a numerics class and the evidence for it."""

from __future__ import annotations

from ..evidence.check_files import refuse_any_change
from ..evidence.identity import manifest_digest
from ..evidence.load import Evidence
from ..evidence.view import record_view


def render_trailer(evidence: Evidence) -> str:
    """Return two lines for the end of a commit message, in the syntax of git's trailers.

    Source: https://git-scm.com/docs/git-interpret-trailers

    Raises:
        InputError: the record or the manifest cannot be read, or any file is another one than the
            manifest records: the digest goes into a commit, and people read the report beside it.
    """
    refuse_any_change(evidence.directory, evidence.name)
    return (
        f"Numerics-Class: {record_view(evidence).class_text}\n"
        f"Numerics-Evidence: sha256:{manifest_digest(evidence)}\n"
    )
