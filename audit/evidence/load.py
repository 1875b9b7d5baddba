"""Read an evidence directory back, as the records and tables that it was written from."""

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
    """Read an evidence directory; nothing is checked beyond what reading needs.

    Args:
        directory: a directory or URL. Evidence at a URL is copied into a temporary directory, which
            goes with the returned object.

    Raises:
        InputError: it is no evidence directory or was never finished, or a file of it cannot be
            read.
    """
    place = local_path(directory)
    if place is not None:
        return read_evidence(place)
    url = str(directory)
    with ExitStack() as stack:
        evidence = read_evidence(stack.enter_context(copy_of(url)), public_url(url))
        weakref.finalize(evidence, stack.pop_all().close)
    return evidence


def read_evidence(place: Path, url: str | None = None) -> Evidence:
    """Read an evidence directory, or the copy of one at a URL; as ``load_evidence``."""
    if place.name.endswith(TEMPORARY_SUFFIX):
        raise InputError("evidence", place, "a directory that was finished", "load_evidence")
    kinds: tuple[Kind, ...] = ("audit", "gate")
    kind: Kind | None = next((k for k in kinds if (place / f"{k}.json").is_file()), None)
    if kind is None:
        expected = "a directory with audit.json or gate.json"
        raise InputError("evidence", place, expected, "load_evidence")
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


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = read_document(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("file", path, "a JSON document", str(error)) from error
    if not isinstance(document, dict):
        raise InputError("file", path, "a JSON object", "load_evidence")
    return document
