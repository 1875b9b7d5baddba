"""The examples of docs/testing.md run: tests pass, and what is printed is what is shown."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from neartie.audit import pytest_plugin

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SHOWN = {BLOCKS[i - 1][1]: text for i, (kind, text) in enumerate(BLOCKS) if kind == "text"}
"""What blocks print, by the block before it."""
SCRIPTS = [text for kind, text in BLOCKS if kind == "python" and "def test_" not in text]
TESTS = [text for kind, text in BLOCKS if kind == "python" and "def test_" in text]


def test_every_block_is_one_that_is_run() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "text"}
    assert set(SHOWN) == set(SCRIPTS)
    assert (len(SCRIPTS), len(TESTS)) == (2, 5)


@pytest.mark.parametrize("block", SCRIPTS, ids=range(len(SCRIPTS)))
def test_scripts_print_what_is_shown(block: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "docs/testing.md", "exec"), {})
    assert printed.getvalue() == SHOWN[block]


class Outcomes:
    """A plugin of the inner run: what became of its tests."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid.rpartition("::")[2])
        elif not report.passed:
            self.others.append(f"{report.nodeid}: {report.longreprtext}")


def test_the_tests_pass(tmp_path: Path) -> None:
    for number, block in enumerate(TESTS):
        (tmp_path / f"test_block_{number}.py").write_text(block)
    outcomes = Outcomes()
    words = ["-q", "-p", "no:cacheprovider"]
    own = ["--rootdir", str(tmp_path), "-c", str(tmp_path / "none.ini"), "--import-mode=importlib"]
    (tmp_path / "none.ini").write_text("[pytest]\n")
    # In this process, so that what it needs is imported once.
    status = pytest.main([*words, *own, str(tmp_path)], plugins=[outcomes, pytest_plugin])
    assert (status, outcomes.others) == (pytest.ExitCode.OK, [])
    for name in (
        "test_route_may_replace_general",
        "test_the_default_contract_leaves_ties_open",
        "test_lower_id_holds_a_path_to_its_tie_rule",
        "test_two_workers_copy_the_same_bits[saturated]",
        "test_two_workers_copy_the_same_bits[bias=-inf]",
        "test_two_workers_copy_the_same_bits[gap=1]",
        "test_my_rows",
        "test_my_select_takes_the_higher_key_and_then_the_lower_id",
        "test_row_blocks_change_no_bit",
    ):
        assert name in outcomes.passed
