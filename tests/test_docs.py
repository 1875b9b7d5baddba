"""Every page of the documentation runs from top to bottom; the site builds; links hold."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from doc_blocks import Block, PageRun, assert_prints, blocks_of, commands_of

from neartie.audit.claims.load import load_claims
from neartie.audit.policy import load_policy
from neartie.kernels import registry

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Run by test_ci_recipe (its commands are not all neartie's), test_recording_docs (times differ) and
# test_testing_doc (by pytest itself).
ELSEWHERE = {"ci.md", "recording.md", "testing.md"}
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name not in ELSEWHERE)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory from which modules may be imported, and a registry of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page: Path, elsewhere: Path) -> None:
    run = PageRun(page.name)
    for block in blocks_of(page):
        if block.kind == "toml" and not block.title:
            file = elsewhere / "block.toml"
            file.write_text(block.text, encoding="utf-8")
            load_claims(str(file)) if "[[claim]]" in block.text else load_policy(file)
        else:
            run.run(block)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_to_files_of_the_site(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            found = (page.parent / target).resolve()
            assert found.is_file(), target
            assert DOCS in found.parents, f"{target} is not part of the site"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("evidence"))
    (tmp_path / "src").symlink_to(ROOT / "src")
    built = subprocess.run(
        [sys.executable, "-P", "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    reference = (site / "reference" / "index.html").read_text("utf-8")
    # The docstrings are there, and not only their names.
    assert "Run two paths side by side over banks, widths and ranks" in reference
    # A page becomes a directory: its link to a file beside it must still lead there.
    assert 'href="../policy.schema.json"' in (site / "policy" / "index.html").read_text("utf-8")
    schema = (site / "policy.schema.json").read_bytes()
    assert schema == (DOCS / "policy.schema.json").read_bytes()


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert {page.name for page in DOCS.glob("*.md")} == set(re.findall(r"[\w-]+\.md", navigation))


def test_the_page_of_commands_is_made_from_the_commands() -> None:
    spec = spec_from_file_location("commands", DOCS / "commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert module.commands_page() == written, "run python -P docs/commands.py"


def test_a_page_that_prints_something_else_is_told() -> None:
    block = Block("console", "", "$ neartie plan --rate 1e-3\nTo certify nothing\n...\n", 7)
    ((words, shown),) = commands_of(block)
    assert words == ["neartie", "plan", "--rate", "1e-3"]
    with pytest.raises(AssertionError, match="page, line 7: does not print"):
        assert_prints(["To certify a set rate"], shown, "page, line 7")
    with pytest.raises(AssertionError, match="prints more"):
        assert_prints(["one", "two"], ["one"], "page")
    with pytest.raises(AssertionError, match="left out before the first"):
        assert_prints(["one", "two"], ["two"], "page")
    assert_prints(["one", "two", "three"], ["...", "two", "..."], "page")


def test_a_fence_that_would_not_run_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n  ```python\n  1 / 0\n  ```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="unknown form"):
        blocks_of(page)
    page.write_text("```sh\nrm\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="nothing runs a sh block"):
        PageRun(page.name).run(blocks_of(page)[0])
