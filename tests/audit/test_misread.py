"""Layouts and strides that explain what a path shows or selects."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.misread import misread_by_select, misread_shown, readings, repeated_rows
from neartie.banks.open import open_bank
from neartie.kernels.reference import reference_select

WIDTH, RANKS = 8, 4
BANK = open_bank("gaussian:geometry=16x0x64x4,rows=20,stage=logits,seed=2")
LOGITS: Any = BANK.read(0, 20).logits
BIAS = BANK.weights["correction_bias"]


def misread(read: Any) -> npt.NDArray[np.float32]:
    """20 rows in launches of 8, each read as ``read`` has it; the last is filled with rows 0.."""
    index = np.arange(24) % 20
    launches = [read(LOGITS[index[start : start + WIDTH]]) for start in (0, 8, 16)]
    return np.concatenate(launches)[:20]


def rank_major(launch: npt.NDArray[Any]) -> npt.NDArray[Any]:
    shards = launch.reshape(len(launch), RANKS, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(shards).reshape(launch.shape)


def padded(pad: int, filling: float) -> Any:
    def read(launch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows, experts = launch.shape
        buffer = np.full((rows, experts + pad), filling, np.float32)
        buffer[:, :experts] = launch
        return buffer.ravel()[: rows * experts].reshape(rows, experts)

    return read


def ids_of(logits: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    return reference_select(np.ascontiguousarray(logits), BIAS, BANK.geometry, BANK.scoring).ids


CASES = [
    (rank_major, "layout_permutation", "rank-major logits are read as row-major"),
    (padded(8, 0.0), "stride", "rows of stride 72 are read with stride 64"),
    (padded(3, -np.inf), "stride", "rows of stride 67 are read with stride 64"),
]


@pytest.mark.parametrize(
    ("read", "finding", "text"), CASES, ids=["rank_major", "padded-8", "padded-3"]
)
def test_a_reading_is_named_from_logits_and_from_ids(read: Any, finding: str, text: str) -> None:
    seen = misread(read)
    shown = misread_shown(LOGITS, seen, WIDTH, RANKS)
    assert shown is not None
    assert (str(shown.finding), shown.text) == (finding, text)
    chosen = misread_by_select(BANK, LOGITS, BIAS, ids_of(seen), WIDTH, RANKS)
    assert chosen is not None
    assert (str(chosen.finding), chosen.text) == (finding, text)


def test_padding_may_hold_anything_where_logits_are_shown() -> None:
    shown = misread_shown(LOGITS, misread(padded(16, np.nan)), WIDTH, RANKS)
    assert shown is not None
    assert shown.text == "rows of stride 80 are read with stride 64"


def test_right_logits_and_other_faults_are_no_misreading() -> None:
    assert misread_shown(LOGITS, LOGITS, WIDTH, RANKS) is None
    assert misread_shown(LOGITS, LOGITS + np.float32(1e-4), WIDTH, RANKS) is None
    assert misread_by_select(BANK, LOGITS, BIAS, ids_of(LOGITS), WIDTH, RANKS) is None
    # One row in twenty that does not fit refutes a layout.
    ids = ids_of(misread(rank_major))
    ids[5] = ids_of(LOGITS)[5]
    assert misread_by_select(BANK, LOGITS, BIAS, ids, WIDTH, RANKS) is None


def test_one_row_has_shards_but_no_other_row() -> None:
    assert {str(r.finding) for r in readings(LOGITS[:1], RANKS)} == {"layout_permutation"}
    assert list(readings(LOGITS[:1], 1)) == []


def test_rows_that_are_read_twice_are_told_and_rows_that_trade_places_are_not() -> None:
    seen = LOGITS.copy()
    seen[4:8] = LOGITS[0:4]
    moved, text = repeated_rows(LOGITS, seen, WIDTH)
    assert np.flatnonzero(moved).tolist() == [4, 5, 6, 7]
    assert text == "row 4 of a launch holds the logits of its row 0"
    seen = LOGITS.copy()
    seen[[1, 2]] = LOGITS[[2, 1]]
    assert not repeated_rows(LOGITS, seen, WIDTH)[0].any()
    # Rows that are equal anyway repeat nothing.
    assert not repeated_rows(LOGITS[[0, 0, 1]], LOGITS[[0, 0, 1]], WIDTH)[0].any()


def test_a_stride_is_not_taken_for_an_unwritten_tail() -> None:
    """Every row after the first is wrong: the layout says why, the place says nothing."""
    select = neartie.make_path("route:select=standalone")

    def strided(launch: Any, out: Any) -> None:
        from dataclasses import replace

        from neartie.kernels.contract import Routed

        wrong = padded(8, 0.0)(launch.logits)
        select.run(replace(launch, logits=wrong), Routed(out.ids, out.weights))

    result = neartie.run_audit(
        "gaussian:geometry=16x0x64x4,rows=24,stage=logits,seed=2",
        baseline="general:select=standalone",
        candidate=WrappedPath(strided, "route:select=standalone", batches_launches=False),
        rows=[WIDTH],
        ranks=1,
        gate=False,
    )
    codes = {r["code"] for r in result.record["verdict"]["reasons"] if r["state"] == "FAIL"}
    assert "stride" in codes
    assert "unwritten_rows" not in codes
