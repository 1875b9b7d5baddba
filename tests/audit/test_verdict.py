"""Every rule of the verdict, and every limit moved by one step."""

from dataclasses import replace
from typing import Any

import pytest

from neartie.audit.observed import BatchFinding, Coverage, Observed, ScheduleFit, WidthSummary
from neartie.audit.policy import Policy
from neartie.audit.verdict import NumericsClass, State, judge

CLASSES = (
    "identical",
    "reordered",
    "exact_tie",
    "tie_group",
    "group_tie",
    "near_tie",
    "noise_swap",
    "far_swap",
    "multi_swap",
    "invalid",
)
ROWS = 100_000
RAN = (Coverage("bank", 20, True),)
FITS = ScheduleFit("one_shot_fp32 against gather", "one_shot_fp32 against gather", 0.0, 0.01, True)


def width(**changes: Any) -> Any:
    counts = {name: 0 for name in CLASSES} | {"identical": ROWS}
    for name in [key for key in changes if key in CLASSES]:
        counts[name] = changes.pop(name)
        if name != "identical":
            counts["identical"] -= counts[name]
    base = WidthSummary(
        width=20,
        rows=ROWS,
        unique_rows=ROWS,
        units=ROWS,
        differing_units=0,
        counts=counts,
        set_rate=0.0,
        set_rate_upper=3e-5,
        certified=True,
        confidence=0.95,
        max_weight_ulp=1,
        weight_classes={"equal": ROWS},
        flags={"baseline": {}, "candidate": {}},
        breaches={"baseline": {}, "candidate": {}},
        bits_equal={"latent": False, "logits": True, "ids": True, "weights": False},
        rho=0.19,
    )
    return replace(base, **changes)


def observed(
    *widths: WidthSummary, findings: Any = (), coverage: Any = RAN, schedule: Any = FITS
) -> Observed:
    return Observed(list(widths), list(findings), list(coverage), schedule)


def verdict(*widths: Any, policy: Any = None, **changes: Any) -> Any:
    return judge(observed(*widths, **changes), policy or Policy())


def test_a_clean_pair_passes_as_light_with_the_structural_tag() -> None:
    result = verdict(width())
    assert (result.state, result.numerics_class) == (State.PASS, NumericsClass.LIGHT)
    assert result.structural_tag == "BF16-structural"
    assert result.exit_status == 0


def test_without_latent_differences_the_tag_is_fp32() -> None:
    equal = {"latent": True, "logits": False, "ids": True, "weights": False}
    assert verdict(width(bits_equal=equal)).structural_tag == "FP32-structural"


def test_bitwise_needs_every_output_equal() -> None:
    equal = {"latent": True, "logits": True, "ids": True, "weights": True}
    assert verdict(width(bits_equal=equal)).numerics_class is NumericsClass.BITWISE
    for name in equal:
        one_off = verdict(width(bits_equal=equal | {name: False}))
        assert one_off.numerics_class is not NumericsClass.BITWISE


def test_reorder_is_the_same_sets_and_weights_in_other_slots() -> None:
    bits = {"latent": True, "logits": True, "ids": False, "weights": False}
    result = verdict(width(reordered=7, bits_equal=bits, max_weight_ulp=0))
    assert result.numerics_class is NumericsClass.REORDER


@pytest.mark.parametrize("name", ["exact_tie", "near_tie", "group_tie"])
def test_ties_are_disclosed_and_stay_light(name: Any) -> None:
    result = verdict(width(**{name: 1}))
    assert result.state is State.PASS_WITH_LIMITATIONS
    assert result.numerics_class is NumericsClass.LIGHT


@pytest.mark.parametrize("name", ["exact_tie", "group_tie", "tie_group"])
def test_the_lower_id_contract_fails_exact_ties(name: Any) -> None:
    result = verdict(width(**{name: 1}), policy=Policy(tie_contract="lower_id"))
    assert result.state is State.FAIL
    assert any("lower id" in reason.text for reason in result.reasons)


def test_a_near_tie_does_not_break_the_lower_id_contract() -> None:
    result = verdict(width(near_tie=1), policy=Policy(tie_contract="lower_id"))
    assert result.state is State.PASS_WITH_LIMITATIONS


@pytest.mark.parametrize("name", ["far_swap", "multi_swap", "tie_group"])
def test_unexplained_swaps_are_behavioural(name: Any) -> None:
    result = verdict(width(**{name: 1}))
    assert (result.state, result.numerics_class) == (State.FAIL, NumericsClass.BEHAVIOURAL)
    assert result.exit_status == 1


def test_a_tie_group_passes_where_the_policy_allows_it() -> None:
    assert verdict(width(tie_group=1), policy=Policy(one_for_one=False)).exit_status == 0


