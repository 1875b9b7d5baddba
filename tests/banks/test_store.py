from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.banks.bank import Bank, Header, RowBlock
from neartie.banks.errors import BankError, InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.schema import DTYPES
from neartie.banks.store import as_torch, open_directory
from neartie.banks.write import BATCH_ROWS, write_bank

Array = np.ndarray[Any, Any]


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def columns(block: RowBlock) -> dict[str, Array]:
    found = {f"key {name}": values for name, values in block.keys.items()}
    for name in ("hidden", "logits", "latent_partials", "latent_shards", "logits_shards"):
        if getattr(block, name) is not None:
            found[name] = getattr(block, name)
    for path, (ids, weights) in block.recorded.items():
        found[f"{path} ids"] = ids
        if weights is not None:
            found[f"{path} weights"] = weights
    return {**found, **block.extra}


def test_a_bank_read_back_has_identical_bits(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    digest = write_bank(tmp_path / "bank", header, weights, [block])
    bank = open_directory(tmp_path / "bank")
    read = bank.read(0, 5)
    expected = columns(block) | {"key unit": block.keys["doc"]}
    assert columns(read).keys() == expected.keys()
    for name, values in expected.items():
        assert same_bits(columns(read)[name], values), name
    for name, values in weights.items():
        assert same_bits(bank.weights[name], values)
    assert bank.header == replace(header, rows=5, digest=digest, provenance=bank.provenance)
    assert bank.provenance["anything"] == [1, "two", None]
    assert bank.digest == digest
    assert len(digest) == 64


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_twice_is_found_in_another_batch(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock, order: int
) -> None:
    zero = np.zeros(BATCH_ROWS + 1, np.int32)
    row = np.arange(BATCH_ROWS + 1, dtype=np.int32)[::order].copy()
    keys = {"layer": zero, "step": zero, "row": row, "rank": zero - 1}
    long = RowBlock(0, len(row), keys, logits=np.zeros((len(row), 6), np.float32))
    header = replace(header, stage="logits", independence_unit="row", recorded_widths={})
    weights = {"correction_bias": weights["correction_bias"]}
    write_bank(tmp_path / "good", header, weights, [long])
    row[BATCH_ROWS] = row[BATCH_ROWS - 1]
    with pytest.raises(BankError, match=rf"keys\[record {BATCH_ROWS}\]=.* twice"):
        write_bank(tmp_path / "bad", header, weights, [long])


@settings(max_examples=25)
@given(st.data())
def test_every_dtype_keeps_its_bits(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, 7))
    extra = {}
    for name, dtype in DTYPES.items():
        # Any bit pattern: NaN payloads, -0, infinities, subnormals.
        raw = data.draw(st.binary(min_size=rows * 3 * dtype.itemsize, max_size=None))
        extra[f"x_{name}"] = np.frombuffer(raw, dtype, rows * 3).reshape(rows, 3, 1)
    number = np.arange(rows, dtype=np.int64) * data.draw(st.sampled_from([1, -1, 2**40]))
    zero = np.zeros(rows, np.int32)
    block = RowBlock(
        0,
        rows,
        {"layer": zero, "step": zero, "row": number, "rank": zero - 1},
        logits=np.frombuffer(data.draw(st.binary(min_size=rows * 8)), "<f4", rows * 2).reshape(
            -1, 2
        ),
        extra=extra,
    )
    header = Header(
        "any", 0, Geometry("any", 1, 0, 2, 1), ScoringRule(), "lower_id", "row", "logits", ""
    )
    directory = tmp_path_factory.mktemp("bits") / "bank"
    bias = np.frombuffer(data.draw(st.binary(min_size=8)), "<f4", 2)
    write_bank(directory, header, {"correction_bias": bias}, [block])
    bank = open_directory(directory)
    start = data.draw(st.integers(0, rows - 1))
    read = bank.read(start, rows)
    assert read.logits is not None
    assert block.logits is not None
    assert same_bits(read.logits, block.logits[start:])
    assert same_bits(bank.weights["correction_bias"], bias)
    for name, values in extra.items():
        assert same_bits(read.extra[name], values[start:]), name
    assert list(read.keys["unit"]) == list(range(start, rows))


