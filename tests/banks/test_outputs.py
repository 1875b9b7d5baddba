"""Reading single rows and outputs alone gives what reading whole rows gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neartie.banks.bank import Header, RowBlock
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.store import open_directory
from neartie.banks.write import write_bank


def test_single_rows_and_outputs(
    tmp_path: Path, header: Header, weights: Any, make_block: Callable[[int, int], RowBlock]
) -> None:
    whole = [make_block(0, 5000), make_block(5000, 4000)]
    write_bank(tmp_path / "bank", header, weights, whole)
    bank = open_directory(tmp_path / "bank")
    rows = np.array([0, 3, 4095, 4096, 6000, 8999])
    some = bank.read_rows(rows)
    outputs = bank.read_outputs(4000, 9000)
    bank.forget(0, 9000)
    everything = bank.read(0, 9000)
    assert some.rows == 6
    for name, values in everything.keys.items():
        assert (some.keys[name] == values[rows]).all()
        assert (outputs.keys[name] == values[4000:]).all()
    assert everything.hidden is not None
    assert some.hidden is not None
    assert (some.hidden.view(np.uint16) == everything.hidden.view(np.uint16)[rows]).all()
    for path, pair in everything.recorded.items():
        for part, array in enumerate(pair):
            mine: Any = some.recorded[path][part]
            theirs: Any = outputs.recorded[path][part]
            assert array is None or np.array_equal(mine, array[rows])
            assert array is None or np.array_equal(theirs, array[4000:])
    assert outputs.hidden is None
    assert (some.extra["logits_recorded"] == everything.extra["logits_recorded"][rows]).all()
    with pytest.raises(InputError, match="ascending"):
        bank.read_rows(np.array([3, 2]))


def test_generated_banks_read_single_rows() -> None:
    bank = open_bank("normal:geometry=k2,rows=100")
    whole, some = bank.read(0, 100), bank.read_rows(np.array([4, 4, 99]))
    assert whole.logits is not None
    assert some.logits is not None
    assert (some.logits == whole.logits[[4, 4, 99]]).all()
    assert bank.read_outputs(0, 3).logits is None
