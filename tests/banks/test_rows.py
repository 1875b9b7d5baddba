"""Banks made of the rows of others, and where they say that they come from."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_banks import Kind, assert_same_rows, write_random

from neartie.audit.cli import exit_status
from neartie.banks.bank import Bank
from neartie.banks.errors import BankError, InputError
from neartie.banks.manage import make_bank
from neartie.banks.merge import join_outputs, merge_rows
from neartie.banks.open import expand_banks, open_bank
from neartie.banks.row_filter import Condition, parse_ranges
from neartie.banks.rows import Selection, sample_rows, select_rows, split_rows
from neartie.banks.write import block_columns

Array = np.ndarray[Any, Any]
SPEC = "k3-mini/layer0"


def columns(bank: Bank) -> dict[str, Array]:
    return block_columns(bank.read(0, bank.rows))


def assert_rows(got: Bank, source: Bank, numbers: Any) -> None:
    for name, values in columns(source).items():
        axis = 1 if name in ("latent_partials", "latent_shards", "logits_shards") else 0
        assert columns(got)[name].tobytes() == np.take(values, numbers, axis).tobytes(), name
    assert {n: w.tobytes() for n, w in got.weights.items()} == {
        n: w.tobytes() for n, w in source.weights.items()
    }


def test_selected_rows_and_where_they_come_from(tmp_path: Path) -> None:
    source = open_bank(SPEC)
    selection = Selection(rows=[(10, 900)], steps=[(0, 30)], where="position % 2 == 1 or doc < 3")
    digest = select_rows(source, tmp_path / "some", selection)
    got = open_bank(tmp_path / "some")
    keys = source.read(0, source.rows).keys
    row = np.arange(source.rows)
    want = (row >= 10) & (row <= 900) & (keys["step"] <= 30)
    want &= (keys["position"] % 2 == 1) | (keys["doc"] < 3)
    assert_rows(got, source, np.flatnonzero(want))
    assert (got.name, got.digest) == ("some", digest)
    assert got.independence_unit == "doc"
    (made,) = got.provenance["derived"]
    assert made == {
        "operation": "select",
        "rows": [[10, 900]],
        "steps": [[0, 30]],
        "where": "position % 2 == 1 or doc < 3",
        "parents": [{"name": SPEC, "digest": source.digest, "rows": source.rows}],
    }
    assert got.provenance["model"] == source.provenance["model"]
    select_rows(got, tmp_path / "fewer", Selection(rows=[(0, 1)]))
    history = open_bank(tmp_path / "fewer").provenance["derived"]
    assert [step["parents"][0]["digest"] for step in history] == [source.digest, digest]


def test_pieces_of_ranks_stay_together(tmp_path: Path) -> None:
    write_random(Kind("shards", 9, 3), tmp_path / "bank")
    source = open_bank(tmp_path / "bank")
    select_rows(source, tmp_path / "some", Selection(where="row == 1"))
    assert_rows(open_bank(tmp_path / "some"), source, [1, 4, 7])
    with pytest.raises(InputError, match="ranks=given, but should be absent: the pieces of all 2"):
        select_rows(source, tmp_path / "one", Selection(ranks=[(0, 0)]))


def test_tensors_are_left_out(tmp_path: Path) -> None:
    write_random(Kind("hidden", 4, 3), tmp_path / "bank")
    source = open_bank(tmp_path / "bank")
    drop = ("recorded.gpu", "scaled", "latent_down_weight")
    with pytest.raises(InputError, match="drop=hidden, but should be one of correction_bias"):
        select_rows(source, tmp_path / "less", Selection(drop=("hidden",)))
    with pytest.raises(BankError, match=r"tensors.router_weight=nothing"):
        select_rows(source, tmp_path / "less", Selection(drop=("router_weight",)))
    select_rows(source, tmp_path / "less", Selection(drop=drop))
    got = open_bank(tmp_path / "less")
    assert set(got.recorded_widths) == {"other"}
    assert "scaled" not in columns(got)
    assert "latent_down_weight" not in got.weights


def test_no_row_is_no_bank(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="rows=0, but should be at least 1 that the selection"):
        select_rows(open_bank(SPEC), tmp_path / "none", Selection(layers=[(1, 9)]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "got"), [([(0, 2), (39, 40)], "39-40"), ([(40, 40)], "40"), ([(7, 1 << 70)], "7-")]
)
def test_a_row_beyond_the_bank_is_refused(
    rows: list[tuple[int, int]], got: str, tmp_path: Path
) -> None:
    bank = open_bank("near_tie:geometry=mini,rows=40,gap=1")
    with pytest.raises(InputError, match=rf"rows={got}.*, but should be 0\.\.39 \["):
        select_rows(bank, tmp_path / "none", Selection(rows=rows))
    assert not list(tmp_path.iterdir())


numbers = st.integers(-5, 12)
atoms = st.sampled_from(["row", "step", "doc"])
terms = st.one_of(
    atoms,
    numbers.map(lambda n: f"({n})"),
    st.tuples(atoms, st.sampled_from(["+", "-", "*"]), numbers).map(
        lambda t: f"({t[0]} {t[1]} ({t[2]}))"
    ),
    st.tuples(atoms, st.sampled_from(["%", "//"]), st.integers(1, 5)).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
)
comparisons = st.one_of(
    st.tuples(terms, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), terms).map(" ".join),
    st.tuples(terms, terms, terms).map(lambda t: f"{t[0]} < {t[1]} <= {t[2]}"),
    st.tuples(atoms, st.sampled_from(["in", "not in"]), st.lists(numbers, min_size=1)).map(
        lambda t: f"{t[0]} {t[1]} ({', '.join(map(str, t[2]))},)"
    ),
)
conditions = st.recursive(
    comparisons,
    lambda part: st.one_of(
        part.map(lambda text: f"not ({text})"),
        st.tuples(part, st.sampled_from([" and ", " or "]), part).map(
            lambda t: f"({t[0]}){t[1]}({t[2]})"
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(conditions, st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6))
def test_a_condition_is_what_python_says(text: str, rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows)
    keys = {name: table[:, place] for place, name in enumerate(("row", "step", "doc"))}
    want = [bool(eval(text, {"row": a, "step": b, "doc": c})) for a, b, c in rows]
    assert Condition(text, "x")(keys).tolist() == want


@pytest.mark.parametrize(
    "text",
    [
        "row", "1", "row + 1", "row = 1", "", "row ==", "row == 1.5", "row == 'a'", "row == True",
        "__import__('os').system('x') == 1", "row.real == 1", "row[0] == 1", "row == 1 if 1 else 2",
        "(lambda: 1)() == 1", "row ** 9 == 1", "row % 0 == 1", "row // (row - row) == 1",
        "row * row * 99999999 > 1",
        "row in doc", "row is 1", "row == 99999999999999999999", "(row := 1) == 1", "f'{row}' == 1",
        "[row for row in (1,)] == 1", "row == 1 " * 2000, "(" * 500 + "row == 1" + ")" * 500,
    ],
)  # fmt: skip
def test_texts_that_are_no_condition(text: str) -> None:
    keys = {"row": np.arange(3) << 30, "doc": np.arange(3)}
    with pytest.raises(InputError, match=r"^condition="):
        Condition(text, "x")(keys)


def test_a_name_that_is_no_key() -> None:
    with pytest.raises(InputError, match="key=token, but should be one of row"):
        Condition("token == 1", "x")({"row": np.arange(3)})


@pytest.mark.parametrize("text", ["", "1-", "-1", "3-1", "a", "1,,2", "1.5"])
def test_texts_that_are_no_ranges(text: str) -> None:
    with pytest.raises(InputError):
        parse_ranges(text, "rows")


def test_a_sample_is_told_by_its_seed(tmp_path: Path) -> None:
    source = open_bank(SPEC)
    digest = sample_rows(source, tmp_path / "a", 100, 7)
    first = open_bank(tmp_path / "a")
    (made,) = first.provenance["derived"]
    assert (made["operation"], made["rows"], made["seed"]) == ("sample", 100, 7)
    assert made["parents"][0]["digest"] == source.digest
    numbers = first.read(0, 100).keys["row"]
    assert len(set(numbers.tolist())) == 100
    assert (np.diff(numbers) > 0).all()
    assert_rows(first, source, numbers)
    # These rows, on any machine: the stream of raw bits is numpy's promise.
    assert numbers[:6].tolist() == [8, 16, 29, 34, 37, 48]
    assert sample_rows(source, tmp_path / "b", 100, 7, name="a") == digest
    assert sample_rows(source, tmp_path / "c", 100, 8, name="a") != digest
    for rows in (0, 1025):
        with pytest.raises(InputError, match=rf"rows={rows}, but should be 1\.\.1024"):
            sample_rows(source, tmp_path / "d", rows, 1)
    with pytest.raises(InputError, match="seed=-1"):
        sample_rows(source, tmp_path / "d", 1, -1)


def test_a_group_is_no_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = tmp_path / "glm"
    split_rows(open_bank("near_tie:gap=1,rows=30"), group, rows=10)
    first = sorted(path.name for path in group.iterdir())[0]
    out = str(tmp_path / "out")
    for words in (
        ["select", str(group), out],
        ["merge", str(group), out],
        ["at-logits", str(group), out],
        ["export", str(group), f"{out}.npz"],
    ):
        monkeypatch.setattr(sys, "argv", ["neartie", "bank", *words])
        assert exit_status() == 2
        told = f"bank=a group of 3 banks, but should be one of them, such as {group}/{first}"
        assert capsys.readouterr().err == f"neartie: {told} [{group}]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["glm"]


def test_every_row_is_as_likely(tmp_path: Path) -> None:
    """4,000 draws of 2 of 8 rows: each is drawn 1,000 times, give or take six deviations of 27."""
    write_random(Kind("logits", 8, 1, any_bits=False, launches=8), tmp_path / "bank")
    drawn = np.zeros(8, np.int64)
    for seed in range(4000):
        bits = np.random.Philox(key=seed).random_raw(8)
        drawn[np.argsort(bits, kind="stable")[:2]] += 1
    assert np.abs(drawn - 1000).max() < 6 * 27.4
    for seed in range(5):
        sample_rows(open_bank(tmp_path / "bank"), tmp_path / f"s{seed}", 2, seed)
        got = open_bank(tmp_path / f"s{seed}").read(0, 2).keys["row"].tolist()
        bits = np.random.Philox(key=seed).random_raw(8)
        assert got == sorted(np.argsort(bits, kind="stable")[:2].tolist())


@pytest.mark.parametrize("stage", ["hidden", "partials"])
def test_parts_merge_to_the_whole(stage: Any, tmp_path: Path) -> None:
    write_random(Kind(stage, 9, 2), tmp_path / "bank")
    source = open_bank(tmp_path / "bank")
    digests = split_rows(source, tmp_path / "parts", rows=4)
    parts = expand_banks([str(tmp_path / "parts")])
    assert [part.rows for part in parts] == [4, 4, 1]
    assert [part.name for part in parts] == ["parts/part0", "parts/part1", "parts/part2"]
    assert [part.digest for part in parts] == list(digests.values())
    merge_rows(parts, tmp_path / "whole")
    whole = open_bank(tmp_path / "whole")
    assert_same_rows(whole, source)
    (made,) = whole.provenance["derived"]
    assert [parent["digest"] for parent in made["parents"]] == list(digests.values())
    one = made["parents"][1]["provenance"]["derived"][0]
    assert (one["operation"], one["part"]) == ("split", "part1")
    assert one["parents"][0]["digest"] == source.digest


def test_a_bank_for_each_value_of_a_key(tmp_path: Path) -> None:
    write_random(Kind("hidden", 9, 3), tmp_path / "bank")
    source = open_bank(tmp_path / "bank")
    digests = split_rows(source, tmp_path / "rows", by="row")
    assert list(digests) == ["row0", "row1", "row2"]
    assert_rows(open_bank(tmp_path / "rows" / "row1"), source, [1, 4, 7])
    for by, rows in ((None, None), ("row", 3)):
        with pytest.raises(InputError, match="by and rows=both or neither"):
            split_rows(source, tmp_path / "x", by=by, rows=rows)
    with pytest.raises(InputError, match="by=unit, but should be one of layer, step, row"):
        split_rows(source, tmp_path / "x", by="unit")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "rows"]


def test_records_that_two_banks_have(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_random(Kind("logits", 4, 1, any_bits=False), tmp_path / name)
    banks = [open_bank(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(BankError, match="layer 3, step 0, row 0, rank -1 twice"):
        merge_rows(banks, tmp_path / "both")
    merge_rows(banks, tmp_path / "both", shift_steps=True)
    both = open_bank(tmp_path / "both").read(0, 8)
    assert both.keys["step"].tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    assert both.keys["doc"][:4].tolist() == both.keys["doc"][4:].tolist()
    with pytest.raises(InputError, match="banks=1, but should be at least 2"):
        merge_rows(banks[:1], tmp_path / "one")


def test_banks_that_do_not_belong_together(tmp_path: Path) -> None:
    make_bank("near_tie:gap=1,rows=4", tmp_path / "a")
    make_bank("gaussian:geometry=mini,rows=4", tmp_path / "b")
    a, b = (open_bank(tmp_path / name) for name in "ab")
    with pytest.raises(BankError, match="independence_unit=row, but should be none, as of"):
        merge_rows([a, b], tmp_path / "x")
    changed = a.with_weights(correction_bias=a.weights["correction_bias"] + np.float32(1))
    with pytest.raises(BankError, match="correction_bias=other bits, but should be the bits of"):
        merge_rows([a, changed], tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_outputs_beside_the_inputs_of_the_same_rows(tmp_path: Path) -> None:
    source = open_bank(SPEC)
    everything = tuple(f"recorded.{path}" for path in source.recorded_widths)
    select_rows(source, tmp_path / "inputs", Selection(drop=everything))
    inputs = open_bank(tmp_path / "inputs")
    sample_rows(source, tmp_path / "few", 50, 1)
    with pytest.raises(BankError, match=r"rows=none with layer 0, step 0, row 0.* each of inputs"):
        join_outputs([inputs, open_bank(tmp_path / "few")], tmp_path / "x")
    # In any order of rows: the second half of the outputs first.
    half = source.rows // 2
    select_rows(source, tmp_path / "low", Selection(rows=[(0, half - 1)]))
    select_rows(source, tmp_path / "high", Selection(rows=[(half, source.rows - 1)]))
    merge_rows([open_bank(tmp_path / "high"), open_bank(tmp_path / "low")], tmp_path / "turned")
    join_outputs([inputs, open_bank(tmp_path / "turned")], tmp_path / "joined")
    joined = open_bank(tmp_path / "joined")
    assert_same_rows(joined, source)
    assert joined.recorded_widths == source.recorded_widths
    assert joined.provenance["derived"][-1]["operation"] == "join"
    with pytest.raises(BankError, match=r"recorded.gpu=here too, but should be of one bank only"):
        join_outputs([source, joined], tmp_path / "x")
    with pytest.raises(BankError, match=r"row 1=layer 0 twice, but should be each once"):
        join_outputs([inputs, joined], tmp_path / "x", on=["layer"])
    with pytest.raises(InputError, match="key=moon, but should be one of layer"):
        join_outputs([inputs, joined], tmp_path / "x", on=["moon"])
    with pytest.raises(BankError, match="recorded=nothing, but should be outputs of a path"):
        join_outputs([joined, inputs], tmp_path / "x")
