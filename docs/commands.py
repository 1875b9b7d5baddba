"""Write commands.md from the command line itself; a test keeps it equal.

Run ``python -P docs/commands.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from neartie.audit.cli import app

HEAD = """# Command line

Made from the commands' own help. Exit status: 0 pass, 1 a gate or claim failed, 2 bad input or
usage, 3 inconclusive or not run, 130 interrupted. Results go to stdout, all else to stderr.
"""


def commands_page() -> str:
    """Return the page: each command with what it takes."""
    group: Any = typer.main.get_command(app)
    return "\n".join(
        [HEAD, *(line for one in _commands(group, "neartie") for line in _lines(*one))]
    )


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part in sorted(inner):
        yield from _commands(inner[part], f"{name} {part}")


def _lines(name: str, command: Any) -> Iterator[str]:
    yield from (f"## {name}", "", " ".join((command.help or "").split()), "")
    takes = [p for p in command.params if p.name != "help"]
    if not takes:
        return
    yield from ("| takes | default | what it is |", "|---|---|---|")
    for option in takes:
        flags = "`, `".join([*option.opts, *option.secondary_opts])
        label = option.name.upper() if option.param_type_name == "argument" else flags
        many = " ..." if option.nargs == -1 or option.multiple else ""
        words = (option.help or "").replace("|", "&#124;")
        yield f"| `{label}`{many} | {_default(option)} | {words} |"
    yield ""


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    given = option.default
    if given is None or callable(given):
        return ""
    return f"`{'on' if given is True else 'off' if given is False else given}`"


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(commands_page(), encoding="utf-8")
