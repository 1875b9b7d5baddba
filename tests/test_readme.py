"""The README's examples run, and print what it shows."""

import re
from pathlib import Path

import pytest
from doc_blocks import Block, PageRun, blocks_of

from neartie.kernels import registry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(ROOT / "README.md")
CONSOLE = [block for block in BLOCKS if block.kind == "console"]
PYTHON = [block for block in BLOCKS if block.kind == "python"]


def test_every_block_is_one_that_is_run() -> None:
    assert {block.kind for block in BLOCKS} == {"console", "python"}
    assert len(CONSOLE) == 2
    assert len(PYTHON) == 1


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.text.splitlines()[0])
def test_console_blocks_print_what_they_show(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    PageRun("README.md").run(block)


def test_the_own_path_prints_what_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    page = PageRun("README.md")
    page.run(PYTHON[0])
    assert page.printed is not None
    first, *rest = page.printed
    assert first == "FAIL BEHAVIOURAL"
    assert any("every launch is wrong from its row 11 on" in line for line in rest)
    assert "every launch is wrong from its row 11 on" in README


def test_files_that_the_text_links_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
