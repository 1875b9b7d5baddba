import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from neartie.audit.explain.case_format import parse_cases
from neartie.audit.explain.explain import explain_rows
from neartie.audit.explain.reduction_orders import same_sum
from neartie.audit.policy import Policy
from neartie.banks.errors import InputError

DATA = Path(__file__).parents[1] / "data"
FILES = ("router_cases.json", "router_cases_more.json")
Case = dict[str, Any]

# Words whose value must be the report's, in any order where it is a list.
SAME = {
    "verdict", "verdict_if_tie_break_lower_id", "verdict_if_flush_to_zero_declared", "set_class",
    "weight_class", "breach", "invalid_paths", "dropped", "added", "gap_ulp", "max_weight_ulp",
    "set_equal", "order_equal", "n_swapped", "bad_rows", "first_bad_row", "gap_bf16_logit_ulp",
    "group_gap_ulp", "gap_ulp_max_pair", "fp64_top_ids", "b_representable_in_bf16",
    "single_row_is_identical", "naive_bit_ulp", "weight_class_null",
}  # fmt: skip
NEAR = {"ratio", "logit_gap"}
# Names that the report must hold among others.
HELD = {"flags", "flags_a", "flags_b", "input_flags", "breaches_a", "breaches_b"}
BOUNDS = {"gap_ulp_min", "gap_ulp_max"}


def cases() -> list[Case]:
    return [case for name in FILES for case in json.loads((DATA / name).read_text())]


def by_id(name: str) -> Case:
    return next(case for case in cases() if case["id"] == name)


def explain(case: Case, **policy: Any) -> dict[str, Any]:
    result = explain_rows(case, Policy(**policy)).as_dict()["cases"]
    assert len(result) == 1
    report: dict[str, Any] = result[0]
    return report


@functools.cache
def report_of(name: str) -> dict[str, Any]:
    """The report of a case under the default policy."""
    return explain(by_id(name))


def mismatch(word: str, wanted: Any, report: dict[str, Any]) -> str | None:
    """What is wrong with one word of ``expected``, or None."""
    if word in SAME:
        got = report.get(word)
        alike = sorted(got) == sorted(wanted) if isinstance(got, list) else got == wanted
    elif word in NEAR:
        got = report.get(word)
        alike = got == pytest.approx(wanted, rel=1e-6)
    elif word in HELD:
        got = report.get(word)
        alike = got is not None and set(wanted) <= set(got)
    elif word in BOUNDS:
        got = report.get("gap_ulp")
        alike = got is not None and (got >= wanted if word.endswith("_min") else got <= wanted)
    elif word == "finding":
        got = report["findings"]
        alike = (wanted in got) if wanted else got == []
    elif word.startswith("matches_hypothesis_"):
        got = report["hypotheses_" + word[-1]]
        alike = wanted in got
    elif word == "note":
        return None
    else:
        return f"{word}: no such word"
    return None if alike else f"{word}={got}, but should be {wanted}"


def mismatches(case: Case, report: dict[str, Any]) -> list[str]:
    found = (mismatch(word, wanted, report) for word, wanted in case["expected"].items())
    return [text for text in found if text is not None]


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["id"]))
def test_expected_block(case: Case) -> None:
    report = report_of(case["id"])
    assert case["expected"]
    assert mismatches(case, report) == [], report["reasons"]


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case["id"]))
def test_report_has_the_common_words(case: Case) -> None:
    report = report_of(case["id"])
    assert {"id", "verdict", "findings", "invalid_paths", "rows", "reasons"} <= set(report)
    for row in report["rows"]:
        assert {"verdict", "findings", "set_class", "weight_class", "flags"} <= set(row)
        if case["scoring"]["function"] != "reduction":
            assert {"breaches_a", "breaches_b", "dropped", "added", "gap_ulp"} <= set(row)
    # A verdict that is not a pass says why; a pass has nothing to say.
    assert (report["verdict"] == "pass") == (report["reasons"] == [])


