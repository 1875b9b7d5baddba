"""Wrong latent and logits are found on every row, rank, width and chunk, whoever holds them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.result import AuditResult

BANK = "gaussian:geometry=mini,rows=200,seed=4"


def spoilt(spoil: Any) -> WrappedPath:
    return WrappedPath(spoil, name="spoilt-route")


def audit(spoil: Any, both: bool = False, ranks: int = 2, rows: Any = (20,)) -> AuditResult:
    baseline = spoilt(spoil) if both else "general"
    return neartie.run_audit(
        BANK, baseline=baseline, candidate=spoilt(spoil), rows=rows, ranks=ranks
    )


def failing(result: AuditResult) -> set[str]:
    reasons = result.record["verdict"]["reasons"]
    return {r["code"] for r in reasons if r["state"] == "FAIL"}


def latent_nan(launch: Any, out: Any) -> None:
    out.latent[:] = np.nan


def latent_one_nan(launch: Any, out: Any) -> None:
    out.latent[:, 150, 3] = np.nan


def latent_late_rows(launch: Any, out: Any) -> None:
    out.latent[:, 64:] = 7.0


def latent_reversed(launch: Any, out: Any) -> None:
    out.latent[:] = out.latent[:, :, ::-1]


def latent_last_rank(launch: Any, out: Any) -> None:
    out.latent[-1, 5] *= 2


def latent_wide_only(launch: Any, out: Any) -> None:
    if launch.width == 20:
        out.latent[:, 3] *= 1.5


def logits_shifted(launch: Any, out: Any) -> None:
    out.logits[:] += np.float32(3)


def logits_nan(launch: Any, out: Any) -> None:
    out.logits[:, 7, 7] = np.nan


def logits_off_by_1e_4(launch: Any, out: Any) -> None:
    out.logits[:, 11] += np.float32(1e-4)


FAULTS = {
    latent_nan: "nonfinite_output",
    latent_one_nan: "nonfinite_output",
    latent_late_rows: "schedule_mismatch",
    latent_reversed: "schedule_mismatch",
    latent_last_rank: "schedule_mismatch",
    latent_wide_only: "schedule_mismatch",
    logits_shifted: "wrong_logits",
    logits_nan: "nonfinite_output",
    logits_off_by_1e_4: "wrong_logits",
}


@pytest.mark.parametrize("both", [False, True], ids=["candidate", "both paths"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_wrong_values_fail(fault: Any, both: bool) -> None:
    result = audit(fault, both, rows=(9, 20))
    assert FAULTS[fault] in failing(result)
    # Found row by row, and not only in the pooled triangle, whose reason has the same code.
    assert FAULTS[fault] in {finding["name"] for finding in result.record["findings"]}
    assert result.record["provisional_class"] == "BEHAVIOURAL"


def test_a_later_chunk_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neartie.audit.bank_run.MAX_CHUNK_ROWS", 60)

    def last_row(launch: Any, out: Any) -> None:
        out.latent[:, launch.row_index == 199] = 0

    assert "schedule_mismatch" in failing(audit(last_row))


def test_wrong_logits_do_not_excuse_wrong_weights() -> None:
    def uniform(launch: Any, out: Any) -> None:
        out.logits[:] += np.float32(3)
        out.weights[:] = np.float32(1 / 16)

    assert {"wrong_logits", "flag:weights_not_from_ids"} <= failing(audit(uniform, both=True))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("reduce", ["one_shot_fp32", "running_bf16", "ring_bf16", "tree_bf16"])
def test_honest_paths_are_not_accused(reduce: str, ranks: int) -> None:
    result = neartie.run_audit(
        BANK,
        baseline=f"general:reduce={reduce},accumulate=fp32",
        candidate="route:accumulate=fp32",
        rows=[9],
        ranks=ranks,
    )
    assert failing(result) == set()
    assert result.record["schedule"]["fits"] is True


def latent_a_few_roundings(launch: Any, out: Any) -> None:
    """What another order of FP32 sums does: a BF16 step in 4 of 10,000 elements, on every rank."""
    view = out.latent.view(np.uint16).reshape(len(out.latent), -1)
    view[:, ::2500] += 1


@pytest.mark.parametrize("machine_dependent", [True, False])
def test_two_paths_of_one_declared_arithmetic_may_differ_where_the_bits_are_the_machine_s(
    machine_dependent: bool,
) -> None:
    candidate = spoilt(latent_a_few_roundings)
    candidate.declared = replace(candidate.declared, machine_dependent=machine_dependent)
    result = neartie.run_audit(BANK, baseline="route", candidate=candidate, rows=[20], ranks=2)
    assert result.record["widths"][0]["bits_equal"]["latent"] is False
    assert result.record["schedule"]["fits"] is machine_dependent
    assert ("schedule_mismatch" in failing(result)) is not machine_dependent


def test_a_machine_s_bits_excuse_no_wrong_row_beside_the_same_arithmetic() -> None:
    candidate = spoilt(latent_late_rows)
    candidate.declared = replace(candidate.declared, machine_dependent=True)
    result = neartie.run_audit(BANK, baseline="route", candidate=candidate, rows=[20], ranks=2)
    assert "schedule_mismatch" in failing(result)


def test_outputs_that_one_path_hides_are_not_compared() -> None:
    class Shy(WrappedPath):
        outputs = ("ids", "weights")

        def run(self, launch: Any, out: Any) -> None:
            from neartie.audit.launching import POISONS, poisoned_outputs

            whole = poisoned_outputs(self.base, launch, POISONS[0])
            self.base.run(launch, whole)
            out.ids[:], out.weights[:] = whole.ids, whole.weights

    result = neartie.run_audit(BANK, candidate=Shy(name="spoilt-route"), rows=[20], ranks=2)
    missing = {(m["tensor"], m["path"]) for m in result.record["not_compared"]}
    assert missing == {("latent", "candidate spoilt-route"), ("logits", "candidate spoilt-route")}
    assert result.numerics_class == "UNKNOWN"


def test_select_rows_do_not_dilute_a_difference_of_the_logits() -> None:
    banks = [BANK, "gaussian:geometry=mini,stage=logits,rows=100k"]
    pair = {"baseline": "route", "rows": [20], "ranks": 1}
    same = neartie.run_audit(banks, candidate="route:row_blocks=2", **pair)  # type: ignore[arg-type]
    assert same.record["widths"][0]["units"] == 100_200
    other = neartie.run_audit(banks, candidate="route:accumulate=fp32", **pair)  # type: ignore[arg-type]
    assert other.record["widths"][0]["units"] == 200
    assert other.record["widths"][0]["certified"] is False


def test_the_same_bank_twice_is_refused() -> None:
    from neartie.banks.errors import InputError

    with pytest.raises(InputError, match="but should be of one bank only"):
        neartie.run_audit(["k3-mini/layer0", "k3-mini/layer0"], rows=[9])
