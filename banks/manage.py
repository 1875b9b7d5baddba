"""What ``neartie bank info|verify|make`` do, as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from .bank import Bank, RowBlock
from .open import SHIPPED_BANKS, open_bank, shipped_directory
from .store import StoredBank, open_directory
from .write import write_bank

# Rows held at a time while a bank is copied or checked: 2,048 rows of K3 are 29 MB of hidden.
STEP: Final = 2048

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all)."""


def bank_info(bank: Bank) -> dict[str, Any]:
    """Return what is known of a bank as JSON values; reads no row of a stored bank."""
    return {
        "name": bank.name,
        "digest": bank.digest,
        "rows": bank.rows,
        "stage": bank.stage,
        "ranks": bank.ranks,
        "geometry": asdict(bank.geometry),
        "scoring": asdict(bank.scoring),
        "tie_contract": bank.tie_contract,
        "independence_unit": bank.independence_unit,
        "recorded": {name: {"width": w} for name, w in bank.recorded_widths.items()},
        "weights": {
            name: {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
            for name, tensor in bank.weights.items()
        },
        "provenance": dict(bank.provenance),
    }


def verify_bank(spec: str, progress: Progress | None = None) -> Bank:
    """Check every file of a bank against its digest, and read every row; return the bank.

    Raises:
        BankError: the first thing that is wrong, with file and field.
        InputError: as ``open_bank``.
    """
    if spec in SHIPPED_BANKS:
        bank: Bank = open_directory(shipped_directory(spec), verify=True)
        bank.spec = spec
    else:
        bank = open_bank(spec)
        if isinstance(bank, StoredBank):
            bank = open_directory(spec, verify=True)
    for _ in _blocks(bank, progress):
        pass
    return bank


def make_bank(spec: str, directory: str | Path, progress: Progress | None = None) -> str:
    """Write the bank that ``spec`` names into a directory and return its digest.

    Streams: memory holds a few thousand rows whatever the bank's size.

    Raises:
        BankError: the directory is not new or empty; nothing is left behind.
        InputError: as ``open_bank``.
    """
    bank = open_bank(spec)
    header = replace(bank.header, provenance=dict(bank.provenance))
    return write_bank(directory, header, bank.weights, _blocks(bank, progress))


def _blocks(bank: Bank, progress: Progress | None) -> Iterator[RowBlock]:
    for start in range(0, bank.rows, STEP):
        stop = min(start + STEP, bank.rows)
        yield bank.read(start, stop)
        if progress is not None:
            progress(stop, bank.rows)
