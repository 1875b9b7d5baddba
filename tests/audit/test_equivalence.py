"""``assert_equivalent``: what passes, what fails, and what a failing one says."""

import shlex
import sys
import unittest
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit import cli, equivalence
from neartie.audit.equivalence import NotEquivalentError, objections
from neartie.audit.evidence.load import load_evidence
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.result import AuditResult
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.memory import memory_bank
from neartie.kernels.contract import Launch

BANK = "gaussian:geometry=mini,rows=24"
LOGITS = "gaussian:geometry=mini,rows=24,stage=logits"


def check(candidate: Any = "route", bank: Any = LOGITS, **options: Any) -> AuditResult:
    given: dict[str, Any] = {"baseline": "route", "rows": [9, 12], "ranks": 2}
    return neartie.assert_equivalent(candidate=candidate, bank=bank, **given | options)


def message(candidate: Any, bank: Any = LOGITS, **options: Any) -> str:
    """What the failing assertion says; a skip would skip this test, which looks like a pass."""
    with pytest.raises((NotEquivalentError, pytest.skip.Exception)) as caught:
        check(candidate, bank, **options)
    error = caught.value
    assert isinstance(error, NotEquivalentError)
    assert isinstance(error, AssertionError)
    assert error.result.record["verdict"]
    return str(error)


@pytest.fixture(autouse=True)
def _no_outer_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer run's ``--neartie-out`` is for its tests, not for what they test."""
    monkeypatch.setattr(equivalence, "next_directory", lambda: None)


def test_few_equal_rows_pass_and_say_that_nothing_is_signed() -> None:
    result = check(bank=BANK, baseline="general")
    assert result.record["verdict"]["state"] == "INCONCLUSIVE"
    assert (result.numerics_class, result.record["provisional_class"]) == ("UNKNOWN", "LIGHT")


def test_with_certified_few_rows_fail() -> None:
    text = message("route", memory_bank(1, logits=[[0.0, 1.0]] * 9), certified=True, ranks=1)
    assert "INCONCLUSIVE, NUMERICS-UNKNOWN (so far BITWISE: coverage too small)" in text
    assert "no rate is bounded" in text


def swaps(launch: Any, out: Any) -> None:
    """The last slot goes to an expert that is not chosen."""
    for rank, row in np.ndindex(*out.ids.shape[:2]):
        free = set(range(launch.geometry.experts)) - set(out.ids[rank, row].tolist())
        out.ids[rank, row, -1] = min(free)


def bf16_weights(launch: Any, out: Any) -> None:
    out.weights[:] = (out.weights.view(np.uint32) & 0xFFFF0000).view(np.float32)


def duplicate(launch: Any, out: Any) -> None:
    out.ids[:, 0, 1] = out.ids[:, 0, 0]


def nothing_written(launch: Any, out: Any) -> None:
    out.weights.view(np.uint32)[:, -1] = 0x7FA5A5A5