def test_an_unknown_word_and_a_wrong_value_are_told() -> None:
    case = by_id("C38")
    report = explain(case)
    assert mismatches({"expected": {"colour": 1}}, report) == ["colour: no such word"]
    assert mismatches({"expected": {"set_class": "far_swap"}}, report)
    assert mismatches({"expected": {"gap_ulp_max": 0}}, report)
    assert mismatches({"expected": {"flags": ["negative_weight"]}}, report)
    assert mismatches({"expected": {"finding": "stride"}}, report)


def test_json_is_strict_and_a_list_keeps_its_order() -> None:
    everything = list(cases())
    result = explain_rows(everything)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    parsed = json.loads(result.to_json(), parse_constant=refuse)
    assert [case["id"] for case in parsed["cases"]] == [case["id"] for case in everything]
    assert parsed == result.as_dict()


def test_file_text_object_and_list_are_the_same() -> None:
    case = by_id("C01")
    path = DATA / "router_cases.json"
    first = explain_rows(case).as_dict()["cases"][0]
    assert explain_rows(json.dumps(case)).as_dict()["cases"] == [first]
    assert explain_rows([case]).as_dict()["cases"] == [first]
    assert explain_rows(path).as_dict()["cases"][0] == first
    assert explain_rows(str(path)).as_dict()["cases"][0] == first


def test_text_names_experts_slots_gap_and_window() -> None:
    text = explain_rows(by_id("C01")).text()
    assert text.startswith("C01: FAIL")
    for phrase in ("expert 1 (slot 1)", "7 (slot 1)", "25 ULP", "window 2"):
        assert phrase in text


# One number of a case or policy, moved by one step, changes the verdict.
def test_window_is_inclusive() -> None:
    near, far = by_id("C38"), by_id("C39")
    gap = explain(near)["gap_ulp"]
    assert explain(near, window_ulp=gap)["set_class"] == "near_tie"
    assert explain(near, window_ulp=gap - 1)["verdict"] == "fail"
    wide = explain(far)["gap_ulp"]
    assert explain(far, window_ulp=wide - 1)["verdict"] == "fail"
    assert explain(far, window_ulp=wide)["verdict"] == "disclose"


def test_policies_change_what_they_name() -> None:
    assert explain(by_id("C48"), one_for_one=False)["verdict"] == "disclose"
    assert explain(by_id("C37"), tie_contract="lower_id")["verdict"] == "fail"
    far = by_id("C39")
    gap = explain(far)["gap_abs"]
    assert explain(far, noise_abs=gap)["set_class"] == "noise_swap"
    assert explain(far, noise_abs=gap)["verdict"] == "disclose"
    assert explain(far, noise_abs=gap * 0.99)["set_class"] == "far_swap"


def test_weight_budget_is_inclusive() -> None:
    case = by_id("C20") | {"b": {"ids": [0, 3], "weights": [0.45141554, 0.5485846]}}
    steps = explain(case)["max_weight_ulp"]
    assert steps in (3, 4)
    assert explain(case)["verdict"] == "pass"
    assert explain(case)["weight_class"] == "drift"
    assert explain(case, weight_budget_ulp=steps)["verdict"] == "pass"
    assert explain(case, weight_budget_ulp=steps - 1)["verdict"] == "fail"


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("C28", {"b": "a"}, "pass"),
        ("C29", {"b": "a"}, "pass"),
        ("C32", {"b": "a"}, "pass"),
        ("C16", {"b": "a"}, "pass"),
        ("C45", {"b": "a"}, "pass"),
        ("C03", {"a": "b"}, "fail"),
        ("C18", {"scoring": {"function": "sigmoid", "scale": 1.01}}, "fail"),
        ("C36", {"logits": [3.0, 2.0, 2.0, 2.5]}, "fail"),
    ],
)
def test_repaired_or_broken_cases(name: str, changes: dict[str, Any], verdict: str) -> None:
    case = by_id(name)
    case |= {key: case[value] if value in ("a", "b") else value for key, value in changes.items()}
    assert explain(case)["verdict"] == verdict


