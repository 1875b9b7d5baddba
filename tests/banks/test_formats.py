"""A bank that is exported and imported again is the same bank, bit for bit."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_banks import GEOMETRY, Kind, assert_same_rows, kinds, write_random

from neartie.banks.bank import RowBlock, Stage
from neartie.banks.errors import BankError, InputError
from neartie.banks.exporters.writing import Writing
from neartie.banks.formats import FORMATS, export_bank, import_files
from neartie.banks.importers.reading import Reading, Recording
from neartie.banks.interchange import STEP
from neartie.banks.open import open_bank
from neartie.banks.store import StoredBank
from neartie.banks.write import BankWriter

SUFFIX = {"safetensors": ".safetensors", "npz": ".npz", "torch": ".pt", "replay": ".jsonl"}
WHOLE = [name for name, format_ in FORMATS.items() if format_.bits]
EVERY_BIT = [name for name in WHOLE if name not in ("csv", "flashinfer-bench")]


def there_and_back(source: Path, place: Path, name: str) -> str:
    target = place / f"file{SUFFIX.get(name, '')}"
    export_bank(source, target, format=name)
    digest = import_files([target], place / "back", format=name)
    assert sorted(path.name for path in place.iterdir()) == sorted(["back", target.name])
    return digest


@pytest.mark.parametrize("name", EVERY_BIT)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=kinds)
def test_any_bits_of_any_stage(
    name: str, kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("bits")
    digest = write_random(kind, place / "bank")
    (place / "other").mkdir()
    assert there_and_back(place / "bank", place / "other", name) == digest
    assert_same_rows(open_bank(place / "other" / "back"), open_bank(place / "bank"))


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in EVERY_BIT])
@pytest.mark.parametrize("stage", ["hidden", "logits"])
def test_ordinary_numbers(name: str, stage: str, tmp_path: Path) -> None:
    kind = Kind("hidden" if stage == "hidden" else "logits", 7, 5, any_bits=False)
    digest = write_random(kind, tmp_path / "bank")
    (tmp_path / "other").mkdir()
    assert there_and_back(tmp_path / "bank", tmp_path / "other", name) == digest


@pytest.mark.parametrize("name", WHOLE)
def test_a_shipped_bank(name: str, tmp_path: Path) -> None:
    target = tmp_path / f"file{SUFFIX.get(name, '')}"
    export_bank("k3-mini/tie-witness", target, format=name)
    digest = import_files([target], tmp_path / "back", format=name)
    assert digest == open_bank("k3-mini/tie-witness").digest


@pytest.mark.parametrize("name", ["safetensors", "npz", "parquet", "torch"])
def test_rows_of_several_blocks(name: str, tmp_path: Path) -> None:
    digest = write_random(Kind("hidden", 5000, 1), tmp_path / "bank")
    (tmp_path / "other").mkdir()
    assert there_and_back(tmp_path / "bank", tmp_path / "other", name) == digest


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "csv"])
def test_rows_are_held_a_block_at_a_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No way through a format asks for more rows at once than one block (or one launch) has."""
    stage: Stage = "outputs" if name == "replay" else "hidden"
    kind = Kind(stage, 3 * STEP + 5, 1, any_bits=False, launches=500)
    write_random(kind, tmp_path / "bank")
    most = {"read": 0, "written": 0}
    read, append = StoredBank._read, BankWriter.append

    def watched_read(self: StoredBank, start: int, stop: int) -> RowBlock:
        most["read"] = max(most["read"], stop - start)
        return read(self, start, stop)

    def watched_append(self: BankWriter, block: RowBlock) -> None:
        most["written"] = max(most["written"], block.rows)
        append(self, block)

    monkeypatch.setattr(StoredBank, "_read", watched_read)
    monkeypatch.setattr(BankWriter, "append", watched_append)
    target = tmp_path / f"file{SUFFIX.get(name, '')}"
    export_bank(tmp_path / "bank", target, format=name, writing=Writing(path="gpu"))
    reading = Reading(geometry=GEOMETRY) if name == "replay" else None
    import_files([target], tmp_path / "back", format=name, reading=reading)
    assert 0 < most["read"] <= STEP
    assert 0 < most["written"] <= STEP


