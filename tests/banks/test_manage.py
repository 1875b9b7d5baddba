import json
from pathlib import Path

import fsspec
import numpy as np
import pytest

from neartie.audit.cli_bank import info, verify
from neartie.banks.errors import BankError
from neartie.banks.manage import bank_info, make_bank, verify_bank
from neartie.banks.open import expand_banks, open_bank


@pytest.mark.parametrize(
    "spec",
    [
        "gaussian:geometry=16x8x12x3,rows=5000",
        "near_tie:geometry=16x8x12x3,slot=3,rows=300",
        "special:rows=70,geometry=16x8x12x3",
        "resample:bank=k3-mini/tie-witness,rows=90",
        "k3-mini/layer2",
    ],
)
def test_a_made_bank_is_the_bank(spec: str, tmp_path: Path) -> None:
    done = []
    digest = make_bank(spec, tmp_path / "bank", lambda rows, total: done.append((rows, total)))
    source, made = open_bank(spec), verify_bank(str(tmp_path / "bank"))
    assert made.digest == digest
    assert done[-1] == (source.rows, source.rows)
    a, b = source.read(0, source.rows), made.read(0, source.rows)
    for name in ("hidden", "logits"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        assert left is None or left.tobytes() == right.tobytes()
    assert a.keys.keys() == b.keys.keys()
    assert all(np.array_equal(a.keys[name], b.keys[name]) for name in a.keys)
    assert source.weights.keys() == made.weights.keys()
    for name, tensor in source.weights.items():
        assert tensor.tobytes() == made.weights[name].tobytes()
    assert made.geometry == source.geometry
    assert made.name == source.name
    # Provenance says which generator and seed.
    assert made.provenance["source"] == source.provenance["source"]


def test_making_again_gives_the_same_digest(tmp_path: Path) -> None:
    spec = "gaussian:geometry=16x8x12x3,rows=300"
    assert make_bank(spec, tmp_path / "a") == make_bank(spec, tmp_path / "b")


def test_info_is_json() -> None:
    info = json.loads(json.dumps(bank_info(open_bank("k3-mini/layer1")), allow_nan=False))
    assert info["rows"] == 1024
    assert info["recorded"] == {"gpu": {"width": 20}}
    assert info["weights"]["router_weight"] == {"dtype": "bfloat16", "shape": [896, 512]}
    assert info["geometry"]["top_k"] == 16
    json.dumps(bank_info(open_bank("gaussian:geometry=16x8x12x3")))
    json.dumps(bank_info(open_bank("resample:bank=k3-mini/tie-witness,rows=30")))
    labels = dict(open_bank("k3-mini/layer1").description())
    assert labels["rows"] == "1,024"
    assert labels["recorded gpu"] == "width 20"


def test_a_taken_directory_is_refused(tmp_path: Path) -> None:
    make_bank("all_equal:rows=3", tmp_path / "bank")
    with pytest.raises(BankError, match="should be new or empty"):
        make_bank("all_equal:rows=3", tmp_path / "bank")
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_a_directory_of_banks_is_each_in_natural_order(tmp_path: Path) -> None:
    for layer in (10, 9, 1):
        make_bank(f"all_equal:rows=3,seed={layer}", tmp_path / f"layer{layer}")
    (tmp_path / "notes").mkdir()
    banks = expand_banks([str(tmp_path)])
    assert [bank.name for bank in banks] == [f"all_equal:rows=3,seed={x}" for x in (1, 9, 10)]
    (tmp_path / "layer9" / "rows.arrow").unlink()
    with pytest.raises(BankError, match=r"layer9/rows.arrow"):
        expand_banks([str(tmp_path)])
    with pytest.raises(BankError, match="file=nothing, but should be present"):
        expand_banks([str(tmp_path / "notes")])


def test_remains_of_a_killed_writer_are_no_bank(tmp_path: Path) -> None:
    make_bank("all_equal:rows=3", tmp_path / "bank")
    (tmp_path / "bank").rename(tmp_path / ".bank.partial-x1")
    make_bank("all_equal:rows=3,seed=1", tmp_path / "bank")
    assert [bank.name for bank in expand_banks([str(tmp_path)])] == ["all_equal:rows=3,seed=1"]


def test_urls_open_the_same_bank(tmp_path: Path) -> None:
    digest = make_bank("bf16_logits:rows=30,geometry=16x8x12x3", tmp_path / "bank")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "bank"), "/url-test", recursive=True)
    direct = open_bank(str(tmp_path / "bank")).read(2, 9).logits
    assert direct is not None
    for url in (f"file://{tmp_path}/bank", "fsspec+memory://url-test"):
        bank = open_bank(url)
        assert bank.digest == digest
        logits = bank.read(2, 9).logits
        assert logits is not None
        assert logits.tobytes() == direct.tobytes()
    with memory.open("/url-test/rows.arrow", "ab") as file:
        file.write(b"more")
    with pytest.raises(BankError, match=r"bytes=\d+, but should be \d+ as in bank.json \[fsspec"):
        open_bank("fsspec+memory://url-test")


def test_control_characters_of_a_header_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bank("near_tie:geometry=mini,rows=4,gap=1", tmp_path / "bank")
    header = tmp_path / "bank" / "bank.json"
    told = json.loads(header.read_text())
    told["provenance"] |= {
        "source": "a\x1b[31mred",
        "model": "line\nname   other",
        "key\x07": "rung",
    }
    header.write_text(json.dumps(told))
    info(str(tmp_path / "bank"))
    verify(str(tmp_path / "bank"))
    printed = capsys.readouterr().out
    assert "\\x1b[31mred" in printed
    assert "line\\nname   other" in printed
    assert "key\\x07" in printed
    assert printed.replace("\n", "").isprintable()
