"""Write the evidence directory: all of it or nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, overload

import pyarrow as pa
import pyarrow.parquet as pq

from ...banks.disk import sync
from ...banks.errors import InputError
from ...banks.files import local_path
from ..gate.record import GateRecord
from ..progress import Interrupted
from ..record import AuditRecord
from ..report.gate import render_gate
from ..report.html import render_gate_html, render_html
from ..report.junit import render_junit
from ..report.markdown import render_markdown
from ..report.sarif import render_sarif
from .manifest import MANIFEST_FILE, TEMPORARY_SUFFIX, Kind, file_digest, make_manifest
from .remote import check_url_target, is_whole_at, write_to_url

RENDERED: Final[tuple[tuple[str, Callable[[AuditRecord], str]], ...]] = (
    ("report.md", render_markdown),
    ("report.html", render_html),
    ("junit.xml", render_junit),
    ("results.sarif", render_sarif),
)
"""Files that are made from an audit's record and tables alone, and can be made again from them."""

RENDERED_GATE: Final[tuple[tuple[str, Callable[[GateRecord], str]], ...]] = (
    ("report.md", render_gate),
    ("report.html", render_gate_html),
    ("junit.xml", render_junit),
    ("results.sarif", render_sarif),
)
"""The same for a gate."""

REPORT_FORMS: Final = {
    "md": "report.md", "html": "report.html", "junit": "junit.xml", "sarif": "results.sarif",
}  # fmt: skip
"""The rendered files by the name of their form."""

NOT_IN_EARLIER_GATES: Final = frozenset({"junit.xml", "results.sarif"})
"""Files that earlier versions did not write for a gate."""


@overload
def write_evidence(result: AuditRecord, directory: Path) -> Path: ...
@overload
def write_evidence(result: AuditRecord, directory: str | Path) -> Path | str: ...
def write_evidence(result: AuditRecord, directory: str | Path) -> Path | str:
    """Write the record, its tables, everything rendered from them, and the manifest.

    The files are made under a temporary name beside the target and forced to disk, and then take
    its place in one rename: a writer that is killed at any moment leaves whole evidence or none.
    At a URL the manifest is put last, and what has none is refused by every reader.

    Returns:
        the directory's path, or the URL.

    Raises:
        InputError: the directory exists and is not empty, or cannot be made or written.
    """
    return _write(
        directory,
        "audit",
        result.record,
        texts={
            "audit.json": result.to_json() + "\n",
            **{name: render(result) for name, render in RENDERED},
        },
        tables={
            "swaps": result.swaps,
            "values": result.values,
            "histograms": result.histograms,
        },
    )


@overload
def write_gate_evidence(result: GateRecord, directory: Path) -> Path: ...
@overload
def write_gate_evidence(result: GateRecord, directory: str | Path) -> Path | str: ...
def write_gate_evidence(result: GateRecord, directory: str | Path) -> Path | str:
    """Write a gate's evidence, as ``write_evidence``.

    Raises:
        InputError: as ``write_evidence``.
    """
    return _write(
        directory,
        "gate",
        result.record,
        texts={
            "gate.json": result.to_json() + "\n",
            **{name: render(result) for name, render in RENDERED_GATE},
        },
        tables={"swaps": result.swaps, "histograms": result.histograms},
    )


def report_text(result: AuditRecord | GateRecord, form: str = "md") -> str:
    """Return the text of a file that is made from a record and its tables alone.

    Args:
        result: of an audit or a gate.
        form: one of ``REPORT_FORMS``.

    Raises:
        KeyError: no such form.
    """
    name = REPORT_FORMS[form]
    if isinstance(result, GateRecord):
        of_gates: dict[str, Callable[[GateRecord], str]] = dict(RENDERED_GATE)
        return of_gates[name](result)
    of_audits: dict[str, Callable[[AuditRecord], str]] = dict(RENDERED)
    return of_audits[name](result)


@contextmanager
def keeping(out: str | Path | None) -> Iterator[None]:
    """Tell an interrupt what it left: evidence that is there by now is whole.

    Args:
        out: where it is written, new or empty before; None where none is.

    Raises:
        Interrupted: an interrupt came after the rename.
    """
    try:
        yield
    except KeyboardInterrupt:
        if out is None or not _is_whole(out):
            raise
        raise Interrupted(f"evidence in {out} is whole") from None


def _is_whole(out: str | Path) -> bool:
    place = local_path(out)
    return is_whole_at(str(out)) if place is None else (place / MANIFEST_FILE).is_file()


def _write(
    directory: str | Path,
    kind: Kind,
    record: Mapping[str, Any],
    *,
    texts: Mapping[str, str],
    tables: Mapping[str, pa.Table],
) -> Path | str:
    def fill(made: Path) -> None:
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        for name, table in tables.items():
            pq.write_table(table, made / f"{name}.parquet")
        hashes = {path.name: file_digest(path) for path in sorted(made.iterdir())}
        manifest = make_manifest(kind, record, hashes)
        (made / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")

    place = local_path(directory)
    return write_to_url(str(directory), fill) if place is None else write_whole(place, fill)


def write_whole(directory: str | Path, fill: Callable[[Path], None]) -> Path:
    """Make a directory of files that is there with all of them, or not at all.

    Args:
        directory: its name, new or that of an empty one.
        fill: writes files into the directory that it is given, which gets that name in the end.

    Raises:
        InputError: the directory exists and is not empty, or cannot be made or written.
    """
    target = Path(directory)
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = _beside(target, target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        fill(made)
        made.chmod(0o755)
        for path in (*made.iterdir(), made):
            sync(path)
        # Takes the place of an empty directory too, in one step.
        made.rename(target)
        sync(target.parent)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise
    return target


def check_target(out: str | Path) -> None:
    """Refuse a place that evidence would overwrite, before any work is done.

    Args:
        out: a directory or URL.

    Raises:
        InputError: it is a file, a link, a directory with something in it, or cannot be written.
    """
    target = local_path(out)
    if target is None:
        check_url_target(str(out))
        return
    # What pathlib makes of a URL.
    if re.match(r"[a-z][a-z0-9+.-]+:/[^/]", str(out)):
        raise InputError("out", out, "a path, or a URL as text", "--out")
    try:
        if target.is_dir() and any(target.iterdir()):
            raise InputError("out", target, "a new or empty directory", "--out")
        if target.name in ("", "..") or target.is_symlink() or target.is_file():
            raise InputError("out", target, "a directory by its own name", "--out")
        if target.name.endswith(TEMPORARY_SUFFIX):
            raise InputError("out", target, f"a name without {TEMPORARY_SUFFIX}", "--out")
        parent = target.parent
        while not parent.exists():
            parent = parent.parent
        # What the system says of permissions is not enough: /proc refuses those who have them.
        _beside(target, parent).rmdir()
    except OSError as error:
        raise _unwritable(target, error) from error


def check_apart(out: str | Path | None, work: str | Path | None) -> None:
    """Refuse evidence in a place that the shards of the same run would fill.

    Raises:
        InputError: ``work`` is ``out``, or lies in it.
    """
    target = None if out is None else local_path(out)
    if target is None or work is None:
        return
    if target.resolve() in (Path(work).resolve(), *Path(work).resolve().parents):
        raise InputError("out", target, "a directory that does not hold --work", "--out")


def _beside(target: Path, parent: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=TEMPORARY_SUFFIX, dir=parent))


def _unwritable(target: Path, error: OSError) -> InputError:
    reason = error.strerror or type(error).__name__
    return InputError("out", target, f"a directory that can be written ({reason})", "--out")
