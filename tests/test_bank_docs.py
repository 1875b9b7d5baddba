"""The blocks of docs/banks.md run in their order, and print what the page shows."""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from neartie.audit import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "banks.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def neartie(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints on both streams."""
    monkeypatch.setattr(sys, "argv", ["neartie", *words])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        cli.exit_status()
    return printed.getvalue()


def check(printed: str, shown: list[str], command: str) -> None:
    """Lines of three dots stand for any lines, and three dots in a line for any of its rest."""
    pattern = ""
    for line in shown:
        kept = re.escape(line).replace(re.escape("..."), ".*")
        pattern += r"(?:.*\n)*?" if line == "..." else f"{kept}\n"
    assert re.fullmatch(pattern, printed), f"{command}\n{printed}"


def test_blocks_are_of_the_two_kinds_that_run() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python"}
    commands = [line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()]
    assert sum(line.startswith("$ neartie ") for line in commands) == 19


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setitem(os.environ, "COLUMNS", "200")
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), {})
            continue
        for part in re.split(r"^\$ neartie ", text, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            check(neartie(shlex.split(command), monkeypatch), shown, command)


def test_a_line_that_is_not_printed_is_noticed() -> None:
    for printed in ("a: sha256 1\n", "a: sha256 1\nb\n", ""):
        with pytest.raises(AssertionError):
            check(printed, ["a: sha256 ...", "c"], "command")
    check("a: sha256 1\nx\ny\nc\n", ["a: sha256 ...", "...", "c"], "command")