def symmetric_cases() -> list[Case]:
    # A bias of b's own, a map from a to b, and two steps have a direction.
    return [
        case
        for case in cases()
        if not case.get("bias_b") and case["leading_axis"] != "step" and "map" not in case
    ]


@pytest.mark.parametrize("case", symmetric_cases(), ids=lambda case: str(case["id"]))
def test_swapping_the_paths_keeps_classes(case: Case) -> None:
    report = report_of(case["id"])
    other = explain(case | {"a": case["b"], "b": case["a"]})
    if case["leading_axis"] != "rank":
        assert other["verdict"] == report["verdict"]
    for one, two in zip(report["rows"], other["rows"], strict=True):
        assert one["set_class"] == two["set_class"]
        if one["set_class"] not in (None, "invalid"):
            assert one.get("dropped") == two.get("added")
            assert one.get("gap_ulp") == two.get("gap_ulp")


BASE: Case = {
    "id": "base",
    "logits": [1.0, 2.0, 3.0],
    "bias": None,
    "top_k": 2,
    "scoring": {"function": "sigmoid", "renormalize": True, "epsilon": 0.0, "scale": 1.0},
    "a": {"label": "", "ids": [2, 1], "weights": None},
    "b": {"label": "", "ids": [2, 1], "weights": None},
    "leading_axis": "row",
}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"logits": [1.0, "big"]}, "logits.1"),
        ({"logits": [[1.0, 2.0], [1.0]]}, "logits lengths"),
        ({"logits": []}, "logits lengths"),
        ({"logits": None}, "logits"),
        ({"top_k": 4}, "top_k"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": None}, "top_k"),
        ({"bias": [0.0]}, "bias length"),
        ({"bias_b": [0.0] * 4}, "bias_b length"),
        ({"scoring": {}}, "scoring.function"),
        ({"scoring": {"function": "tanh"}}, "scoring.function"),
        ({"scoring": {"function": "sigmoid", "groups": 2, "top_groups": 1}}, "groups"),
        ({"a": {"ids": [2, 1.5]}}, "a.ids.1"),
        ({"a": {"ids": [2, True]}}, "a.ids.1"),
        ({"a": {"ids": [2]}}, "a.ids length"),
        ({"a": {"ids": [2**64, 1]}}, "a.ids.0"),
        ({"a": {"ids": [[2, 1], [2, 1]]}}, "a.ids rows"),
        ({"b": {"weights": [0.5, 0.5]}}, "b.ids"),
        ({"b": {"ids": [2, 1], "weights": [0.5]}}, "b.weights shape"),
        ({"b": 3}, "b"),
        ({"leading_axis": "column"}, "leading_axis"),
        ({"shards": [[[1.0, 2.0]], [[3.0, 4.0]]]}, "shards ranks"),
        ({"shards": [[[1.0]], [[2.0]], [[3.0], [4.0]]]}, "shards.2 shape"),
        ({"buffer": [1.0, 2.0], "stride": 3}, "buffer length"),
        ({"buffer": [1.0, 2.0, 3.0], "stride": 2}, "stride"),
        ({"map": [0, 1]}, "map length"),
        ({"map": [0, 1, -2]}, "map.2"),
        ({"map": {"x": 1}}, "map"),
        ({"n_shared": 2}, "top_k"),
        ({"scoring": {"function": "reduction"}}, "a.weights"),
        ({"acc": "fp31"}, "acc"),
        ({"ranks": 2}, "ranks"),
        ({"ranks": 2, "leading_axis": "step"}, "ranks"),
        ({"scoring": {"function": "sigmoid", "scale": 0.0}}, "scoring.scale"),
        ({"id": 7}, "id"),
    ],
)
def test_bad_case_names_case_and_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        explain_rows(BASE | changes)
    assert caught.value.what == field
    assert caught.value.where == ("case 0" if "id" in changes else "case base")


def test_base_case_passes() -> None:
    assert explain(BASE)["verdict"] == "pass"