def ranked(stage: str, rows: int) -> tuple[Header, dict[str, Array], RowBlock]:
    rng = np.random.default_rng(0)
    header = Header(
        "ranked",
        0,
        Geometry("tiny", 8, 4, 6, 2),
        ScoringRule(),
        "unspecified",
        "row",
        "partials" if stage == "partials" else "shards",
        "",
        ranks=2,
    )
    zero = np.zeros(rows, np.int32)
    width = 4 if stage == "partials" else 2
    latent = rng.standard_normal((2, rows, width)).astype(ml_dtypes.bfloat16)
    block = RowBlock(
        0,
        rows,
        {"layer": zero, "step": zero, "row": np.arange(rows, dtype=np.int32), "rank": zero - 1},
        latent_partials=latent if stage == "partials" else None,
        latent_shards=latent if stage == "shards" else None,
        logits_shards=rng.standard_normal((2, rows, 3)).astype(np.float32),
    )
    return header, {"correction_bias": np.zeros(6, np.float32)}, block


@pytest.mark.parametrize("stage", ["partials", "shards"])
def test_pieces_of_ranks_come_back_rank_first(tmp_path: Path, stage: str) -> None:
    header, weights, block = ranked(stage, 9)
    write_bank(tmp_path / "bank", header, weights, [block])
    bank = open_directory(tmp_path / "bank")
    assert bank.ranks == 2
    read = columns(bank.read(3, 8))
    for name, values in columns(block).items():
        part = values[:, 3:8] if values.ndim == 3 else values[3:8]
        assert same_bits(read[name], part), name


def test_reads_across_batches_and_streams(
    tmp_path: Path,
    header: Header,
    weights: dict[str, Array],
    make_block: Callable[[int, int], RowBlock],
) -> None:
    blocks = [make_block(start, 700) for start in range(0, 9100, 700)]
    write_bank(tmp_path / "bank", header, weights, iter(blocks))
    bank = open_directory(tmp_path / "bank")
    assert bank.rows == 9100 > 2 * BATCH_ROWS
    hidden = np.concatenate([b.hidden for b in blocks if b.hidden is not None])
    for start, stop in ((0, 9100), (4095, 4097), (4096, 4097), (4200, 8400), (9099, 9100)):
        read = bank.read(start, stop)
        assert read.hidden is not None
        assert same_bits(read.hidden, hidden[start:stop])


