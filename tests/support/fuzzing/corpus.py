"""Inputs that once were interesting, kept as files: whole, or as what was changed of a seed.

A JSON document says ``changed`` (whole files) or ``edits`` (a text replaced by another, which
outlives a seed that is made anew), and whether hashes are made again (``rehash``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from .readers import Files, Reader

CORPUS: Final = Path(__file__).resolve().parents[2] / "fuzz" / "corpus"


def save(reader: Reader, name: str, files: Files, directory: Path = CORPUS) -> Path:
    """Keep an input; one of several files as the files that differ from the nearest seed."""
    place = directory / reader.name
    place.mkdir(parents=True, exist_ok=True)
    if set(files) == {reader.file}:
        path = place / name
        path.write_bytes(files[reader.file])
        return path
    seeds = reader.seeds()
    distances = [sum(files.get(k) != content for k, content in seed.items()) for seed in seeds]
    number = distances.index(min(distances))
    seed = seeds[number]
    changed = {k: _text(v) for k, v in files.items() if seed.get(k) != v}
    document = {"seed": number, "changed": changed, "removed": sorted(set(seed) - set(files))}
    path = place / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def _text(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def load(reader: Reader, directory: Path = CORPUS) -> Iterator[tuple[str, Files]]:
    """Yield name and input of everything that is kept for a reader."""
    place = directory / reader.name
    single = set(reader.seeds()[0]) == {reader.file}
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if single:
            yield path.name, {reader.file: path.read_bytes()}
            continue
        document: Any = json.loads(path.read_text())
        files = dict(reader.seeds()[document["seed"]])
        for name, content in document.get("changed", {}).items():
            text = content.get("text")
            files[name] = base64.b64decode(content["base64"]) if text is None else text.encode()
        for edit in document.get("edits", ()):
            files[edit["file"]] = _edited(files[edit["file"]], edit, path)
        for name in document.get("removed", ()):
            files.pop(name, None)
        if document.get("rehash"):
            files = reader.rehash(files)
        yield path.name, files


def _edited(content: bytes, edit: Mapping[str, str], path: Path) -> bytes:
    """Content with a text replaced everywhere; bytes that are no UTF-8 are written as Latin-1."""
    old, new = (edit[word].encode("latin-1") for word in ("old", "new"))
    if old not in content:
        raise AssertionError(f"{path}: {edit['file']} of the seed does not hold {edit['old']!r}")
    return content.replace(old, new)
