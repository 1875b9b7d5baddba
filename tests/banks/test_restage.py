"""The rows of a bank once more, from the logits that were recorded with them."""

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from random_banks import Kind, write_random

from neartie.audit.cli import exit_status
from neartie.banks.bank import Array
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.restage import at_logits
from neartie.banks.write import block_columns, write_bank


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_the_recorded_logits_become_the_input(dtype: type, tmp_path: Path) -> None:
    write_random(Kind("hidden", 7, 3, any_bits=False), tmp_path / "random")
    made = open_bank(tmp_path / "random")
    block = made.read(0, made.rows)
    logits: Array = block.extra["logits_recorded"].astype(dtype)
    block = replace(block, extra={**block.extra, "logits_recorded": logits})
    write_bank(tmp_path / "hidden", made.header, made.weights, [block])
    source = open_bank(tmp_path / "hidden")

    digest = at_logits(source, tmp_path / "logits")
    got = open_bank(tmp_path / "logits")
    assert (got.stage, got.name, got.digest) == ("logits", "logits", digest)
    before, after = (block_columns(bank.read(0, 7)) for bank in (source, got))
    assert after["logits"].dtype == np.float32
    # Widening is exact: the values are the recorded ones.
    assert after.pop("logits").tolist() == before.pop("logits_recorded").tolist()
    assert after.pop("hidden_recorded").tobytes() == before.pop("hidden").tobytes()
    assert {n: v.tobytes() for n, v in after.items()} == {n: v.tobytes() for n, v in before.items()}
    assert {n: w.tobytes() for n, w in got.weights.items()} == {
        n: w.tobytes() for n, w in source.weights.items()
    }
    assert got.scoring == source.scoring
    assert got.geometry == source.geometry
    assert got.independence_unit == source.independence_unit
    assert got.recorded_widths == source.recorded_widths
    assert got.provenance["derived"] == [
        {
            "operation": "at_logits",
            "logits": f"logits_recorded, {np.dtype(dtype)}",
            "parents": [{"name": source.name, "digest": source.digest, "rows": 7}],
        }
    ]


def test_what_cannot_start_at_logits_is_refused(tmp_path: Path) -> None:
    write_random(Kind("shards", 4, 3), tmp_path / "shards")
    with pytest.raises(InputError, match="stage=shards, but should be hidden"):
        at_logits(open_bank(tmp_path / "shards"), tmp_path / "out")
    with pytest.raises(InputError, match="logits_recorded=nothing, but should be recorded"):
        at_logits(open_bank("k3-mini/layer0"), tmp_path / "out")
    write_random(Kind("hidden", 4, 3), tmp_path / "hidden")
    source = open_bank(tmp_path / "hidden")
    block = source.read(0, 4)
    for changed, said in (
        ({"logits_recorded": np.zeros((4, 6))}, r"logits_recorded=float64\[6\]"),
        ({"logits_recorded": np.zeros((4, 5), np.float32)}, r"logits_recorded=float32\[5\]"),
        ({"hidden_recorded": np.zeros((4, 8), np.float32)}, "hidden_recorded=present"),
    ):
        place = tmp_path / "-".join(said.split("\\"))
        odd = replace(block, extra={**block.extra, **changed})
        write_bank(place, source.header, source.weights, [odd])
        with pytest.raises(InputError, match=said):
            at_logits(open_bank(place), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_random(Kind("hidden", 4, 3), tmp_path / "hidden")
    words = ["neartie", "bank", "at-logits", str(tmp_path / "hidden"), str(tmp_path / "logits")]
    monkeypatch.setattr("sys.argv", [*words, "--name", "mine"])
    assert exit_status() == 0
    got = open_bank(tmp_path / "logits")
    assert (got.name, got.stage) == ("mine", "logits")
    assert got.digest in capsys.readouterr().out
    # A taken directory is refused, and the bank in it stays.
    assert exit_status() == 2
    assert open_bank(tmp_path / "logits").digest == got.digest
