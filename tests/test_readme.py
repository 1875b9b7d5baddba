"""The README's examples run, and print what it shows."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from neartie.kernels import registry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


def test_every_block_is_one_that_is_run() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python"}
    assert len(CONSOLE) == 2
    assert len(PYTHON) == 1


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.splitlines()[0])
def test_console_blocks_print_what_they_show(block: str) -> None:
    command, *shown = block.splitlines()
    words = shlex.split(command.removeprefix("$ neartie "))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "neartie", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    printed = done.stdout.splitlines()
    # A line of three dots stands for lines that are left out; between them nothing is.
    place = 0
    for index, part in enumerate(_parts(shown)):
        starts = range(place, len(printed) - len(part) + 1)
        found = [start for start in starts if printed[start : start + len(part)] == part]
        assert found, part
        assert index or found[0] == 0, "lines are left out before the first"
        place = found[0] + len(part)
    assert shown[-1] == "..." or place == len(printed), printed[place:]


def _parts(shown: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return [part for index, part in enumerate(parts) if part or index == 0]


def test_the_own_path_prints_what_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PYTHON[0], "README.md", "exec"), {})
    first, *rest = printed.getvalue().splitlines()
    assert first == "FAIL BEHAVIOURAL"
    assert any("every launch is wrong from its row 11 on" in line for line in rest)
    assert "every launch is wrong from its row 11 on" in README


def test_files_that_the_text_links_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
