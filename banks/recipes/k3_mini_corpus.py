"""Text for the k3-mini recipe: any folder of text, by default the sources of Python itself."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ..bank import Array
from ..errors import InputError

END: Final = 256
"""The token between documents; the others are bytes."""
VOCABULARY: Final = 257

_HELD_OUT: Final = 4
"""One document of this many is kept from training, chosen by the digest of its text."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as bytes.

    Attributes:
        source: where they come from, in words.
        digest: sha256 of all of them.
        training: one stream of tokens, END between documents.
        held_out: documents that the model never sees in training, [token] each.
    """

    source: str
    digest: str
    training: Array
    held_out: tuple[Array, ...]


def default_paths() -> list[Path]:
    """Return the folder of Python's standard library: every machine that runs this has it."""
    return [Path(sysconfig.get_paths()["stdlib"])]


def read_corpus(paths: Sequence[Path], shortest: int) -> Corpus:
    """Return the text below some folders, equal documents once, split by document.

    Args:
        paths: folders, whose ``*.py``, ``*.txt``, ``*.md`` and ``*.rst`` files are read (installed
            packages are left out), or single files.
        shortest: bytes that a held-out document must have at least.

    Raises:
        InputError: a path that does not exist, or too little text.
    """
    documents: dict[str, bytes] = {}
    for path in paths:
        if not path.exists():
            raise InputError("text", str(path), "a file or folder", "k3-mini recipe")
        for file in _files(path):
            text = file.read_bytes()
            documents.setdefault(hashlib.sha256(text).hexdigest(), text)
    chosen = sorted(documents)
    held = [d for d in chosen if int(d[:8], 16) % _HELD_OUT == 0 and len(documents[d]) >= shortest]
    rest = [documents[d] for d in chosen if int(d[:8], 16) % _HELD_OUT != 0]
    if not held or not rest:
        got = f"{len(documents)} documents"
        raise InputError("text", got, f"some of {shortest} bytes or more", "k3-mini recipe")
    digest = hashlib.sha256("".join(chosen).encode()).hexdigest()
    names = ", ".join(path.name for path in paths)
    source = f"{len(documents):,} documents below {names}, {len(held):,} of them held out"
    held_out = tuple(_tokens(documents[d]) for d in held)
    return Corpus(source, digest, np.concatenate([_tokens(text) for text in rest]), held_out)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    kinds = ("*.py", "*.txt", "*.md", "*.rst")
    found = {file for kind in kinds for file in path.rglob(kind) if file.is_file()}
    return sorted(file for file in found if "site-packages" not in file.parts)


def _tokens(text: bytes) -> Array:
    """[token] int16, END first."""
    return np.concatenate([[END], np.frombuffer(text, np.uint8)]).astype(np.int16)
