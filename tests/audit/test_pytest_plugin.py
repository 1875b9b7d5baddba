"""The plugin in test runs of its own: evidence by test, fixtures, ids, and what it costs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import neartie
from neartie.audit import pytest_plugin
from neartie.audit.evidence.load import load_evidence
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.kept_evidence import EvidenceKeeper, directory_name
from neartie.audit.pytest_plugin import edge_banks, edge_biases, edge_logits
from neartie.banks.edges import (
    BIAS_EDGES,
    EDGE_BANKS,
    LOGIT_EDGES,
    UNANSWERABLE_EDGES,
    edge_spec,
)

TESTS = """
import pytest

import neartie
from neartie.audit.pytest_plugin import edge_banks, edge_biases
from neartie.banks.memory import memory_bank

LOGITS = "gaussian:geometry=16x8x32x4,rows=6,stage=logits"


def check(candidate, bank=LOGITS, **options):
    return neartie.assert_equivalent("route", candidate, bank, rows=[3], ranks=2, **options)


def test_passes():
    check("route")


def test_fails():
    check("route:select=radix_bf16", memory_bank(1, logits=[[0.5, 0.50001]] * 3))


def test_two_audits():
    check("route")
    check("route:select=hf")


def test_skips():
    check("flashinfer_topk", on_not_run="skip")


@pytest.mark.parametrize("bank", edge_banks("saturated", "bias=-inf", geometry="16x8x32x4", rows=6))
def test_edges(bank):
    check("route:row_blocks=2", bank)


@pytest.mark.parametrize("value", edge_biases())
def test_values(value):
    assert isinstance(value, float)


def test_factory(neartie_bank, neartie_tmp_bank):
    assert neartie_bank("near_tie", gap=2, rows=4).name == "near_tie:rows=4,gap=2"
    assert neartie_bank("k3-mini/tie-witness").rows == 20
    assert neartie_bank("near_tie:gap=2", rows=4).name == "near_tie:rows=4,gap=2"
    one = neartie_tmp_bank(memory_bank(1, logits=[[0.0, 1.0]]))
    two = neartie_tmp_bank(memory_bank(1, logits=[[0.0, 2.0]]))
    assert one.spec != two.spec
    assert neartie.open_bank(one.spec).digest == one.digest


@pytest.mark.parametrize("neartie_bank", ["k3-mini/tie-witness", "special:rows=8"], indirect=True)
def test_param(neartie_bank):
    assert neartie_bank.rows in (8, 20)


@pytest.mark.parametrize("name", ["../../x" + "y" * 300])
def test_long(name):
    check("route")


@pytest.fixture
def audited():
    return check("route")


def test_in_a_fixture(audited):
    assert audited.record["ranks"] == 2
"""

UNUSED = """
import sys

def test_unused():
    heavy = [name for name in ("torch", "numpy", "pyarrow", "numba") if name in sys.modules]
    assert heavy == []
    assert "neartie.audit.pytest_plugin" in sys.modules
    assert sorted(name for name in sys.modules if name.startswith("neartie")) == [
        "neartie", "neartie.audit", "neartie.audit.kept_evidence", "neartie.audit.pytest_plugin",
    ]
"""


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own in ``place``, with the plugin."""
    command = [sys.executable, "-P", "-m", "pytest", "-p", "neartie.audit.pytest_plugin"]
    return subprocess.run(
        [*command, "-W", "error", "-p", "no:cacheprovider", "-v", *words],
        capture_output=True,
        text=True,
        cwd=place,
        # An option of the outer run must not reach the inner one.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        check=False,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The tests above, run by a process of pytest-xdist, with ``--neartie-out``."""
    place = tmp_path_factory.mktemp("session")
    (place / "test_mine.py").write_text(TESTS)
    done = run(place, "-n", "1", "--neartie-out", "kept")
    found = re.finditer(r"(PASSED|FAILED|SKIPPED|ERROR) (\S+)", done.stdout)
    outcomes = {match[2]: match[1] for match in found}
    return SimpleNamespace(kept=place / "kept", outcomes=outcomes, done=done)


def outcome(session: SimpleNamespace, test: str) -> str:
    assert f"test_mine.py::{test}" in session.outcomes, session.done.stdout + session.done.stderr
    return str(session.outcomes[f"test_mine.py::{test}"])


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("test_passes", "PASSED"),
        ("test_fails", "FAILED"),
        ("test_two_audits", "PASSED"),
        ("test_skips", "SKIPPED"),
        ("test_edges[saturated]", "PASSED"),
        ("test_edges[bias=-inf]", "PASSED"),
        ("test_values[swallows_score]", "PASSED"),
        ("test_factory", "PASSED"),
        ("test_param[k3-mini/tie-witness]", "PASSED"),
        ("test_param[special:rows=8]", "PASSED"),
        ("test_in_a_fixture", "PASSED"),
    ],
)
def test_outcomes(session: SimpleNamespace, test: str, expected: str) -> None:
    assert outcome(session, test) == expected