@pytest.mark.parametrize("text", ["", "[]", "{", "[3]", '["x"]', "no such file.json"])
def test_bad_document(text: str) -> None:
    with pytest.raises(InputError):
        explain_rows(text)


REDUCTION: Case = {
    "id": "sum",
    "logits": [60000.0, 60000.0, -60000.0],
    "scoring": {"function": "reduction"},
    "acc": "fp16",
    "leading_axis": "row",
}


@pytest.mark.parametrize("acc", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN"])
def test_a_sum_that_overflows_is_invalid(acc: str, value: str) -> None:
    paths = {"a": {"weights": 123.0}, "b": {"weights": value}}
    report = explain(REDUCTION | {"acc": acc} | paths)
    assert report["verdict"] == "invalid"
    assert report["invalid_paths"] == ["b"]
    assert report["breaches_b"] == ["nonfinite_weight"]
    assert report["breaches_a"] == []
    # An overflowing order is infinite; no order gives 123.
    assert not report["right_a"]
    assert not report["right_b"]
    assert report["orders_a"] == []
    assert "no " + acc + " sum of the partials" in report["reasons"][0]


def test_an_overflowing_order_does_not_excuse_the_other_path() -> None:
    paths = {"a": {"weights": 60000.0}, "b": {"weights": "Infinity"}}
    report = explain(REDUCTION | paths)
    assert report["orders_b"][0] == "left_to_right"
    assert report["verdict"] == "invalid"
    assert report["findings"] == []


def test_an_infinite_sum_of_infinite_partials_is_right() -> None:
    both = {"weights": "Infinity"}
    report = explain(REDUCTION | {"logits": ["Infinity", 1.0], "a": both, "b": both})
    assert report["verdict"] == "pass"


def test_partials_whose_sum_leaves_fp64() -> None:
    both = {"weights": 1.0}
    logits = [1.7e308, 1.7e308, -1.7e308]
    report = explain(REDUCTION | {"acc": "fp64", "logits": logits, "a": both, "b": both})
    assert report["rows"][0]["exact_sum"] == 1.7e308
    assert report["verdict"] == "fail"


def test_same_sum_of_infinities() -> None:
    for dtype in ("fp64", "fp32", "fp16", "bf16"):
        assert same_sum(math.inf, math.inf, dtype)
        assert not same_sum(123.0, math.inf, dtype)
        assert not same_sum(math.inf, 123.0, dtype)
        assert not same_sum(-math.inf, math.inf, dtype)


def test_text_stays_on_its_lines_and_tells_cases_apart() -> None:
    names = ["one", "a\nb\x1b[2J", "one", "one"]
    result = explain_rows([BASE | {"id": name} for name in names])
    heads = [line for line in result.text().splitlines() if line]
    assert heads == ["one: PASS", "a\\nb\\x1b[2J: PASS", "one #2: PASS", "one #3: PASS"]
    assert [case["id"] for case in result.as_dict()["cases"]] == names


def test_json_text_is_never_a_file_name() -> None:
    assert len(parse_cases(json.dumps(BASE), "stdin")) == len(BASE)
    for text in ("", " \n", '"x.json"', "x.json", "3", "null"):
        with pytest.raises(InputError, match=r"\[stdin\]"):
            parse_cases(text, "stdin")


def test_ranks_that_hold_copies_need_not_divide() -> None:
    assert explain(BASE | {"ranks": 3})["verdict"] == "pass"
    assert explain(BASE | {"ranks": 2, "leading_axis": "rank"})["verdict"] == "pass"


def test_missing_key_and_bytes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"b=missing, but should be present \[case base\]"):
        explain_rows({key: value for key, value in BASE.items() if key != "b"})
    (tmp_path / "x.json").write_bytes(b"[\xff]")
    with pytest.raises(InputError, match="UTF-8"):
        explain_rows(tmp_path / "x.json")


def test_unknown_keys_are_named() -> None:
    report = explain(BASE | {"rounding": "up", "topic": "free text"})
    assert report["verdict"] == "pass"
    assert report["unknown_keys"] == ["rounding"]
