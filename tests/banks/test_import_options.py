"""Options of an import that mean nothing for its files, and what the files hold beside a bank."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neartie.audit.cli import exit_status
from neartie.banks.errors import BankError
from neartie.banks.formats import export_bank, import_files
from neartie.banks.open import open_bank

LOGITS = np.random.default_rng(4).standard_normal((11, 6)).astype(np.float32)
IDS = np.argsort(LOGITS, axis=1)[:, ::-1][:, :2].copy()


class Place:
    """A directory with files, and the command line."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]):
        self.path, self._patch, self._capture = path, patch, capture
        self.out = path / "out"

    def run(self, *options: str) -> tuple[int, str, str]:
        """Import good.npz into out: status, stdout, stderr."""
        words = ["neartie", "bank", "import", str(self.path / "good.npz"), str(self.out), *options]
        self._patch.setattr(sys, "argv", words)
        status = exit_status()
        printed = self._capture.readouterr()
        return status, printed.out, printed.err


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    bias = np.zeros(6, np.float32)
    np.savez(tmp_path / "good.npz", logits=LOGITS, correction_bias=bias, topk_ids=IDS)
    return Place(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tensor", "logits=zz"], "tensor zz=nothing, but should be present"),
        (["--width", "zz=4"], "width=zz, but should be a path whose outputs are recorded: gpu"),
        (["--step-width", "0"], "step_width=0, but should be at least 1 row"),
        (["--step-width", "-3"], "step_width=-3, but should be at least 1 row"),
        (["--name", ""], "name='', but should be printable text"),
        (["--layer", "-1"], "layer=-1, but should be 0..2147483647"),
        (["--model-layers", "9"], "model-layers=given, but should be absent with npz"),
        (["--path", "q"], "path=given, but should be absent with npz: it is for replay"),
        (["--workload", "u"], "workload=given, but should be absent with npz"),
        (["--layers", "3"], "layers=given, but should be absent with npz"),
        (["--drop", "correction_bias"], "or said to be none (--no-bias"),
        (["--drop", "topk_ids"], "such as --geometry experts=128,top_k=8"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    options: list[str], message: str, place: Place
) -> None:
    status, _, told = place.run(*options)
    assert status == 2, told
    assert told.startswith("neartie: ")
    assert told.count("\n") == 1
    assert message in told
    assert not place.out.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--layer", "3"], ["--step-width", "4"], ["--width", "gpu=4"], ["--unit", "row"],
        ["--no-bias"], ["--scale", "2"], ["--key", "doc"],
    ],
)  # fmt: skip
def test_a_file_of_a_bank_says_itself_what_it_is(options: list[str], place: Place) -> None:
    (place.path / "good.npz").unlink()
    export_bank("near_tie:gap=1,rows=8", place.path / "good.npz")
    status, _, told = place.run(*options)
    assert status == 2, told
    assert "=given, but should be absent: the file says" in told


def test_what_is_left_out_is_told(place: Place) -> None:
    status, printed, told = place.run("--json")
    assert (status, told) == (0, "")
    assert json.loads(printed)["left_out"] == []
    plain = json.loads(printed)["digest"]
    more: dict[str, Any] = {f"other{n}": LOGITS for n in range(9)}
    with np.load(place.path / "good.npz") as file:
        np.savez(place.path / "good.npz", **dict(file), **more)
    place.out = place.path / "again"
    status, printed, told = place.run("--json", "--name", "good")
    assert status == 0
    assert json.loads(printed) == {
        "directory": str(place.out), "digest": plain, "left_out": list(more)
    }  # fmt: skip
    assert told.startswith("neartie: left out other0, other1, ")
    assert "other7 and 1 more: " in told
    place.out = place.path / "third"
    status, _, told = place.run("--drop", ",".join(more))
    assert (status, told) == (0, "")


def test_logits_that_were_recorded_are_not_left_out(place: Place) -> None:
    kind = torch.bfloat16
    held = {"hidden": torch.zeros(4, 8, dtype=kind), "router_weight": torch.ones(6, 8, dtype=kind)}
    held |= {"logits": torch.zeros(4, 6), "correction_bias": torch.zeros(6)}
    held["topk_ids"] = torch.zeros(4, 2, dtype=torch.int32)
    torch.save(held, place.path / "a.pt")
    left: list[str] = []
    import_files([place.path / "a.pt"], place.out, left_out=left.extend)
    assert left == []
    assert open_bank(place.out).stage == "hidden"


@pytest.mark.parametrize("crc", [True, False])
def test_a_flipped_bit_of_torch_save(crc: bool, place: Place) -> None:
    path = place.path / "a.pt"
    held = {"logits": torch.from_numpy(LOGITS), "correction_bias": torch.zeros(6)}
    torch.serialization.set_crc32_options(crc)
    try:
        torch.save({**held, "topk_ids": torch.from_numpy(IDS)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    import_files([path], place.out)
    if not crc:
        return
    data = bytearray(path.read_bytes())
    data[bytes(data).index(LOGITS.tobytes()) + 9] ^= 1
    path.write_bytes(data)
    assert zipfile.ZipFile(path).testzip() == "a/data/0"
    with pytest.raises(BankError, match=r"member a/data/0=Bad CRC-32 .*as torch.save wrote it"):
        import_files([path], place.path / "other")
    assert not (place.path / "other").exists()


def test_rows_that_repeat_each_other_are_not_independent(place: Place) -> None:
    bias = np.zeros(6, np.float32)
    np.savez(place.path / "good.npz", logits=np.tile(LOGITS, (3, 1)), correction_bias=bias,
             topk_ids=np.tile(IDS, (3, 1)))  # fmt: skip
    status, _, told = place.run("--unit", "row")
    assert status == 2
    expected = "unit=row, but should be a key or none: 22 of 33 rows repeat another's inputs"
    assert expected in told
    assert not place.out.exists()
    assert place.run("--unit", "none")[0] == 0