def test_a_failing_test_shows_the_message_and_no_frame_of_ours(session: SimpleNamespace) -> None:
    shown = session.done.stdout
    assert "route:select=radix_bf16 is not shown to be equivalent to route: FAIL" in shown
    assert "repeat it: neartie audit " in shown
    assert "evidence: " in shown
    assert "equivalence.py:" not in shown


def test_every_audit_left_evidence_that_verifies(session: SimpleNamespace) -> None:
    names = {
        "test_mine.py-test_passes": 1,
        "test_mine.py-test_fails": 1,
        "test_mine.py-test_two_audits": 2,
        "test_mine.py-test_skips": 1,
        "test_mine.py-test_edges-saturated": 1,
        "test_mine.py-test_edges-bias=-inf": 1,
        "test_mine.py-test_long-": 1,
        "test_mine.py-test_in_a_fixture": 1,
    }
    found = sorted(path.name for path in session.kept.iterdir() if path.name != "banks")
    for name, count in names.items():
        assert sum(directory.startswith(name) for directory in found) == count, (name, found)
    assert len(found) == sum(names.values())
    for directory in found:
        verified = verify_evidence(session.kept / directory)
        assert verified.state == "PASS", verified.text()


def test_the_evidence_is_of_the_audit_of_that_test(session: SimpleNamespace) -> None:
    two = sorted(session.kept.glob("test_mine.py-test_two_audits-*"))
    records = [load_evidence(place).record for place in two]
    assert {record["candidate"]["name"] for record in records} == {"route", "route:select=hf"}
    skipped = next(session.kept.glob("test_mine.py-test_skips-*"))
    assert load_evidence(skipped).record["verdict"]["state"] == "NOT_RUN"


def test_a_run_that_uses_nothing_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)
    done = run(tmp_path, "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout + done.stderr


def test_old_evidence_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    (tmp_path / "kept").mkdir()
    assert run(tmp_path, "--neartie-out", "kept").returncode == 0
    (tmp_path / "kept" / "old").write_text("")
    done = run(tmp_path, "--neartie-out", "kept")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --neartie-out=kept, but should be a new or empty directory" in done.stderr
    done = run(tmp_path, "--neartie-out", "/proc/nothing")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --neartie-out=/proc/nothing, but should be" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_names_are_safe_short_and_different() -> None:
    names = [directory_name(f"a/b.py::test[{text}]") for text in ("x/y", "x:y", "x" * 400, "é", "")]
    assert len(set(names)) == 5
    for name in [*names, directory_name("::"), directory_name("..")]:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,120}", name), name


def test_a_directory_that_is_there_is_passed_over(tmp_path: Path) -> None:
    keeper = EvidenceKeeper(tmp_path)
    assert keeper.next_directory() is None
    keeper.begin("test")
    first = keeper.next_directory()
    assert first is not None
    (tmp_path / f"{first.name}-2").mkdir()
    second = keeper.next_directory()
    assert second == tmp_path / f"{first.name}-3"
    keeper.end()
    assert keeper.next_directory() is None


def test_edge_values_are_named_parameters() -> None:
    for parameters, edges in (
        (edge_banks(*EDGE_BANKS), EDGE_BANKS),
        (edge_logits(), LOGIT_EDGES),
        (edge_biases(), BIAS_EDGES),
    ):
        assert [parameter.id for parameter in parameters] == list(edges)


@pytest.mark.parametrize("name", EDGE_BANKS)
def test_a_right_path_passes_every_edge_that_can_be_answered(name: str) -> None:
    spec = edge_spec(name, geometry="16x8x32x4", rows=10)
    if name not in UNANSWERABLE_EDGES:
        # Beyond 8 rows both run the same select; below, the fused one passes over infinite biases.
        neartie.assert_equivalent("general", "route", spec, rows=[9], ranks=2)
        assert spec in [
            parameter.values[0] for parameter in edge_banks(geometry="16x8x32x4", rows=10)
        ]
        return
    # Not even against itself.
    with pytest.raises(AssertionError, match=r"zero_sum_weights|nonfinite_expert_selected"):
        neartie.assert_equivalent("route", "route", spec, rows=[9], ranks=2)


def test_the_entry_point_is_called_as_the_module() -> None:
    """So ``-p neartie.audit.pytest_plugin`` and the entry point are one plugin, not two."""
    project = Path(neartie.__file__).resolve().parents[2] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("an installed package has no pyproject.toml beside it")
    points = tomllib.loads(project.read_text())["project"]["entry-points"]["pytest11"]
    assert points == {pytest_plugin.__name__: pytest_plugin.__name__}
