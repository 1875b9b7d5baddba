"""The rows of a bank once more, starting at a later stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from .bank import Array, Bank, RowBlock
from .derived import derived_header
from .errors import InputError
from .interchange import steps
from .write import write_bank

LOGITS: Final = "logits_recorded"
"""The logits that a gate returned for its hidden rows."""
HIDDEN: Final = "hidden_recorded"


def at_logits(bank: Bank, directory: str | Path, name: str | None = None) -> str:
    """Write a bank of the same rows that starts at their recorded logits; return its digest.

    A bank that starts at the hidden rows asks what the whole front does, and its reference has
    exact logits. One that starts at the logits asks what was made of the logits that the gate had,
    however these were rounded: [row, expert] BF16 or FP16, widened to float32, or float32 as they
    are. The hidden rows stay as ``hidden_recorded``.

    Args:
        bank: starts at the hidden rows and has ``logits_recorded``, as ``record`` writes it.
        directory: a new or empty directory.
        name: the new bank's; None takes the directory's.

    Raises:
        InputError: another stage, or no recorded logits of a type that float32 holds.
        BankError: the directory is taken. Nothing is left behind.
    """
    if bank.stage != "hidden":
        raise InputError("stage", bank.stage, "hidden", bank.name)
    extra = bank.read(0, 1).extra
    logits, experts = extra.get(LOGITS), bank.geometry.experts
    if logits is None:
        raise InputError(LOGITS, "nothing", "recorded beside the hidden rows", bank.name)
    narrow = logits.dtype == np.float32 or logits.dtype.itemsize <= 2
    if not narrow or logits.shape[1:] != (experts,):
        got = f"{logits.dtype}{list(logits.shape[1:])}"
        raise InputError(LOGITS, got, f"float32[{experts}] or narrower", bank.name)
    if HIDDEN in extra:
        raise InputError(HIDDEN, "present", "absent: the hidden rows take its place", bank.name)
    made = {"operation": "at_logits", "logits": f"{LOGITS}, {logits.dtype}"}
    header = replace(derived_header(bank, directory, name, made), stage="logits")
    return write_bank(directory, header, bank.weights, _blocks(bank))


def _blocks(bank: Bank) -> Iterator[RowBlock]:
    for start, stop in steps(bank.rows):
        block = bank.read(start, stop)
        extra: dict[str, Array] = dict(block.extra)
        logits = extra.pop(LOGITS).astype(np.float32)
        assert block.hidden is not None
        extra[HIDDEN] = block.hidden
        yield replace(block, hidden=None, logits=logits, extra=extra)
