"""Every way a bank can be bad is one error with file and field, and never a traceback."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from neartie.banks.bank import Header, RowBlock
from neartie.banks.errors import BankError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.manage import verify_bank
from neartie.banks.store import open_directory
from neartie.banks.write import BankWriter, write_bank

Array = np.ndarray[Any, Any]
Document = dict[str, Any]


@pytest.fixture
def bank(tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock) -> Path:
    write_bank(tmp_path / "bank", header, weights, [block])
    return tmp_path / "bank"


def edit(bank: Path, change: Callable[[Document], object]) -> None:
    document = json.loads((bank / "bank.json").read_text())
    change(document)
    (bank / "bank.json").write_text(json.dumps(document))


def message(bank: Path | str) -> str:
    with pytest.raises(BankError) as error:
        open_directory(bank)
    text = str(error.value)
    assert "\n" not in text
    return text


def put(*path: str, value: object) -> Callable[[Document], object]:
    def change(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[Document], object]:
    def change(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return change


HEADER_FAULTS: dict[str, tuple[Callable[[Document], object], str]] = {
    "newer version": (put("schema_version", value=2), "schema_version=2, but should be 1"),
    "version as text": (put("schema_version", value="1"), "schema_version=1, but should be 1"),
    "no version": (drop("schema_version"), "schema_version=None, but should be 1"),
    "true version": (put("schema_version", value=True), "schema_version=True, but should be 1"),
    "extra field": (put("hello", value=1), "hello=1, but should be absent (unknown field)"),
    "extra tensor field": (
        put("tensors", "hidden", "stride", value=1),
        "tensors.hidden.stride=1, but should be absent (unknown field)",
    ),
    "missing field": (drop("geometry", "top_k"), "geometry.top_k=nothing, but should be present"),
    "text for a number": (put("rows", value="5"), "rows='5', but should be integer"),
    "no rows": (put("rows", value=0), "rows=0, but should be greater than or equal to 1"),
    "stage": (put("stage", value="middle"), "stage='middle', but should be 'hidden', 'partials'"),
    "dtype": (
        put("tensors", "hidden", "dtype", value="bf17"),
        "tensors.hidden.dtype='bf17', but should be one of bfloat16, float8_e4m3fn",
    ),
    "wrong dtype": (
        put("tensors", "hidden", "dtype", value="float16"),
        "tensors.hidden.dtype=float16, but should be bfloat16",
    ),
    "wrong shape": (
        put("tensors", "router_weight", "shape", value=[8, 6]),
        "tensors.router_weight.shape=[8, 6], but should be [6, 8]",
    ),
    "negative axis": (
        put("tensors", "logits_recorded", "shape", value=[-6]),
        "tensors.logits_recorded.shape.0=-6, but should be greater than or equal to 1",
    ),
    "layout": (
        put("tensors", "hidden", "layout", value="partial"),
        "tensors.hidden.file='rows.arrow', but should be ranks.arrow",
    ),
    "geometry": (put("geometry", "top_k", value=7), "top_k=7, but should be 1..6"),
    "ranks": (put("ranks", value=2), "ranks=2, but should be null: nothing varies"),
    "ranks that do not divide": (
        put("ranks", value=3),
        "ranks=3, but should be a divisor of hidden 8",
    ),
    "unit": (put("independence_unit", value="book"), "independence_unit=book, but should be row"),
    "key": (drop("keys", "rank"), "keys=rank missing, but should be layer, step, row, rank"),
    "unit as key": (put("keys", "unit", value="int32"), "keys=unit, but should be no column"),
    "bias missing": (
        drop("tensors", "correction_bias"),
        "tensors.correction_bias=nothing, but should be present at stage hidden",
    ),
    "recorded without ids": (
        put("recorded", "third", value={"width": 1}),
        "tensors.recorded.third.ids=nothing, but should be present",
    ),
    "ids of nobody": (drop("recorded", "gpu"), "recorded.gpu=nothing, but should be present"),
    "width": (
        put("recorded", "gpu", "width", value=0),
        "recorded.gpu.width=0, but should be greater than or equal to 1",
    ),
    "file entry missing": (
        drop("files", "weights.arrow"),
        "files.weights.arrow=nothing, but should be present",
    ),
    "sha256": (
        put("files", "rows.arrow", "sha256", value="0"),
        "files.rows.arrow.sha256='0', but should be",
    ),
    "name of another kind": (
        put("files", "more.arrow", value={"bytes": 1, "sha256": "0" * 64}),
        "files='more.arrow', but should be rows.arrow, ranks.arrow or weights.arrow",
    ),
    "library versions": (
        put("provenance", "library_versions", value={"torch": 2}),
        "provenance.library_versions.torch=2, but should be string",
    ),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_header(bank: Path, fault: str) -> None:
    change, expected = HEADER_FAULTS[fault]
    edit(bank, change)
    text = message(bank)
    assert text.startswith(expected)
    assert text.endswith(f"[{bank / 'bank.json'}]")


@pytest.mark.parametrize(
    "name",
    ["../rows.arrow", "/etc/passwd", "a/b.arrow", "a\\b.arrow", "..", "", ".hidden", "bank.json"],
)
def test_a_file_name_that_leaves_the_bank(bank: Path, name: str) -> None:
    edit(bank, put("files", name, value={"bytes": 1, "sha256": "0" * 64}))
    assert message(bank) == (
        f"files={name!r}, but should be a plain name inside the bank [{bank / 'bank.json'}]"
    )


def test_a_tensor_file_that_leaves_the_bank(bank: Path) -> None:
    edit(bank, put("tensors", "hidden", "file", value="../rows.arrow"))
    assert message(bank).startswith("tensors.hidden.file='../rows.arrow', but should be rows.arrow")


def test_a_link_that_leaves_the_bank(bank: Path) -> None:
    (bank / "rows.arrow").rename(bank.parent / "elsewhere.arrow")
    (bank / "rows.arrow").symlink_to("../elsewhere.arrow")
    expected = f"file=a link to {bank.parent / 'elsewhere.arrow'}, but should be inside the bank"
    assert message(bank) == f"{expected} [{bank / 'rows.arrow'}]"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "document=Expecting value"),
        (b"{", "document=Expecting property name"),
        (b"\xff\xfe", "document="),
        (b"[]", "document=[], but should be"),
        (b'{"schema_version": 1, "rows": NaN}', "number=NaN, but should be finite"),
        (b'{"rows": 1, "rows": 2}', "field=rows twice, but should be each field once"),
        (b"[" * 100_000, "document="),
    ],
)
def test_no_json(bank: Path, content: bytes, expected: str) -> None:
    (bank / "bank.json").write_bytes(content)
    assert message(bank).startswith(expected)


@pytest.mark.parametrize("name", ["rows.arrow", "weights.arrow", "bank.json"])
def test_a_missing_file(bank: Path, name: str) -> None:
    (bank / name).unlink()
    assert message(bank) == f"file=nothing, but should be present [{bank / name}]"


@pytest.mark.parametrize("name", ["rows.arrow", "weights.arrow"])
def test_a_truncated_file(bank: Path, name: str) -> None:
    content = (bank / name).read_bytes()
    (bank / name).write_bytes(content[:-10])
    assert message(bank) == (
        f"bytes={len(content) - 10}, but should be {len(content)} as in bank.json [{bank / name}]"
    )


@pytest.mark.parametrize("name", ["rows.arrow", "weights.arrow"])
def test_an_edited_byte(bank: Path, name: str) -> None:
    content = bytearray((bank / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bank / name).write_bytes(content)
    text = message(bank)
    assert text.startswith(f"sha256={hashlib.sha256(content).hexdigest()}, but should be ")
    assert text.endswith(f"as in bank.json [{bank / name}]")
    with pytest.raises(BankError, match="sha256="):
        verify_bank(str(bank))


def accept(bank: Path, name: str) -> None:
    """Make bank.json agree with a changed file, as a careless tool would."""
    content = (bank / name).read_bytes()
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(bank, put("files", name, value=entry))


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.98])
def test_a_truncated_file_that_bank_json_agrees_with(bank: Path, keep: float) -> None:
    content = (bank / "rows.arrow").read_bytes()
    (bank / "rows.arrow").write_bytes(content[: int(len(content) * keep)])
    accept(bank, "rows.arrow")
    text = message(bank)
    assert text.startswith("file=")
    assert text.endswith(f"but should be a whole Arrow IPC file [{bank / 'rows.arrow'}]")


def rewrite(bank: Path, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    path = bank / "rows.arrow"
    with pa.OSFile(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    changed = change(batch)
    with pa.ipc.new_file(str(path), changed.schema) as sink:
        sink.write_batch(changed)
    accept(bank, "rows.arrow")


def replaced(
    name: str, values: pa.Array, nullable: bool = False
) -> Callable[[pa.RecordBatch], Any]:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        index = batch.schema.get_field_index(name)
        old = batch.schema.field(name)
        field = pa.field(name, values.type, nullable, old.metadata)
        return batch.set_column(index, field, values)

    return change


TABLE_FAULTS: dict[str, tuple[Callable[[pa.RecordBatch], pa.RecordBatch], str]] = {
    "row count": (lambda batch: batch.slice(0, 4), "rows=4, but should be 5"),
    "key column": (
        lambda batch: batch.drop_columns(["step"]),
        "column step=nothing, but should be present once",
    ),
    "another column": (
        lambda batch: batch.append_column("more", batch.column("row")),
        "column more=present, but should be absent",
    ),
    "key type": (
        replaced("row", pa.array(range(5), pa.int64())),
        "column row=int64, but should be int32",
    ),
    "nullable": (
        replaced("row", pa.array([0, 1, None, 3, 4], pa.int32()), nullable=True),
        "column row=int32 with nulls, but should be int32",
    ),
    "null": (
        replaced("row", pa.array([0, 1, None, 3, 4], pa.int32())),
        "column row=1 nulls, but should be none",
    ),
    "duplicate": (
        replaced("row", pa.array([0, 1, 1, 3, 4], pa.int32())),
        "keys[record",
    ),
    "metadata": (
        lambda batch: batch.replace_schema_metadata(None).cast(
            pa.schema(
                field.with_metadata({"dtype": "float16", "shape": "[8]"})
                if field.name == "hidden"
                else field
                for field in batch.schema
            )
        ),
        "column hidden metadata=",
    ),
}


@pytest.mark.parametrize("fault", TABLE_FAULTS)
def test_table(bank: Path, fault: str) -> None:
    change, expected = TABLE_FAULTS[fault]
    if fault == "duplicate":
        # Rows 1 and 2 are of different steps: give both the same.
        rewrite(bank, replaced("step", pa.array([0, 0, 0, 1, 2], pa.int32())))
    rewrite(bank, change)
    text = message(bank)
    assert text.startswith(expected)
    assert text.endswith(f"[{bank / 'rows.arrow'}]")
    if fault == "duplicate":
        assert text.startswith("keys[record 2]=layer 0, step 0, row 1, rank -1 twice")


@pytest.mark.parametrize(("name", "row"), [("router_weight", 4), ("latent_down_weight", 2)])
def test_nan_in_a_weight(
    tmp_path: Path,
    header: Header,
    weights: dict[str, Array],
    block: RowBlock,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    row: int,
) -> None:
    weights[name] = weights[name].copy()
    weights[name][row, 3] = np.nan
    expected = f"{name}[{row}]=a NaN or infinity, but should be finite [{tmp_path / 'bank'}/"
    with pytest.raises(BankError) as refused:
        write_bank(tmp_path / "bank", header, weights, [block])
    assert str(refused.value).startswith(expected)
    assert list(tmp_path.iterdir()) == []
    # A bank that another program wrote is refused as it is opened.
    monkeypatch.setattr(BankWriter, "_check_readable", lambda self: None)
    write_bank(tmp_path / "bank", header, weights, [block])
    assert message(tmp_path / "bank").startswith(expected)


def test_a_bias_may_be_infinite(
    tmp_path: Path, header: Header, weights: dict[str, Array], block: RowBlock
) -> None:
    weights["correction_bias"] = np.asarray([np.inf, -np.inf, np.nan, 0, 0, 0], np.float32)
    write_bank(tmp_path / "bank", header, weights, [block])
    assert open_directory(tmp_path / "bank").rows == 5


@pytest.mark.parametrize("fault", ["order", "row"])
def test_rank_records_must_match_the_rows(tmp_path: Path, fault: str) -> None:
    zero = np.zeros(3, np.int32)
    block = RowBlock(
        0,
        3,
        {"layer": zero, "step": zero, "row": np.arange(3, dtype=np.int32), "rank": zero - 1},
        logits_shards=np.zeros((2, 3, 2), np.float32),
    )
    geometry = Geometry("g", 2, 0, 4, 1)
    header = Header("x", 0, geometry, ScoringRule(), "unspecified", "row", "shards", "", ranks=2)
    bank = tmp_path / "bank"
    write_bank(bank, header, {"correction_bias": np.zeros(4, np.float32)}, [block])
    path = bank / "ranks.arrow"
    with pa.OSFile(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    name = "rank" if fault == "order" else "row"
    values = [1, 0, 0, 1, 0, 1] if fault == "order" else [0, 0, 1, 2, 2, 2]
    changed = replaced(name, pa.array(values, pa.int32()))(batch)
    with pa.ipc.new_file(str(path), changed.schema) as sink:
        sink.write_batch(changed)
    accept(bank, "ranks.arrow")
    expected = "rank[record 0]=1, but should be 0" if fault == "order" else "row[record 3]=2"
    assert message(bank).startswith(expected)


def test_hashes_of_a_large_bank_wait_for_verify(
    bank: Path, block: RowBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert block.hidden is not None
    content = bytearray((bank / "rows.arrow").read_bytes())
    content[content.index(block.hidden.tobytes())] ^= 1
    (bank / "rows.arrow").write_bytes(content)
    monkeypatch.setattr("neartie.banks.store.VERIFIED_AT_OPEN", 100)
    assert open_directory(bank).rows == 5
    with pytest.raises(BankError, match="sha256"):
        open_directory(bank, verify=True)
    with pytest.raises(BankError, match="sha256"):
        verify_bank(str(bank))


def test_a_url_that_cannot_be_opened() -> None:
    assert message("gopher://host/bank").startswith(
        "URL=gopher://host/bank, but should be one that"
    )


def test_a_url_without_a_bank() -> None:
    text = message("fsspec+memory://no-such-bank")
    assert text == ("file=nothing, but should be present [fsspec+memory://no-such-bank/bank.json]")


def test_a_directory_without_a_bank(tmp_path: Path) -> None:
    assert message(tmp_path).startswith("file=nothing, but should be present [")


def test_header_of_another_bank(bank: Path) -> None:
    edit(bank, put("geometry", "hidden", value=16))
    expected = "tensors.router_weight.shape=[6, 8], but should be [6, 16]"
    assert message(bank) == f"{expected} [{bank / 'bank.json'}]"
