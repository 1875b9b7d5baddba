"""The blocks of docs/recording.md run, and print what the page says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from neartie.banks.recording.ready import READY

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "recording.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small products: threads that wait for each other only take time from other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_blocks_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = []
    for block in PYTHON:
        exec(compile(block, "recording.md", "exec"), names)
        printed.append(capsys.readouterr().out.strip())
    # The first tells times; its words are those of the block that shows it.
    shown = next(text for kind, text in BLOCKS if kind == "text").strip()
    assert _without_figures(printed[0]) == _without_figures(shown)
    for line in printed[1:]:
        assert f"It prints `{line}`" in PAGE


def _without_figures(text: str) -> str:
    return re.sub(r"[\d.,]+(?: [kM]B)?", "#", text)


def test_every_block_is_one_that_is_run_or_shown() -> None:
    assert [kind for kind, _ in BLOCKS].count("console") == 1
    assert {kind for kind, _ in BLOCKS} == {"console", "python", "text"}
    assert len(PYTHON) == 6


def test_the_page_names_every_ready_spec() -> None:
    for spec in READY:
        assert f"| `{spec.name}` |" in PAGE
    counts = {spec.name: len(spec.classes) for spec in READY}
    assert "and 13 more with the same gate" in PAGE
    assert counts["deepseek_v3"] == 4 + 13
    assert counts["qwen3_moe"] == 3 + 6
