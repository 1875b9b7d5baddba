"""Files as others write them: numpy, pyarrow, torch and spreadsheets; and files that are bad."""

import csv
import io
import json
import math
import os
import pickle
import threading
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file

from neartie.banks.errors import BankError
from neartie.banks.formats import export_bank, import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading, Recording
from neartie.banks.open import open_bank

Array = np.ndarray[Any, Any]
ROWS, EXPERTS = 11, 6
RNG = np.random.default_rng(4)
LOGITS = RNG.standard_normal((ROWS, EXPERTS)).astype(np.float32)
BIAS = RNG.standard_normal(EXPERTS).astype(np.float32)
IDS = np.argsort(LOGITS, axis=1)[:, ::-1][:, :2].copy()
STEP = np.arange(ROWS) // 4
HIDDEN = RNG.standard_normal((ROWS, 8)).astype(ml_dtypes.bfloat16)
GATE = RNG.standard_normal((EXPERTS, 8)).astype(ml_dtypes.bfloat16)


def logits_of(place: Path) -> None:
    bank = open_bank(place)
    block = bank.read(0, bank.rows)
    assert bank.stage == "logits"
    assert block.logits is not None
    assert block.logits.tobytes() == LOGITS.tobytes()
    assert block.recorded["gpu"][0].tobytes() == IDS.astype(np.int32).tobytes()
    assert bank.weights["correction_bias"].tobytes() == BIAS.tobytes()
    assert block.keys["step"].tolist() == STEP.tolist()
    g = bank.geometry
    assert (g.hidden, g.experts, g.top_k) == (0, EXPERTS, 2)


def test_numpy_writes_bf16_without_its_name(tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "layer7.npz",
        hidden=HIDDEN, router_weight=GATE.T.copy().T, correction_bias=BIAS, topk_ids=IDS,
    )  # fmt: skip
    import_files([tmp_path / "layer7.npz"], tmp_path / "bank")
    bank = open_bank(tmp_path / "bank")
    block = bank.read(0, ROWS)
    assert block.hidden is not None
    assert block.hidden.tobytes() == HIDDEN.tobytes()
    # It was in Fortran's order in the file.
    assert bank.weights["router_weight"].tobytes() == GATE.tobytes()
    assert set(block.keys["layer"].tolist()) == {7}


def test_lists_and_fixed_lists_of_parquet(tmp_path: Path) -> None:
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(LOGITS.reshape(-1)), EXPERTS)
    table = pa.table(
        {"router_logits": fixed, "topk_ids": pa.array(IDS.tolist()), "step": pa.array(STEP)}
    )
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=3)
    save_file({"routing_bias": BIAS}, tmp_path / "bias.safetensors")
    files = [tmp_path / "rows.parquet", tmp_path / "bias.safetensors"]
    import_files(files, tmp_path / "bank")
    logits_of(tmp_path / "bank")


def test_a_state_dict_beside_rows(tmp_path: Path) -> None:
    state = OrderedDict(
        {
            "model.layers.3.mlp.gate.e_score_correction_bias": torch.from_numpy(BIAS.copy()),
            "model.layers.3.mlp.gate.weight": torch.zeros(EXPERTS, 8, dtype=torch.bfloat16).T,
            "epoch": 3,
        }
    )
    torch.save(state, tmp_path / "model.bin")
    rows = {
        "logits": torch.from_numpy(np.ascontiguousarray(LOGITS.T)).T,
        "nested": {"ids": torch.from_numpy(IDS), "step": torch.from_numpy(STEP)},
    }
    torch.save(rows, tmp_path / "rows.pt")
    names = {
        "correction_bias": "model.layers.3.mlp.gate.e_score_correction_bias",
        "recorded.gpu.ids": "nested.ids",
        "step": "nested.step",
    }
    reading = Reading(names)
    import_files([tmp_path / "rows.pt", tmp_path / "model.bin"], tmp_path / "bank", reading=reading)
    logits_of(tmp_path / "bank")


