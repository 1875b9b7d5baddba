"""A bank of two batches and ten columns of the same size, to count what is read of it."""

from pathlib import Path

import numpy as np

from neartie.banks.bank import Header, RowBlock
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.open import open_bank
from neartie.banks.store import StoredBank
from neartie.banks.write import BATCH_ROWS, write_bank

EXPERTS = 32
ROWS = BATCH_ROWS + 900
COLUMNS = ["logits", *(f"extra{n}" for n in range(9))]


def write_wide(directory: Path, last_row: int = ROWS - 1) -> None:
    """A bank of two batches and ten columns of the same size."""
    rng = np.random.default_rng(0)
    rows = np.arange(ROWS, dtype=np.int32)
    rows[-1] = last_row
    columns = {n: rng.standard_normal((ROWS, EXPERTS)).astype(np.float32) for n in COLUMNS}
    block = RowBlock(
        0,
        ROWS,
        {"layer": rows * 0, "step": rows * 0, "row": rows, "rank": rows * 0 - 1},
        logits=columns.pop("logits"),
        extra=columns,
    )
    geometry = Geometry("wide", 8, 0, EXPERTS, 4)
    header = Header("wide", 0, geometry, ScoringRule(), "unspecified", "row", "logits", "")
    write_bank(directory, header, {"correction_bias": np.zeros(EXPERTS, np.float32)}, [block])


def total_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def open_stored(url: str) -> StoredBank:
    bank = open_bank(url)
    assert isinstance(bank, StoredBank)
    return bank


def flip(directory: Path, file: str, values: bytes) -> None:
    """Change one bit of known values of a file."""
    content = bytearray((directory / file).read_bytes())
    content[content.index(values)] ^= 1
    (directory / file).write_bytes(content)
