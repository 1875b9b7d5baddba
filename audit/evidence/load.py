"""Read an evidence directory back, as the records and tables that it was written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...banks.errors import InputError
from .manifest import MANIFEST_FILE, TEMPORARY_SUFFIX, Kind, read_document

TABLES = ("swaps", "values", "histograms")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an evidence directory holds.

    Attributes:
        directory: where it lies.
        kind: ``audit`` or ``gate``, by its record ``audit.json`` or ``gate.json``.
        record: that file's content.
        tables: by name, of ``TABLES``; a gate has no ``values``.
        manifest: content of ``manifest.json``.
    """

    directory: Path
    kind: Kind
    record: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    manifest: Mapping[str, Any]


def load_evidence(directory: str | Path) -> Evidence:
    """Read an evidence directory; nothing is checked beyond what reading needs.

    Raises:
        InputError: it is no evidence directory or was never finished, or a file of it cannot be
            read.
    """
    place = Path(directory)
    if place.name.endswith(TEMPORARY_SUFFIX):
        raise InputError("evidence", place, "a directory that was finished", "load_evidence")
    kinds: tuple[Kind, ...] = ("audit", "gate")
    kind: Kind | None = next((k for k in kinds if (place / f"{k}.json").is_file()), None)
    if kind is None:
        expected = "a directory with audit.json or gate.json"
        raise InputError("evidence", place, expected, "load_evidence")
    tables = {}
    for name in TABLES:
        path = place / f"{name}.parquet"
        if path.is_file():
            try:
                tables[name] = pq.read_table(path)
                # Arrow takes a file's word for UTF-8 and for offsets until it is asked.
                tables[name].validate(full=True)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise InputError("file", path, "a Parquet table", str(error)) from error
    record = _document(place / f"{kind}.json")
    return Evidence(place, kind, record, tables, _document(place / MANIFEST_FILE))


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = read_document(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("file", path, "a JSON document", str(error)) from error
    if not isinstance(document, dict):
        raise InputError("file", path, "a JSON object", "load_evidence")
    return document