def test_a_file_of_torch_before_1_6(tmp_path: Path) -> None:
    rows = {"logits": torch.from_numpy(LOGITS), "topk_ids": torch.from_numpy(IDS),
            "step": torch.from_numpy(STEP), "correction_bias": torch.from_numpy(BIAS)}  # fmt: skip
    torch.save(rows, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    import_files([tmp_path / "old.pt"], tmp_path / "bank")
    logits_of(tmp_path / "bank")


def write_csv(path: Path, columns: dict[str, Array]) -> None:
    names = [
        n if c.ndim == 1 else f"{n}[{i}]"
        for n, c in columns.items()
        for i in range(1 if c.ndim == 1 else c.shape[1])
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in range(len(next(iter(columns.values())))):
            writer.writerow([v for c in columns.values() for v in np.atleast_1d(c[row]).tolist()])


def test_a_spreadsheet(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", {"step": STEP, "logits": LOGITS, "topk_ids": IDS})
    write_csv(tmp_path / "bias.csv", {"correction_bias": BIAS})
    import_files([tmp_path / "rows.csv", tmp_path / "bias.csv"], tmp_path / "bank")
    logits_of(tmp_path / "bank")


def test_a_decimal_number_that_is_no_bf16(tmp_path: Path) -> None:
    wide = HIDDEN.astype(np.float64)
    write_csv(tmp_path / "rows.csv", {"hidden": wide})
    save_file({"router_weight": GATE, "correction_bias": BIAS}, tmp_path / "weights.safetensors")
    files = [tmp_path / "rows.csv", tmp_path / "weights.safetensors"]
    reading = Reading(geometry=Geometry("mine", 8, 0, EXPERTS, 2))
    import_files(files, tmp_path / "bank", reading=reading)
    hidden = open_bank(tmp_path / "bank").read(0, ROWS).hidden
    assert hidden is not None
    assert hidden.tobytes() == HIDDEN.tobytes()
    wide[5, 2] = 0.1
    write_csv(tmp_path / "rows.csv", {"hidden": wide})
    with pytest.raises(BankError, match=r"tensor hidden\[5, 2\]=0.1, but should be a bfloat16 "):
        import_files(files, tmp_path / "other", reading=reading)


def test_two_files_with_one_tensor(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file({"logits": LOGITS}, tmp_path / f"{name}.safetensors")
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    with pytest.raises(BankError, match=r"tensor logits=here too, but should be only in .*a\.saf"):
        import_files(files, tmp_path / "bank")


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code(zipped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "evil.pt"
    held = {"logits": torch.from_numpy(LOGITS), "extra": Evil(mark)}
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BankError) as error:
        import_files([path], tmp_path / "bank")
    assert "but should be tensors, numbers and text" in str(error.value)
    assert str(error.value).startswith("file=an object of ")
    assert "\n" not in str(error.value)
    assert not mark.exists()
    assert not (tmp_path / "bank").exists()
    # The file does what it is feared for, once somebody trusts it.
    torch.load(path, weights_only=False)
    assert mark.exists()


def test_arrays_that_numpy_would_unpickle(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "evil.npz"
    np.savez(path, logits=LOGITS, extra=np.array([Evil(mark)], dtype=object))
    with pytest.raises(BankError, match=r"tensor extra dtype=object, but should be numbers: Pyt"):
        import_files([path], tmp_path / "bank")
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as held:
        assert held["extra"].shape == (1,)
    assert mark.exists()


def test_numpy_arrays_in_a_file_of_torch(tmp_path: Path) -> None:
    torch.save({"routed": IDS}, tmp_path / "rollout.pt")
    with pytest.raises(BankError, match=r"file=an object of numpy\S*_reconstruct, but should be"):
        import_files([tmp_path / "rollout.pt"], tmp_path / "bank")


@pytest.mark.parametrize("name", ["safetensors", "npz", "parquet", "torch"])
def test_a_file_that_was_cut_off_or_changed(name: str, tmp_path: Path) -> None:
    suffix = {"safetensors": "safetensors", "npz": "npz", "parquet": "parquet", "torch": "pt"}[name]
    target = tmp_path / f"rows.{suffix}"
    export_bank("near_tie:gap=1,rows=40", tmp_path / "out", format=name)
    whole = tmp_path / "out"
    if whole.is_dir():
        whole = whole / "rows.parquet"
    data = whole.read_bytes()
    for place in (0, 7, len(data) // 3, len(data) - 40):
        target.write_bytes(data[:place])
        with pytest.raises(BankError) as error:
            import_files([target], tmp_path / "bank", format=name)
        assert str(error.value).endswith(f"rows.{suffix}]"), place
    assert not (tmp_path / "bank").exists()


def test_a_member_that_is_not_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, logits=LOGITS, correction_bias=BIAS, topk_ids=IDS)
    data = bytearray(path.read_bytes())
    at = bytes(data).index(LOGITS.tobytes())
    data[at + 9] ^= 1
    path.write_bytes(data)
    with pytest.raises(BankError, match=r"tensor logits=Bad CRC-32 .*but should be readable"):
        import_files([path], tmp_path / "bank")


def test_a_member_that_claims_more_than_it_has(tmp_path: Path) -> None:
    """Sizes are checked against the file before memory is taken for them."""
    path = tmp_path / "rows.npz"
    buffer = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 6)}
    np.lib.format.write_array_header_1_0(buffer, shape)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("logits.npy", buffer.getvalue() + b"\0" * 96)
    with pytest.raises(BankError, match="tensor logits bytes=224, but should be 263882790"):
        import_files([path], tmp_path / "bank")


FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([[1.0, 2.0], None], FLOATS),
            "column logits=1 nulls, but should be none",
        ),
        (
            pa.array([[1.0, 2.0], [1.0]], FLOATS),
            "column logits=lists of 1 to 2, but should be lists of 2",
        ),
        (pa.array(["a", "b"]), "column logits type=string, but should be numbers"),
    ],
)
def test_columns_of_parquet_that_are_no_tensor(column: Any, message: str, tmp_path: Path) -> None:
    table = pa.table({"logits": column})
    pq.write_table(table, tmp_path / "rows.parquet")
    reading = Reading(geometry=Geometry("mine", 0, 0, 2, 1))
    with pytest.raises(BankError, match=message):
        import_files([tmp_path / "rows.parquet"], tmp_path / "bank", reading=reading,
                     recording=Recording(zero_bias=True))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logits[0],logits[1]\n1,2\n3\n", r"columns=1, but should be 2 .*rows.csv, line 3"),
        (
            "logits[0],logits[1]\n1,2\n3,x\n",
            r"number='x', but .* decimal number .*line 3, column 2",
        ),
        (
            "logits[0],logits[1]\n1.5,2\n3,-1e400\n",
            r"number='-1e400', but should be a number that float64 .*line 3, column 2",
        ),
        (
            "logits[0],logits[1]\n1.5,1e39\n",
            r"tensor logits\[0, 1\]=1e\+39, but should be a float32",
        ),
        ("logits[0],logits[2]\n1,2\n", r"columns of logits=2 of logits\[3\], but should be each"),
        ("logits[0],logits[0]\n1,2\n", r"column logits\[0\]=there twice"),
        ("logits[0],logits[1]\n", "lines=0, but should be a line of names and at least one"),
        ('logits[0],logits[1]\n"1,2\n', "but should be a line of a CSV file"),
    ],
)
def test_bad_lines(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    reading = Reading(geometry=Geometry("mine", 0, 0, 2, 1))
    with pytest.raises(BankError, match=message):
        import_files([tmp_path / "rows.csv"], tmp_path / "bank", reading=reading,
                     recording=Recording(zero_bias=True))  # fmt: skip


def test_a_number_that_is_written_as_infinite_stays_so(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("logits[0],logits[1]\n1.5,-inf\nInfinity,0\n")
    reading = Reading(geometry=Geometry("mine", 0, 0, 2, 1))
    import_files([tmp_path / "rows.csv"], tmp_path / "bank", reading=reading,
                 recording=Recording(zero_bias=True))  # fmt: skip
    logits = open_bank(tmp_path / "bank").read(0, 2).logits
    assert logits is not None
    assert logits.tolist() == [[1.5, -math.inf], [math.inf, 0.0]]


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_plain_pickle_is_one_error(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "raw.pt"
    path.write_bytes(pickle.dumps({"logits": Evil(tmp_path / "mark")}, protocol))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(BankError, match="but should be tensors, numbers and text"):
            import_files([path], tmp_path / "bank")
        path.write_bytes(b"hello world")
        with pytest.raises(BankError, match="file=something else, but should be a file of torch"):
            import_files([path], tmp_path / "bank")
    assert not told
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("made", "given", "format_"),
    [
        *((f"rows.{end}", f"rows.{end}", None) for end in ("csv", "npz", "safetensors", "parquet")),
        ("rows.pt", "rows.pt", None),
        ("held/rows.csv", "held", "csv"),
        ("held/name=x___step=0___rank=0___dump_index=0.pt", "held", "sglang"),
        ("held/workloads/a.jsonl", "held", "flashinfer-bench"),
    ],
)
def test_a_pipe_is_refused(made: str, given: str, format_: str | None, tmp_path: Path) -> None:
    pipe = tmp_path / made
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    caught: list[BankError] = []

    def work() -> None:
        try:
            import_files([tmp_path / given], tmp_path / "bank", format=format_)
        except BankError as error:
            caught.append(error)

    # A daemon: whoever opens a pipe that nobody writes to waits for ever.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "file=a pipe, device or socket, but should be a regular file" in str(caught[0])
    assert str(pipe) in str(caught[0])


def test_a_header_that_lies(tmp_path: Path) -> None:
    export_bank("near_tie:gap=1,rows=40", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as held:
        arrays = dict(held)
    header = json.loads(arrays["neartie"].tobytes())
    lies: list[tuple[Any, str]] = [
        ({**header, "rows": 41}, r"tensor layer shape=\[40\], but should be \[41\]"),
        (
            {**header, "geometry": {**header["geometry"], "experts": 64}},
            "tensors.correction_bias.shape",
        ),
        ({**header, "tensors": {}}, r"files.weights.arrow=nothing, but should be present"),
        ({**header, "tensors": 3}, "tensors=3, but should be"),
        ({**header, "independence_unit": "moon"}, "independence_unit=moon, but should be row"),
        ([], "header=list, but should be a JSON object"),
    ]
    for lie, message in lies:
        arrays["neartie"] = np.frombuffer(json.dumps(lie).encode(), np.uint8)
        np.savez(tmp_path / "b.npz", **arrays)
        with pytest.raises(BankError, match=message):
            import_files([tmp_path / "b.npz"], tmp_path / "bank")
    arrays["neartie"] = np.frombuffer(pickle.dumps(header), np.uint8)
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(BankError, match=r"header=.*but should be JSON"):
        import_files([tmp_path / "b.npz"], tmp_path / "bank")


def test_one_layer_has_one_set_of_weights(tmp_path: Path) -> None:
    layers = np.arange(ROWS) % 2
    np.savez(tmp_path / "a.npz", logits=LOGITS, correction_bias=BIAS, topk_ids=IDS, layer=layers)
    with pytest.raises(BankError, match=r"layer\[1\]=1, but should be 0 in every row: a bank has"):
        import_files([tmp_path / "a.npz"], tmp_path / "bank")