def test_noise_swaps_are_visible() -> None:
    result = verdict(width(noise_swap=1))
    assert result.numerics_class is NumericsClass.VISIBLE


@pytest.mark.parametrize(("largest", "state"), [(8, State.PASS), (9, State.FAIL)])
def test_weight_budget_at_its_edge(largest: Any, state: Any) -> None:
    assert verdict(width(max_weight_ulp=largest)).state is state


def test_undefined_weight_distances_are_not_compared_with_the_budget() -> None:
    assert verdict(width(max_weight_ulp=None)).state is State.PASS


def test_zero_rows_fail() -> None:
    result = verdict(schedule=None)
    assert result.state is State.FAIL
    assert result.reasons[0].text == "zero rows were compared"
    assert result.numerics_class is NumericsClass.UNKNOWN


def test_nothing_run_is_not_run_and_not_silence() -> None:
    result = verdict(coverage=[Coverage("bank", 20, False, "no device")], schedule=None)
    assert (result.state, result.exit_status) == (State.NOT_RUN, 3)
    assert result.reasons[0].text == "bank at width 20 was not run: no device"


def test_a_missing_width_is_inconclusive_and_the_class_unknown() -> None:
    gone = [Coverage("bank", 20, True), Coverage("bank", 12, False, "not recorded")]
    result = verdict(width(), coverage=gone)
    assert (result.state, result.exit_status) == (State.INCONCLUSIVE, 3)
    assert result.numerics_class is NumericsClass.UNKNOWN
    assert result.provisional_class is NumericsClass.LIGHT


def test_too_few_rows_are_inconclusive_and_say_how_many_would_do() -> None:
    result = verdict(width(units=960, certified=False, set_rate_upper=3.1e-3))
    assert result.state is State.INCONCLUSIVE
    assert result.numerics_class is NumericsClass.UNKNOWN
    assert "59,914 units would certify it" in result.reasons[0].text


def test_rows_that_are_no_sample_bound_no_rate() -> None:
    result = verdict(width(exact_tie=3, units=0, certified=False, set_rate_upper=1.0))
    assert result.state is State.INCONCLUSIVE
    assert any("no rate is bounded" in reason.text for reason in result.reasons)


def test_one_event_in_960_does_not_contradict_a_rate_of_5e_5_over_five_widths() -> None:
    small = [
        width(units=960, differing_units=k, near_tie=k, certified=False) for k in (0, 0, 0, 0, 1)
    ]
    assert verdict(*small).state is State.INCONCLUSIVE


def test_a_rate_that_is_surely_above_the_limit_fails() -> None:
    result = verdict(width(near_tie=50, differing_units=50, certified=False, set_rate_upper=7e-4))
    assert result.state is State.FAIL
    assert any(reason.code == "set_rate" for reason in result.reasons)


@pytest.mark.parametrize("kind", ["flags", "breaches"])
@pytest.mark.parametrize("path", ["baseline", "candidate"])
def test_contract_failures_name_path_and_rule(kind: Any, path: Any) -> None:
    table: dict[str, dict[str, int]] = {"baseline": {}, "candidate": {}}
    table |= {path: {"some_rule": 3}}
    result = verdict(width(**{kind: table}))
    assert result.state is State.FAIL
    assert result.reasons[0].text == f"{path} at width 20: some_rule in 3 of 100,000 rows"


def test_findings_fail_or_are_disclosed() -> None:
    finding = BatchFinding("rank_disagreement", "candidate x", "bank", 20, 4, "ids of rank 3")
    failed = verdict(width(), findings=[finding])
    assert failed.state is State.FAIL
    assert failed.reasons[0].text == (
        "rank_disagreement: candidate x on bank at width 20: ids of rank 3"
    )
    disclosed = verdict(width(), findings=[replace(finding, fails=False)])
    assert disclosed.state is State.PASS_WITH_LIMITATIONS


def test_errors_that_do_not_fit_the_declared_schedule_fail() -> None:
    off = ScheduleFit("one_shot_fp32 against gather", "tree_bf16 against gather", 0.41, 0.01, False)
    result = verdict(width(), schedule=off)
    assert result.state is State.FAIL
    assert "nearest is tree_bf16" in result.reasons[0].text


def test_a_difference_without_a_declared_schedule_is_inconclusive() -> None:
    result = verdict(
        width(), schedule=ScheduleFit("nothing against gather", "none", None, None, None)
    )
    assert result.state is State.INCONCLUSIVE
    assert result.numerics_class is NumericsClass.UNKNOWN


def test_the_gravest_reason_decides() -> None:
    result = verdict(width(far_swap=1, certified=False, units=10))
    assert result.state is State.FAIL
    assert {reason.state for reason in result.reasons} == {State.FAIL, State.INCONCLUSIVE}