def test_a_generator_is_exported(tmp_path: Path) -> None:
    spec = "near_tie:gap=1,rows=40"
    export_bank(spec, tmp_path / "rows.npz")
    import_files([tmp_path / "rows.npz"], tmp_path / "back")
    assert_same_rows(open_bank(tmp_path / "back"), open_bank(spec))


def test_another_name_is_another_bank(tmp_path: Path) -> None:
    digest = write_random(Kind("logits", 3, 1), tmp_path / "bank")
    export_bank(tmp_path / "bank", tmp_path / "a.npz")
    named = Recording(name="mine")
    assert import_files([tmp_path / "a.npz"], tmp_path / "back", recording=named) != digest
    assert open_bank(tmp_path / "back").name == "mine"


def test_options_that_the_file_answers_itself(tmp_path: Path) -> None:
    write_random(Kind("logits", 3, 1), tmp_path / "bank")
    export_bank(tmp_path / "bank", tmp_path / "a.npz")
    with pytest.raises(InputError, match="stage=given, but should be absent: the file says"):
        import_files([tmp_path / "a.npz"], tmp_path / "back", stage="logits")
    reading = Reading(geometry=open_bank(tmp_path / "bank").geometry)
    with pytest.raises(InputError, match="geometry=given, but should be absent"):
        import_files([tmp_path / "a.npz"], tmp_path / "back", reading=reading)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("name", "stage", "message"),
    [
        ("flashinfer-bench", "shards", "stage=shards, but should be hidden or logits"),
        ("flashinfer-bench", "outputs", "stage=outputs, but should be hidden or logits"),
        ("csv", "hidden", "a NaN with the bits 0x"),
        ("replay", "hidden", "path=nothing, but should be one of gpu, other"),
    ],
)
def test_what_a_format_cannot_carry(name: str, stage: str, message: str, tmp_path: Path) -> None:
    kind = Kind("hidden" if stage == "hidden" else "shards", 200, 1)
    if stage == "outputs":
        kind = Kind("outputs", 3, 1)
    write_random(kind, tmp_path / "bank")
    with pytest.raises(InputError, match=message):
        export_bank(tmp_path / "bank", tmp_path / "file.npy", format=name)
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_a_taken_name_is_left_alone(tmp_path: Path) -> None:
    write_random(Kind("logits", 3, 1), tmp_path / "bank")
    for name in WHOLE:
        target = tmp_path / f"taken{SUFFIX.get(name, '')}"
        target.write_text("mine")
        with pytest.raises(BankError, match="but should be new"):
            export_bank(tmp_path / "bank", target, format=name)
        assert target.read_text() == "mine"
        target.unlink()
    with pytest.raises(BankError, match=r"directory=.*but should be an existing directory"):
        export_bank(tmp_path / "bank", tmp_path / "none" / "a.npz")


def test_a_writer_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_random(Kind("logits", 3, 1), tmp_path / "bank")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in WHOLE:
        target = tmp_path / f"new{SUFFIX.get(name, '')}"
        with pytest.raises(BankError, match="No space left on device, but should be written"):
            export_bank(tmp_path / "bank", target, format=name)
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_formats_are_told_by_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file=.xyz, but should be one whose suffix tells"):
        import_files([tmp_path / "a.xyz"], tmp_path / "back")
    with pytest.raises(InputError, match="format=yaml, but should be one of safetensors, npz"):
        import_files([tmp_path / "a.npz"], tmp_path / "back", format="yaml")
    with pytest.raises(InputError, match="files=none"):
        import_files([], tmp_path / "back")


def test_a_changed_bit_is_another_digest(tmp_path: Path) -> None:
    """The round trip's own check: without this, equal digests would say nothing."""
    digest = write_random(Kind("logits", 3, 1, any_bits=False), tmp_path / "bank")
    export_bank(tmp_path / "bank", tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as held:
        arrays = dict(held)
    arrays["logits"].view(np.uint32)[1, 2] ^= 1
    np.savez(tmp_path / "b.npz", **arrays)
    assert import_files([tmp_path / "b.npz"], tmp_path / "back") != digest