FAULTS: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "swaps": (swaps, "far_swap"),
    "bf16_weights": (bf16_weights, "narrowed_bf16"),
    "duplicate": (duplicate, "duplicate_id"),
    "nothing_written": (nothing_written, "poison_survives"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_fail_by_name(name: str) -> None:
    fault, word = FAULTS[name]
    text = message(WrappedPath(fault))
    assert f"faulty-{name} is not shown to be equivalent to route: FAIL" in text
    assert word in text


def test_the_message_is_one_to_act_on() -> None:
    text = message("route:select=radix_bf16", "near_tie:gap=3,geometry=mini,rows=24")
    for phrase in (
        "route:select=radix_bf16 is not shown to be equivalent to route: FAIL, NUMERICS-BEHAV",
        "\nwhy:\n  - candidate at width 9: weights_not_from_ids in 48 of 48 rows",
        "far_swap: 24 of 48 rows at width 9, beyond the window of 2 ULP",
        "seen: near_tie:rows=24,gap=3 (24 rows); 2 ranks, cpu, policy default",
        "width 9, 12: reordered 24, far_swap 24 of 48 row x rank (24 rows)",
        "set rate: no row is an independent sample, so none is bounded (limit 5e-05)",
        "FP32 ULP apart, budget 8, at near_tie:rows=24,gap=3 row ",
        "worst row (of 24 certificates",
        "far_swap: near_tie:rows=24,gap=3 row ",
        "(slot 14, reference rank 15), adds 0 (slot 0, reference rank 17); gap 10,879 ULP in FP32",
        "repeat it: neartie audit near_tie:rows=24,gap=3 --baseline route "
        "--candidate route:select=radix_bf16 --rows 9,12 --ranks 2 --no-gate",
    ):
        assert phrase in text
    assert len(text.splitlines()) < 30
    # What happened comes before what may have caused it.
    assert text.index("far_swap: 24") < text.index("explained_by:")


def one_weight(launch: Any, out: Any) -> None:
    """One row of the launch, its last slot; the slots are turned round, as ids may be."""
    out.ids[:], out.weights[:] = out.ids[:, :, ::-1].copy(), out.weights[:, :, ::-1].copy()
    out.weights[:, 1, 0] *= np.float32(0.5)


def test_a_wrong_weight_is_named_with_its_slot_expert_and_values() -> None:
    result = neartie.run_audit(
        LOGITS, baseline="route", candidate=WrappedPath(one_weight), rows=[9], ranks=2, gate=False
    )
    ((place, worst),) = result.worst_weights.items()
    (width,) = result.record["widths"]
    assert place == (width["worst_weight"]["bank"], 9)
    row = neartie.replay_row(LOGITS, row=width["worst_weight"]["row"], width=9, ranks=2)
    assert row.ids["candidate"][0, -1] == worst.expert
    expected = row.weights["candidate"][0, -1]
    assert (worst.slot, np.float32(worst.expected)) == (0, expected)
    assert np.float32(worst.got) == expected * np.float32(0.5)
    assert worst.ulp == width["max_weight_ulp"]
    text = message(WrappedPath(one_weight))
    assert (
        f"\n  {place[0]} row {width['worst_weight']['row']}, rank 0, width 9, slot 0 (expert "
        f"{worst.expert}): got {worst.got} of the candidate, expected {worst.expected} of the "
        f"baseline, {worst.ulp:,} FP32 ULP apart\n"
    ) in text


def test_rates_of_independent_rows_are_told_with_their_bound() -> None:
    text = message(WrappedPath(swaps))
    assert "set rate 1.00e+00 (24 of 24 independent), at most 1.00e+00 at 95%, limit 5e-05" in text


def code_in(text: str) -> str:
    """The code that a message says rebuilds its row."""
    lines = text.splitlines()
    first = lines.index("    import neartie")
    last = next(i for i, line in enumerate(lines) if i > first and not line.startswith("    "))
    return "\n".join(line.strip() for line in lines[first:last])


@pytest.mark.parametrize(
    ("candidate", "bank"),
    [
        ("route:select=radix_bf16", "near_tie:gap=3,geometry=mini,rows=24"),
        ("route:select=radix_bf16", memory_bank(1, logits=[[0.5, 0.50001]] * 3, bias=[0.0, 0.0])),
        (WrappedPath(bf16_weights), LOGITS),
    ],
)
def test_the_code_in_the_message_rebuilds_the_row(
    candidate: Any, bank: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code = code_in(message(candidate, bank, rows=[3]))
    if isinstance(candidate, WrappedPath):
        assert "candidate = ...  # faulty-bf16_weights: the object that was passed" in code
        code = code.replace("candidate = ...", "candidate = given")
    exec(compile(code, "message", "exec"), {"given": candidate, "inf": inf, "nan": nan})
    printed = capsys.readouterr().out
    assert "place  expert  biased score" in printed
    assert ("float32" in printed) == isinstance(candidate, WrappedPath)


def test_the_command_in_the_message_repeats_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "strict.toml"
    policy.write_text("weight_budget_ulp = 0\n")
    text = message("route:select=hf", policy=policy)
    command = text.rpartition("repeat it: ")[2].splitlines()[0]
    assert shlex.split(command)[-3:] == ["--policy", str(policy), "--no-gate"]
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    assert cli.exit_status() == 1
    assert "budget 0" in capsys.readouterr().out


def test_what_no_command_can_name_is_told() -> None:
    text = message(
        WrappedPath(swaps), memory_bank(1, logits=[[0.0, 1.0]] * 3), policy=neartie.Policy()
    )
    last = text.splitlines()[-1]
    assert last.startswith("no command repeats it: bank memory-")
    assert "candidate is an object (pass 'module:factory' to have it named)" in last
    assert last.endswith("the policy is an object")


def test_allow_is_the_class_of_the_rows_seen() -> None:
    assert check("route", allow=["BITWISE"]).record["provisional_class"] == "BITWISE"
    assert check("route:select=hf").record["provisional_class"] == "LIGHT"
    text = message("route:select=hf", allow=["BITWISE", "REORDER"])
    assert "the rows seen are LIGHT, and this test allows BITWISE, REORDER" in text
    policy = neartie.Policy(allowed_classes=("BITWISE",))
    text = message("route:select=hf", policy=policy)
    assert "the rows seen are LIGHT, and the policy allows BITWISE" in text


def test_a_policy_that_demands_coverage_does_not_pass_by_few_widths() -> None:
    policy = neartie.Policy.model_validate({"coverage": {"widths": [20]}})
    assert "required coverage is missing" in message("route", policy=policy)


class Narrow(WrappedPath):
    """A path that takes up to 9 rows, where it can run."""

    reason: str | None = None

    def unavailable(self) -> Any:
        return self.reason

    def check(self, launch: Launch) -> None:
        if launch.width > 9:
            raise EnvelopeError("width", launch.width, "1..9", self.name)


def test_a_width_that_was_not_run_fails_even_where_a_skip_is_allowed() -> None:
    for on_not_run in ("fail", "skip"):
        text = message(Narrow(name="narrow"), on_not_run=on_not_run)
        assert "at width 12 was not run: narrow: width=12, but should be 1..9" in text
    assert check(Narrow(name="narrow"), rows=[9])


def test_nothing_run_fails_unless_the_test_says_skip() -> None:
    absent = Narrow(name="absent")
    absent.reason = "needs a GPU"
    text = message(absent, rows=[9])
    assert "absent is not shown to be equivalent to route: NOT_RUN" in text
    assert "at width 9 was not run: absent: needs a GPU" in text
    with pytest.raises(pytest.skip.Exception, match=r"neartie: not run: .*needs a GPU"):
        check(absent, rows=[9], on_not_run="skip")


def test_a_path_that_raises_is_no_reason_to_skip() -> None:
    class Raises(WrappedPath):
        def run(self, launch: Any, out: Any) -> None:
            raise KeyError("boom\nverdict  PASS")

    text = message(Raises(name="raises"), rows=[9], on_not_run="skip")
    assert "raises raised KeyError" in text
    assert "\nverdict  PASS" not in text


def test_without_pytest_a_skip_is_that_of_unittest(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Narrow(name="absent")
    absent.reason = "needs a GPU"
    monkeypatch.delitem(sys.modules, "pytest")
    with pytest.raises(unittest.SkipTest, match="needs a GPU"):
        check(absent, rows=[9], on_not_run="skip")


def test_the_objections_can_be_asked_of_any_audit(small_audit: AuditResult) -> None:
    assert objections(small_audit) == []
    assert objections(small_audit, ["BITWISE"]) == [
        "the rows seen are LIGHT, and this test allows BITWISE"
    ]
    assert all("set rate" in text for text in objections(small_audit, certified=True))
    assert len(objections(small_audit, certified=True)) == 2


def test_evidence_of_banks_in_memory_verifies(tmp_path: Path) -> None:
    bank = memory_bank(1, logits=[[0.5, 0.50001]] * 3)
    with pytest.raises(NotEquivalentError) as caught:
        check("route:select=radix_bf16", bank, rows=[3], out=tmp_path / "run" / "one")
    assert f"evidence: {tmp_path / 'run' / 'one'}" in str(caught.value)
    found = verify_evidence(tmp_path / "run" / "one")
    assert found.state == "PASS", found.text()
    stored = tmp_path / "run" / "banks" / "one-1"
    record = load_evidence(tmp_path / "run" / "one").record
    assert record["banks"][0]["spec"] == str(stored)
    # The bank has a place now, so there is a command.
    assert f"repeat it: neartie audit {stored} " in str(caught.value)
    assert record["command"] in str(caught.value)
    with pytest.raises(InputError, match="should be a new or empty directory"):
        check("route", bank, rows=[3], out=tmp_path / "run" / "one")


def test_a_bank_with_other_weights_is_told_and_stored_too(tmp_path: Path) -> None:
    bank = neartie.open_bank(LOGITS)
    other = bank.with_weights(correction_bias=np.ones(896, np.float32))
    text = message("route:select=radix_bf16", other)
    assert f"bank = ...  # {other.name}, in memory: the object that was passed" in text
    assert f"no command repeats it: bank {other.name} is in memory" in text
    check("route", other, out=tmp_path / "one")
    found = verify_evidence(tmp_path / "one")
    assert found.state == "PASS", found.text()
    (entry,) = load_evidence(tmp_path / "one").record["banks"]
    stored = neartie.open_bank(entry["spec"])
    assert (stored.weights["correction_bias"] == 1).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"allow": []}, "allow=[], but should be some of BITWISE, REORDER, LIGHT, VISIBLE"),
        ({"allow": ["BEHAVIOURAL"]}, "allow=['BEHAVIOURAL'], but should be some of"),
        ({"allow": "LIGHT"}, "allow=LIGHT, but should be some of"),
        ({"on_not_run": "pass"}, "on_not_run=pass, but should be fail or skip"),
        ({"rows": [21]}, "width=21, but should be 1..20 [rows]"),
        ({"policy": "nowhere.toml"}, "nowhere.toml"),
    ],
)
def test_bad_arguments_are_no_assertion(options: Any, text: str) -> None:
    with pytest.raises(InputError) as caught:
        check("route", **options)
    assert text in str(caught.value)
