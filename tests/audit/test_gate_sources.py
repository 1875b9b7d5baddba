"""Rows that are counted twice, or that bound no rate, certify nothing."""

import shutil
import sys
from pathlib import Path

import pytest

import neartie
from neartie.audit.cli import main
from neartie.audit.gate.run import run_gate
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank, shipped_directory

LAYER = "k3-mini/layer0"


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ([LAYER, LAYER], "bank name=k3-mini/layer0, but should be of one bank only"),
        (["normal", "normal"], "bank name=normal:rows=1000, but should be of one bank only"),
        (
            ["normal:rows=1000,seed=1", "normal:rows=2000,seed=1"],
            "they are one generator's same draws",
        ),
        (["normal:seed=1", "normal:seed=1,std=2"], "they are one generator's same draws"),
        (["normal:seed=1,bias=0.05", "normal:seed=1"], "they are one generator's same draws"),
        (["resample:bank={copy}", f"resample:bank={LAYER}"], "they are one generator's same draws"),
        (["{copy}", LAYER], "bank name=k3-mini/layer0, but should be of one bank only"),
    ],
)
def test_no_row_is_counted_twice(tmp_path: Path, sources: list[str], text: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shipped_directory(LAYER), copy)
    given = [source.format(copy=copy) for source in sources]
    with pytest.raises(InputError, match=text):
        run_gate("standalone", "fused", given, rows=2000, widths=(9,))
    if not given[0].startswith(("resample", "normal:", "normal")):
        with pytest.raises(InputError, match=text):
            neartie.run_audit(given, rows=[9])


def test_other_seeds_are_other_rows() -> None:
    sources = ["normal:seed=1", "normal:seed=2"]
    result = run_gate("standalone", "fused", sources, rows=2000, widths=(9,))
    assert result.record["pooled"]["observed"]["units"] == 2000


def test_mixtures_of_chosen_rows_bound_no_rate() -> None:
    mixed = open_bank("resample:bank=k3-mini/tie-witness,rows=100")
    assert mixed.independence_unit == "none"
    source = "resample:bank=k3-mini/tie-witness"
    result = run_gate("standalone", "fused", source, rows=3000, widths=(9,))
    assert result.record["pooled"]["observed"]["units"] == 0
    assert not any(width["certified"] for width in result.record["widths"])


def test_evidence_lies_apart_from_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["gate", "--rows", "2k"], ["audit", LAYER]):
        for work in (tmp_path / "out", tmp_path / "out" / "work"):
            words = [*command, "--out", str(tmp_path / "out"), "--work", str(work)]
            monkeypatch.setattr(sys, "argv", ["neartie", *words])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 2
            assert "a directory that does not hold --work" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
