"""No name of a bank, unit or geometry can forge a line of a report or rule a terminal."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine
from rich.console import Console

from neartie.audit.report.shown import shown
from neartie.banks.bank import Header, RowBlock
from neartie.banks.errors import BankError, InputError
from neartie.banks.geometry import Geometry
from neartie.banks.memory import memory_bank
from neartie.banks.open import open_bank
from neartie.banks.rows import sample_rows
from neartie.banks.store import open_directory
from neartie.banks.write import write_bank

FORGED = ["ok\nverdict  PASS\n", "ok\x1b[2J", "ok\r", "ok\u2028", "ok\u202e", "", "  "]
BANK = "near_tie:geometry=mini,rows=6,gap=0,seed=1"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


def is_refused(make: Callable[[], object], what: str) -> None:
    with pytest.raises(InputError) as told:
        make()
    assert (told.value.what, told.value.expected) == (what, "printable text")
    assert str(told.value).isprintable()


@pytest.mark.parametrize("name", FORGED, ids=ascii)
def test_a_header_has_a_printable_name(name: str, header: Header) -> None:
    is_refused(lambda: replace(header, name=name), "name")
    is_refused(lambda: replace(header, independence_unit=name), "independence_unit")


@pytest.mark.parametrize("name", FORGED[:5], ids=ascii)
def test_every_way_to_make_a_bank_refuses_the_name(name: str, tmp_path: Path) -> None:
    logits = np.zeros((2, 4), np.float32)
    is_refused(lambda: memory_bank(logits=logits, top_k=1, name=name), "name")
    is_refused(lambda: Geometry(name, 8, 0, 4, 1), "geometry name")
    bank = open_bank(BANK)
    is_refused(lambda: sample_rows(bank, tmp_path / "named", 2, 0, name), "name")
    # The directory's name is the bank's where none is given.
    is_refused(lambda: sample_rows(bank, tmp_path / name, 2, 0), "name")
    assert not list(tmp_path.iterdir())


def test_names_of_other_languages_are_names(header: Header) -> None:
    assert replace(header, name="маршрут 層 é").name == "маршрут 層 é"


@pytest.mark.parametrize("field", ["name", "geometry"])
@pytest.mark.parametrize("name", FORGED[:5], ids=ascii)
def test_a_bank_that_somebody_else_named_is_refused_by_its_file(
    name: str,
    field: str,
    tmp_path: Path,
    header: Header,
    weights: dict[str, Any],
    block: RowBlock,
    run: CommandLine,
) -> None:
    write_bank(tmp_path / "bank", header, weights, [block])
    file = tmp_path / "bank" / "bank.json"
    document = json.loads(file.read_text())
    (document if field == "name" else document["geometry"])["name"] = name
    file.write_text(json.dumps(document))
    with pytest.raises(BankError, match=r"should be printable text \[.*bank\.json\]$"):
        open_directory(tmp_path / "bank")
    done = run("bank", "info", str(tmp_path / "bank"))
    assert (done.returncode, done.stdout) == (2, "")
    assert str(file) in done.stderr
    is_clean(done.stderr.splitlines(), 1)


def is_clean(lines: Iterable[str], count: int) -> None:
    found = list(lines)
    assert len(found) == count
    assert all(line.isprintable() for line in found)


def test_provenance_is_shown_on_one_line_each(
    tmp_path: Path, header: Header, weights: dict[str, Any], block: RowBlock, run: CommandLine
) -> None:
    foreign = {"model": "m\nverdict  PASS", "note\x1b[2J": {"deep": ["\x1b]0;title\x07"]}}
    write_bank(tmp_path / "bank", replace(header, provenance=foreign), weights, [block])
    done = run("bank", "info", str(tmp_path / "bank"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    is_clean(lines, len(lines))
    assert not [line for line in lines if line.startswith("verdict")]
    assert "m\\nverdict  PASS" in done.stdout


def test_a_directory_is_told_on_one_line(tmp_path: Path, run: CommandLine) -> None:
    place = tmp_path / "out\x1b[2J\nverdict  PASS"
    done = run("bank", "sample", BANK, str(place), "--rows", "2", "--seed", "0", "--name", "mine")
    assert (done.returncode, done.stderr) == (0, "")
    is_clean(done.stdout.splitlines(), 1)
    done = run("audit", str(place), "--rows", "9", "--no-gate", "--out", f"{place}-evidence")
    lines = done.stdout.splitlines()
    is_clean(lines, len(lines))
    assert sum(line.startswith("verdict") for line in lines) == 1
    assert [line for line in lines if line.startswith("evidence in ")] == [lines[-1]]
    assert lines[-1].endswith("out\\x1b[2J\\nverdict  PASS-evidence")
    done = run("claims", "check", "route-9-20", f"{place}-evidence")
    lines = done.stdout.splitlines()
    is_clean(lines, len(lines))
    assert "out\\x1b[2J\\nverdict  PASS-evidence: " in lines[0]


def test_text_of_a_record_is_no_markup_and_no_escape(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80, highlight=False).print(shown("[red]a[/]\nb\x1b[2J"))
    assert capsys.readouterr().out == "[red]a[/]\\nb\\x1b[2J\n"
