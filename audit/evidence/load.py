"""Read an evidence directory back, as the records and tables that it was written from.

The one place where evidence is opened for reading.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...banks.errors import InputError
from ...banks.files import local_path
from ...banks.remote_urls import public_url
from .check_files import refuse_changed
from .manifest import MANIFEST_FILE, TEMPORARY_SUFFIX, Kind, read_document
from .remote import copy_of

TABLES = ("swaps", "values", "histograms")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an evidence directory holds.

    Attributes:
        directory: where its files can be read; for evidence at a URL, a copy of them.
        kind: ``audit`` or ``gate``, by its record ``audit.json`` or ``gate.json``.
        record: that file's content.
        tables: by name, of ``TABLES``; a gate has no ``values``.
        manifest: content of ``manifest.json``.
        url: where it was copied from, without its options; None for a directory.
    """

    directory: Path
    kind: Kind
    record: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    manifest: Mapping[str, Any]
    url: str | None = None

    @property
    def name(self) -> str:
        """The directory or URL, for people."""
        return self.url or str(self.directory)


def load_evidence(directory: str | Path) -> Evidence:
    """Read an evidence directory whose record and tables are those that its manifest records.

    Every reader opens evidence here; ``verify`` alone reads what was changed, to name all of it.
    That the figures follow from the tables, and files that no reader uses, are for ``verify``.

    Args:
        directory: a directory or URL. Evidence at a URL is copied into a temporary directory, which
            goes with the returned object.

    Raises:
        InputError: it is no evidence directory or was never finished; its manifest, record or a
            table is missing or not as it was written; or a file cannot be read.
    """
    place = local_path(directory)
    if place is not None:
        return _held(place)
    url = str(directory)
    with ExitStack() as stack:
        evidence = _held(stack.enter_context(copy_of(url)), public_url(url))
        weakref.finalize(evidence, stack.pop_all().close)
    return evidence


def _held(place: Path, url: str | None = None) -> Evidence:
    kind = _kind(place)
    # Before they are parsed: what was changed may hold anything.
    refuse_changed(place, (f"{kind}.json", *(f"{table}.parquet" for table in TABLES)))
    return read_evidence(place, url)


def read_evidence(place: Path, url: str | None = None) -> Evidence:
    """Read an evidence directory, or the copy of one at a URL, whatever its manifest records.

    Raises:
        InputError: as ``load_evidence``, but for files that were changed.
    """
    kind = _kind(place)
    tables = {}
    for table in TABLES:
        path = place / f"{table}.parquet"
        if path.is_file():
            try:
                tables[table] = pq.read_table(path)
                # Arrow takes a file's word for UTF-8 and for offsets until it is asked.
                tables[table].validate(full=True)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise InputError("file", path, "a Parquet table", str(error)) from error
    record = _document(place / f"{kind}.json")
    return Evidence(place, kind, record, tables, _document(place / MANIFEST_FILE), url)


def _kind(place: Path) -> Kind:
    if place.name.endswith(TEMPORARY_SUFFIX):
        raise InputError("evidence", place, "a directory that was finished", "load_evidence")
    kinds: tuple[Kind, ...] = ("audit", "gate")
    for kind in kinds:
        if (place / f"{kind}.json").is_file():
            return kind
    expected = "a directory with audit.json or gate.json"
    raise InputError("evidence", place, expected, "load_evidence")


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = read_document(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("file", path, "a JSON document", str(error)) from error
    if not isinstance(document, dict):
        raise InputError("file", path, "a JSON object", "load_evidence")
    return document