def test_reading_inside_a_batch_copies_nothing(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    write_bank(tmp_path / "bank", header, weights, [block])
    bank = open_directory(tmp_path / "bank")
    first, second = bank.read(1, 4).hidden, bank.read(1, 4).hidden
    assert first is not None
    assert second is not None
    assert np.shares_memory(first, second)
    assert not first.flags.writeable


def test_torch_sees_the_same_memory(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    write_bank(tmp_path / "bank", header, weights, [block])
    bank = open_directory(tmp_path / "bank")
    hidden = bank.tensor("hidden")
    assert hidden.dtype == torch.bfloat16
    assert hidden.data_ptr() == bank.numpy("hidden").__array_interface__["data"][0]
    assert hidden.float().numpy().tobytes() == bank.numpy("hidden").astype("f4").tobytes()
    assert bank.tensor("correction_bias").dtype == torch.float32
    fp8 = np.arange(4, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert as_torch(fp8).dtype == torch.float8_e4m3fn
    with pytest.raises(BankError, match=r"tensor=nothing, but should be one of hidden"):
        bank.tensor("nothing")


def test_equal_content_has_an_equal_digest(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    first = write_bank(tmp_path / "a", header, weights, [block])
    second = write_bank(tmp_path / "b", header, weights, [block])
    weights["correction_bias"] = weights["correction_bias"] + np.float32(1)
    assert first == second != write_bank(tmp_path / "c", header, weights, [block])


def test_with_weights_changes_name_and_digest(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    write_bank(tmp_path / "bank", header, weights, [block])
    base: Bank = open_directory(tmp_path / "bank")
    master = np.ones((6, 8), np.float32)
    bank = base.with_weights(router_weight_master=master)
    assert bank.name == "tiny+router_weight_master"
    assert same_bits(bank.weights["router_weight_master"], master)
    assert same_bits(bank.weights["router_weight"], base.weights["router_weight"])
    assert "router_weight_master" not in base.weights
    other = base.with_weights(router_weight_master=master + 1)
    assert len({base.digest, bank.digest, other.digest}) == 3
    assert columns(bank.read(0, 2)).keys() == columns(base.read(0, 2)).keys()


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 6), (3, 3), (4, 2)])
def test_rows_outside_are_refused(
    tmp_path: Path,
    header: Header,
    weights: dict[str, Array],
    block: RowBlock,
    start: int,
    stop: int,
) -> None:
    write_bank(tmp_path / "bank", header, weights, [block])
    with pytest.raises(InputError, match=f"rows={start}:{stop}, but should be a part of 0:5"):
        open_directory(tmp_path / "bank").read(start, stop)


class TestInterrupted:
    def leftovers(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def test_an_error_on_the_way_leaves_nothing(
        self, tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
    ) -> None:
        def blocks() -> Iterator[RowBlock]:
            yield block
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_bank(tmp_path / "bank", header, weights, blocks())
        assert self.leftovers(tmp_path) == []

    def test_until_the_rename_there_is_no_bank(
        self,
        tmp_path: Path,
        header: Header,
        weights: dict[str, Array],
        block: RowBlock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refuse(self: Path, target: Path) -> Path:
            assert not target.exists()
            assert (self / "bank.json").is_file()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(BankError, match="No space left on device"):
            write_bank(tmp_path / "bank", header, weights, [block])
        assert self.leftovers(tmp_path) == []

    def test_a_taken_directory_is_refused_and_untouched(
        self, tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
    ) -> None:
        (tmp_path / "bank").mkdir()
        (tmp_path / "bank" / "mine").write_text("keep")
        with pytest.raises(BankError, match="should be new or empty"):
            write_bank(tmp_path / "bank", header, weights, [block])
        assert self.leftovers(tmp_path) == ["bank"]
        assert self.leftovers(tmp_path / "bank") == ["mine"]

    def test_an_empty_directory_is_filled(
        self, tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
    ) -> None:
        (tmp_path / "bank").mkdir()
        write_bank(tmp_path / "bank", header, weights, [block])
        assert self.leftovers(tmp_path) == ["bank"]
        assert open_directory(tmp_path / "bank").rows == 5

    def test_a_missing_parent_is_refused(
        self, tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
    ) -> None:
        with pytest.raises(BankError, match="should be an existing directory"):
            write_bank(tmp_path / "no" / "bank", header, weights, [block])

    @pytest.mark.parametrize("fault", ["no rows", "column", "dtype", "shape", "extra", "missing"])
    def test_blocks_that_do_not_fit(
        self,
        tmp_path: Path,
        header: Header,
        weights: dict[str, Array],
        block: RowBlock,
        fault: str,
    ) -> None:
        assert block.hidden is not None
        other = {
            "column": replace(block, extra={}),
            "dtype": replace(block, hidden=block.hidden.astype(np.float32)),
            "shape": replace(block, hidden=block.hidden[:, :7]),
            "extra": replace(block, extra={**block.extra, "more": block.hidden}),
        }
        blocks = [block, other[fault]] if fault in other else []
        message = {
            "no rows": "rows=0, but should be at least 1",
            "column": "column logits_recorded=absent, but should be as in the first block",
            "dtype": "column hidden=float32, but should be bfloat16",
            "shape": r"column hidden shape=\(5, 7\), but should be \(5, 8\)",
            "extra": "column more=present, but should be as in the first block",
            "missing": "tensors.correction_bias=nothing, but should be present",
        }[fault]
        if fault == "missing":
            del weights["correction_bias"]
            blocks = [block]
        with pytest.raises(BankError, match=message):
            write_bank(tmp_path / "bank", header, weights, blocks)
        assert self.leftovers(tmp_path) == []
