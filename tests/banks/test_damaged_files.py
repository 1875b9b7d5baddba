"""Files with some bytes changed: each is read, or refused in one line with nothing left behind."""

import base64
import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzzing.mutate import mutate_bytes, mutate_json
from random_banks import Kind, write_random

from neartie.banks.errors import BankError, InputError
from neartie.banks.formats import export_bank, import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading

INPUTS = 40
READING = Reading(geometry=Geometry("g", 0, 0, 8, 2), model_layers=3)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A right file of each format, by its name."""
    place = tmp_path_factory.mktemp("seeds")
    write_random(Kind("hidden", 6, 1, any_bits=False), place / "bank")
    write_random(Kind("outputs", 6, 1, any_bits=False), place / "outputs")
    for name in ("bank.npz", "bank.pt"):
        export_bank(place / "bank", place / name)
    for name in ("parquet", "csv"):
        export_bank(place / "outputs", place / name, format=name)
    ids = np.argsort(np.random.default_rng(0).random((4, 3, 8)))[:, :, :2].astype(np.int32)
    np.save(place / "ids.npy", ids)
    torch.save([torch.tensor(ids[:, layer]) for layer in range(3)], place / "ids.pt")
    text = base64.b64encode(ids.tobytes()).decode()
    envelope = {"data": text, "shape": [4, 3, 2], "dtype": "int32", "start": 1}
    (place / "ids.json").write_text(json.dumps({"choices": [{"routed_experts": envelope}]}))
    found = [place / name for name in ("bank.npz", "bank.pt", "ids.npy", "ids.pt", "ids.json")]
    found += [place / "parquet" / "rows.parquet", place / "csv" / "rows.csv"]
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.parametrize(
    "name", ["bank.npz", "bank.pt", "ids.npy", "ids.pt", "ids.json", "rows.parquet", "rows.csv"]
)
def test_changed_bytes(name: str, seeds: dict[str, bytes], tmp_path: Path) -> None:
    rng = random.Random(name)
    replay = name.startswith("ids")
    refused: list[str] = []
    for number in range(INPUTS):
        place = tmp_path / str(number)
        place.mkdir()
        change = mutate_json if name.endswith("json") and rng.random() < 0.7 else mutate_bytes
        data = seeds[name]
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = change(data, rng)
        (place / name).write_bytes(data)
        try:
            import_files([place / name], place / "bank", format="replay" if replay else None,
                         reading=READING if replay else None)  # fmt: skip
            assert (place / "bank" / "bank.json").is_file()
        except InputError as error:
            refused.append(str(error))
            assert [path.name for path in place.iterdir()] == [name]
    assert not [text for text in refused if "\n" in text]
    # Else the changes would be too timid to say anything.
    assert len(refused) > INPUTS / 3


def test_a_header_of_numpy_that_does_not_end(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3, 2), np.int32))
    (tmp_path / "ids.npy").write_bytes(buffer.getvalue().replace(b"}", b"("))
    with pytest.raises(BankError, match=r"array=.*but should be a .npy array"):
        import_files([tmp_path / "ids.npy"], tmp_path / "bank", reading=READING)


def test_a_member_whose_name_is_no_text(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("lögits.npy", b"")
    data = (tmp_path / "a.npz").read_bytes().replace("ö".encode(), b"\xff\xff")
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(BankError, match=r"file=.*can't decode.*but should be an .npz file"):
        import_files([tmp_path / "a.npz"], tmp_path / "bank")


def test_a_number_of_too_many_digits(tmp_path: Path) -> None:
    header = np.frombuffer(b'{"rows": ' + b"9" * 5000 + b"}", np.uint8)
    np.savez(tmp_path / "a.npz", neartie=header)
    with pytest.raises(BankError, match=r"header=.*but should be JSON"):
        import_files([tmp_path / "a.npz"], tmp_path / "bank")
    envelope = {"data": "AAAA", "shape": [10**400, 1, 1]}
    (tmp_path / "a.json").write_text(json.dumps({"routed_experts": envelope}))
    with pytest.raises(BankError, match="data=3 bytes, but should be a whole number of"):
        import_files([tmp_path / "a.json"], tmp_path / "bank", reading=READING)
