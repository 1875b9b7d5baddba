"""Code blocks of Markdown pages: found, and run as a reader would run them.

A fence with a ``title`` is a file that the reader saves (``python title="front.py"``). Any other
``python`` block is run, all of a page in one namespace; a ``console`` block holds commands after
``$ `` and, below each, what it prints, where a line of three dots stands for lines left out. A
``text`` block shows what the Python block before it printed.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neartie.audit import cli

_FENCE = re.compile(
    r'^```(?P<kind>\w*)(?:[ \t]+title="(?P<title>[^"\n]+)")?[ \t]*\n(?P<text>.*?)^```[ \t]*$',
    re.MULTILINE | re.DOTALL,
)
GAP = "..."


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        kind: its language.
        title: the name of the file that it is; empty where it is none.
        text: what stands between the fences.
        line: of the opening fence, counted from 1.
    """

    kind: str
    title: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    content = page.read_text(encoding="utf-8")
    found = [
        Block(m["kind"], m["title"] or "", m["text"], content.count("\n", 0, m.start()) + 1)
        for m in _FENCE.finditer(content)
    ]
    # A fence that the pattern misses (indented, unclosed) would go untested.
    assert content.count("```") == 2 * len(found), f"{page.name}: a fence in an unknown form"
    return found


def commands_of(block: Block) -> list[tuple[list[str], list[str]]]:
    """Return each command's words and the lines that it is said to print."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:]), []))
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1][1].append(line)
    return found


def run_command(words: list[str]) -> list[str]:
    """Run ``neartie ...`` in this process, in its directory; return the lines on stdout."""
    assert words[0] == "neartie", words
    printed, before = io.StringIO(), sys.argv
    sys.argv = list(words)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as said:
            status = cli.exit_status()
    finally:
        sys.argv = before
    assert status != 2, f"{shlex.join(words)}: {said.getvalue()}"
    return [line.rstrip() for line in printed.getvalue().splitlines()]


def assert_prints(printed: list[str], shown: list[str], where: str) -> None:
    """Hold printed lines to the shown ones; between two gaps nothing may be left out."""
    place = 0
    for index, part in enumerate(_parts(shown)):
        starts = range(place, len(printed) - len(part) + 1)
        found = [start for start in starts if printed[start : start + len(part)] == part]
        assert found, f"{where}: does not print\n" + "\n".join([*part, "but", *printed[place:]])
        assert index or found[0] == 0, f"{where}: lines are left out before the first"
        place = found[0] + len(part)
    ended = not shown or shown[-1] == GAP or place == len(printed)
    assert ended, f"{where}: prints more: {printed[place:]}"


def _parts(shown: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == GAP:
            parts.append([])
        else:
            parts[-1].append(line.rstrip())
    return [part for index, part in enumerate(parts) if part or index == 0]


class PageRun:
    """Runs the blocks of one page in the current directory, one after another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespace: dict[str, Any] = {"__name__": f"page_{name}"}
        self.printed: list[str] | None = None
        """What the last Python block printed."""

    def run(self, block: Block) -> None:
        """Save a file, run Python, or run commands and hold what they print to what is shown."""
        where = f"{self.name}, line {block.line}"
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * block.line + block.text, self.name, "exec"), self.namespace)
            self.printed = [line.rstrip() for line in printed.getvalue().splitlines()]
        elif block.kind == "text":
            assert self.printed is not None, f"{where}: no Python block printed this"
            assert_prints(self.printed, block.text.splitlines(), where)
        elif block.kind == "console":
            for words, shown in commands_of(block):
                assert_prints(run_command(words), shown, where)
        else:
            raise AssertionError(f"{where}: nothing runs a {block.kind or 'nameless'} block")
