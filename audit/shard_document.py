"""The document of a finished shard of an audit: written by a worker, read back without trust.

It is a pickle, because a shard's outcome is nested arrays and counters. A work directory may have
been written by somebody else, so only plain data is read from it: numpy arrays and the classes that
hold outcomes. Any other name in the document ends the read, see
https://docs.python.org/3/library/pickle.html#restricting-globals.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from .bank_outcome import ShardOutcome
from .engine.work_directory import read_document

_MAGIC: Final = b"neartie audit shard 1\n"
_DIGEST_BYTES: Final = 32
# Modules whose dataclasses and enumerations make up an outcome.
_OURS: Final = frozenset(
    f"{__package__}.{name}"
    for name in (
        "attribute",
        "bank_outcome",
        "error_groups",
        "finding_log",
        "hypotheses",
        "metrics.closeness",
        "metrics.exact_sum",
        "metrics.findings",
        "metrics.values",
        "metrics.worst_weight",
        "observed",
        "ranked",
        "tally",
        "value_table",
        "width_dependence",
    )
)
_OTHERS: Final = frozenset(
    {
        ("collections", "Counter"),
        ("ml_dtypes", "bfloat16"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.numeric", "_frombuffer"),
        # Where numpy before 2.0 has them.
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.numeric", "_frombuffer"),
    }
)


def shard_document(key: str, number: int, outcome: ShardOutcome) -> bytes:
    """Return the document of one shard.

    Args:
        key: names the audit's work, see ``BankWork.key``.
        number: the shard's.
        outcome: what its rows gave.
    """
    payload = pickle.dumps(outcome, protocol=5)
    return _MAGIC + _digest(key, number, payload) + payload


def read_shard(path: Path, key: str, number: int) -> ShardOutcome | None:
    """Return a finished shard's outcome; None where there is none of this work, whole.

    Raises:
        InputError: what lies there is no file, or cannot be read.
    """
    document = read_document(path)
    if document is None:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    digest, payload = document[len(_MAGIC) : start], document[start:]
    if not document.startswith(_MAGIC) or digest != _digest(key, number, payload):
        return None
    try:
        outcome = _Plain(io.BytesIO(payload)).load()
    except pickle.UnpicklingError:
        return None
    return outcome if isinstance(outcome, ShardOutcome) else None


def _digest(key: str, number: int, payload: bytes) -> bytes:
    return hashlib.sha256(f"{key} {number}\n".encode() + payload).digest()


class _Plain(pickle.Unpickler):
    """Reads data and nothing that could act."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed class.

        Raises:
            UnpicklingError: the document names anything else.
        """
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module in _OURS and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an outcome")
