"""A disk that is full, as the system tells of it: here a limit on the size of a file."""

import csv
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_moe import SPEC, ToyModel, toy_input

import neartie
from neartie.audit.cli import exit_status
from neartie.banks.errors import InputError
from neartie.banks.recording.background import RecordingError

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def full(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes; Python ignores the signal, and the write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def a_csv(path: Path) -> str:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*(f"logits[{n}]" for n in range(32)), "topk_ids[0]", "topk_ids[1]"])
        for values in np.random.default_rng(1).random((200, 32)).round(3).tolist():
            lines.writerow([*values, 0, 1])
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        ["select", "k3-mini/layer0", "OUT", "--rows", "0-99"],
        ["sample", "k3-mini/layer0", "OUT", "--rows", "50", "--seed", "1"],
        ["make", "gaussian:geometry=mini,rows=64,seed=0", "OUT"],
        ["import", "CSV", "OUT", "--no-bias"],
        ["split", "k3-mini/layer0", "OUT", "--rows", "100"],
        ["export", "k3-mini/layer0", "OUT.npz"],
        ["export", "near_tie:gap=1,rows=4", "OUT.pt"],
        ["export", "near_tie:gap=1,rows=4", "OUT", "--format", "sglang"],
    ],
)
def test_one_line_and_nothing_left(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    table = a_csv(tmp_path / "rows.csv")
    words = [word.replace("OUT", str(place / "new")).replace("CSV", table) for word in command]
    monkeypatch.setattr(sys, "argv", ["neartie", "bank", *words])
    with full(8192):
        status = exit_status()
    told = capsys.readouterr().err
    assert status == 2, told
    assert told.startswith("neartie: ")
    assert told.count("\n") == 1
    assert "File too large, but should be written" in told
    assert str(place / "new") in told
    assert not list(place.iterdir())


@pytest.mark.parametrize("size", [400, 20_000, 33_000])
@torch.no_grad()
def test_a_recording_says_where_and_why(size: int, tmp_path: Path) -> None:
    model = ToyModel().eval()

    def run() -> None:
        with neartie.record(model, out=tmp_path / "new", specs=[SPEC], quiet=True):
            for seed in range(40):
                model(toy_input(seed))

    with full(size), pytest.raises((RecordingError, InputError)) as caught:
        run()
    assert "File too large, but should be written" in str(caught.value)
    assert str(tmp_path / "new") in str(caught.value)
    assert ".partial" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_recorded_or_merged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="=a tensor of the meta device, but should be one with"):
        neartie.record(ToyModel().to("meta"), out=tmp_path / "new", specs=[SPEC]).__enter__()
    with pytest.raises(InputError, match="directory=3, but should be the path of a directory"):
        neartie.merge_ranks(3, tmp_path / "new")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="out=None, but should be the path of a directory"):
        neartie.merge_ranks(tmp_path, None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["x" * 300, "/proc/neartie"])
def test_a_name_that_the_system_refuses(out: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="but should be written"):
        neartie.record(ToyModel().eval(), out=tmp_path / out, specs=[SPEC]).__enter__()
    assert not list(tmp_path.iterdir())
