"""``docs/selftest.md`` tells of the catalogue as it is, and the command prints it."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neartie.audit.cli import app, exit_status
from neartie.audit.selftest.table import catalogue_markdown

PAGE = Path(__file__).parents[2] / "docs" / "selftest.md"


def test_the_page_holds_the_catalogue() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.endswith(f"## The faults\n\n{catalogue_markdown()}"), (
        "write the end of docs/selftest.md with: neartie selftest --list"
    )


def test_list_prints_the_catalogue_and_plants_nothing() -> None:
    done = CliRunner().invoke(app, ["selftest", "--list"])
    assert done.exit_code == 0
    assert done.stdout == catalogue_markdown()


def test_json_is_one_document() -> None:
    words = ["--widths", "9", "--ranks", "4", "--only", "weights_in_bf16", "--workers", "1"]
    done = CliRunner().invoke(app, ["selftest", *words, "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["caught_and_named"] == found["applicable"] == found["named_alone"] == 2
    (cells,) = found["faults"].values()
    assert [cell["scene"] for cell in cells] == ["select", "scaled"]
    assert "explained_by:bf16_weights" in cells[0]["failing"]


def test_the_table_ends_with_the_score() -> None:
    words = ["--widths", "1", "--ranks", "4", "--only", "padded_stride", "--workers", "1"]
    done = CliRunner().invoke(app, ["selftest", *words])
    # Nothing could be planted, so nothing was shown to be caught.
    assert done.exit_code == 1
    assert "mutation score: 0.0% (0 of 0) caught" in done.stdout
    assert "not applicable: 1 audits, a launch of one row has no other row" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "x"], "fault=x, but should be one of k_tail_dropped"),
        (["--widths", "a"], "widths=a, but should be integers separated by commas [--widths]"),
        (["--workers", "0"], "workers=0, but should be at least 1 [--workers]"),
    ],
)
def test_misuse_is_exit_status_2(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["neartie", "selftest", *words])
    assert exit_status() == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"neartie: {message}")
    assert printed.out == ""
