"""The blocks of docs/recording.md run, and print what the page says."""

import re
from pathlib import Path

import pytest
from doc_blocks import PageRun, blocks_of

from neartie.banks.recording.ready import READY

PATH = Path(__file__).resolve().parent.parent / "docs" / "recording.md"
PAGE = PATH.read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_blocks_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    run, blocks = PageRun("recording.md"), blocks_of(PATH)
    timed = next(block for block in blocks if block.kind == "text")
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block is timed:
            # It tells times; its words are those that were printed.
            assert run.printed is not None
            assert _without_figures("\n".join(run.printed)) == _without_figures(block.text)
            continue
        run.run(block)
        shown = following is not None and following.kind == "text"
        if block.kind == "python" and run.printed and not shown:
            assert f"It prints `{run.printed[0]}`" in PAGE
            assert len(run.printed) == 1


def _without_figures(text: str) -> str:
    return re.sub(r"[\d.,]+(?: [kM]B)?", "#", text.strip())


def test_the_page_names_every_ready_spec() -> None:
    for spec in READY:
        assert f"| `{spec.name}` |" in PAGE
    counts = {spec.name: len(spec.classes) for spec in READY}
    assert "and 13 more with the same gate" in PAGE
    assert counts["deepseek_v3"] == 4 + 13
    assert counts["qwen3_moe"] == 3 + 6
