"""A mistake that gives a path's bits is named with its rows; one that does not is not."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit.explain.explain import explain_rows
from neartie.audit.explain.explanation import OWN, Explanation, explain_failing
from neartie.audit.explain.fitter import Failing
from neartie.audit.explain.mistakes import set_mistakes, weight_mistakes
from neartie.audit.explain.select_steps import Seen
from neartie.audit.explain.weight_orders import SUM_ORDERS, arithmetics, weigh
from neartie.audit.hypotheses import MOST_SETS
from neartie.audit.metrics.findings import same_as_expected
from neartie.audit.metrics.rule_weights import rule_weights
from neartie.audit.metrics.weight_hypotheses import HYPOTHESES
from neartie.audit.report.explanations import explanation_table
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.reference import reference_select
from neartie.kernels.scores import score
from neartie.kernels.select import SELECTS, make_select, select
from neartie.kernels.select_weights import NORMALISATIONS, SUMS

EXPERTS, ROWS = 64, 200
GEOMETRY = Geometry("some", 8, 0, EXPERTS, 8)
GROUPED = Geometry("grouped", 8, 0, EXPERTS, 8, groups=8, top_groups=4)
SCORING = ScoringRule(scale=2.5)


def inputs(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((ROWS, EXPERTS)).astype(np.float32)
    return logits, (0.3 * rng.standard_normal(EXPERTS)).astype(np.float32)


def explained(
    ids: Any, weights: Any, logits: Any, bias: Any, geometry: Any = GEOMETRY, scoring: Any = SCORING
) -> Explanation:
    """The explanation of the rows that are wrong, beyond ties and 8 ULP."""
    reference = reference_select(logits, bias, geometry, scoring)
    rule = rule_weights(ids, reference.scores, scoring).astype(np.float32)
    far = np.abs(weights.view(np.int32).astype(np.int64) - rule.view(np.int32)).max(axis=1) > 8
    rows = np.flatnonzero(~same_as_expected(ids, reference.ids) | far)
    assert len(rows), "nothing is wrong"
    seen = Seen(geometry, scoring, logits, bias, ids.astype(np.int64), weights).rows(rows)
    failing = Failing(seen, reference.ids[rows], rule[rows], np.full(len(rows), 8, np.int64))
    mistakes = [*set_mistakes(geometry, scoring, bias), *weight_mistakes(scoring, bias)]
    return explain_failing({OWN: failing}, mistakes)


def names(found: Explanation) -> list[str]:
    return [one.name for one in found.named]


@pytest.mark.parametrize(("normalise", "order"), list(product(NORMALISATIONS[:-1], SUMS)))
def test_weights_by_arrays_are_those_of_the_select_loop(normalise: str, order: str) -> None:
    logits, bias = inputs()
    rule = replace(SELECTS["hf"], score="exp", normalise=normalise, weight_sum=order)
    ids, weights = select(rule, logits, bias, GEOMETRY, SCORING)
    scores = np.take_along_axis(score("exp", logits), ids.astype(np.int64), axis=1)
    made = weigh(scores, ids, SCORING)
    place = arithmetics(False, SCORING).index((normalise, order))
    # An epsilon of 1e-20 and the guard of a zero sum change no bit here.
    assert np.array_equal(made[place].view(np.uint32), weights.view(np.uint32))


def test_two_orders_of_the_sum_are_no_select_of_ours() -> None:
    assert set(SUM_ORDERS) - set(SUMS) == {"descending_weight", "fp64"}


@pytest.mark.parametrize(
    ("options", "name"),
    [({"bias": "bf16"}, "bf16_bias"), ({"bias": "none"}, "no_bias"),
     ({"logits": "bf16"}, "bf16_logits")],
)  # fmt: skip
@pytest.mark.parametrize("base", ["standalone", "noaux_tc"])
@pytest.mark.parametrize("geometry", [GEOMETRY, GROUPED])
def test_a_mistake_in_the_selection_is_named_bit_for_bit(
    options: dict[str, str], name: str, base: str, geometry: Geometry
) -> None:
    if geometry.groups > 1 and base == "standalone":
        base = "grouped_topk"
    logits, bias = inputs()
    ids, weights = select(make_select(base, options, "test"), logits, bias, geometry, SCORING)
    found = explained(ids, weights, logits, bias, geometry)
    # Without a bias the order of the scores is that of the logits: two names for one thing.
    assert names(found)[0] == name
    best = next(one for one in found.hypotheses if one.name == name)
    assert (best.name, best.bits) == (name, found.tried)
    assert best.ids == best.close == found.tried
    assert best.reference == 0
    assert not found.pairs


def _exact(logits: Any, ids: Any) -> Any:
    scores = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    return np.take_along_axis(scores, ids.astype(np.int64), axis=1)


def _shares(values: Any, scale: float = SCORING.scale) -> Any:
    return values / values.sum(axis=1, keepdims=True) * scale


PLANTED: dict[str, Any] = {
    "biased_score_weights": lambda x, ids, bias: _shares(_exact(x, ids) + bias[ids]),
    "scale_applied_twice": lambda x, ids, bias: (
        _shares(_exact(x, ids)).astype(np.float32) * np.float32(SCORING.scale)
    ),
    "scale_not_applied": lambda x, ids, bias: _shares(_exact(x, ids), 1.0),
    "not_renormalised": lambda x, ids, bias: _exact(x, ids) * SCORING.scale,
    "bf16_weights": lambda x, ids, bias: (
        _shares(_exact(x, ids)).astype(np.float32).astype(BFLOAT16)
    ),
    "softmax_over_selected": lambda x, ids, bias: _shares(
        np.exp(np.take_along_axis(x, ids.astype(np.int64), axis=1).astype(np.float64))
    ),
    "uniform": lambda x, ids, bias: np.full(ids.shape, SCORING.scale / ids.shape[1]),
    "epsilon_1e-05": lambda x, ids, bias: (
        _exact(x, ids) / (_exact(x, ids).sum(axis=1, keepdims=True) + 1e-5) * SCORING.scale
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_in_the_weights_is_named(name: str) -> None:
    logits, bias = inputs()
    ids, _ = select(SELECTS["hf"], logits, bias, GEOMETRY, SCORING)
    weights = PLANTED[name](logits, ids, bias).astype(np.float32)
    found = explained(ids, weights, logits, bias)
    assert name in names(found)
    # FP64 of numpy is not ours to the last bit, so a rounding may fall otherwise, rarely.
    best = next(one for one in found.hypotheses if one.name == name)
    assert best.bits >= 0.99 * found.tried


def test_every_other_order_of_the_sum_is_told() -> None:
    logits, bias = inputs()
    rule = replace(SELECTS["hf"], score="tanh", normalise="divide_guard", weight_sum="fold")
    # Small scores, where this form has few bits left, among large ones.
    logits = logits * np.float32(3) - np.float32(5)
    ids, weights = select(rule, logits, bias, GEOMETRY, SCORING)
    found = explained(ids, weights, logits, bias)
    assert names(found) == ["score_form=tanh"]
    # Of eight values, a halving fold and a butterfly are one arithmetic.
    assert found.hypotheses[0].arithmetic.startswith("tanh scores, divide_")
    assert found.hypotheses[0].arithmetic.endswith("sum fold or butterfly")
    assert found.hypotheses[0].bits == found.tried


def test_two_mistakes_at_once_are_tried_where_no_single_one_gives_every_row() -> None:
    logits, bias = inputs()
    ids, weights = select(
        make_select("standalone", {"bias": "bf16"}, "test"), logits, bias, GEOMETRY, SCORING
    )
    narrow = weights.astype(BFLOAT16).astype(np.float32)
    found = explained(ids, narrow, logits, bias)
    assert found.pairs
    assert names(found) == ["bf16_bias+bf16_weights"]
    assert found.named[0].rows == found.tried


def test_one_bit_off_is_not_bit_for_bit() -> None:
    logits, bias = inputs()
    ids, weights = select(
        make_select("standalone", {"bias": "bf16"}, "test"), logits, bias, GEOMETRY, SCORING
    )
    found = explained(ids, np.nextafter(weights, np.float32(9)), logits, bias)
    assert not any(one.bits for one in found.named)
    best = next(one for one in found.hypotheses if one.name == "bf16_bias")
    sets = int(best.ids)
    assert best.bits < found.tried
    # One ULP is within the budget: the cause is still named, as what it is consistent with.
    assert (best.close, sets) == (found.tried, found.tried)
    assert names(found) == ["bf16_bias"]


def test_noise_is_explained_by_nothing() -> None:
    logits, bias = inputs()
    rng = np.random.default_rng(3)
    ids = np.argsort(rng.random(logits.shape), axis=1)[:, :8].astype(np.int32)
    found = explained(ids, rng.random(ids.shape).astype(np.float32), logits, bias)
    assert found.named == ()
    assert found.best is None


def test_permuted_ids_are_named_where_rows_enough_test_the_map() -> None:
    logits, bias = inputs()
    ids, weights = select(SELECTS["standalone"], logits, bias, GEOMETRY, SCORING)
    found = explained((ids * 3) % EXPERTS, weights, logits, bias)
    assert names(found) == ["id_permutation"]
    assert found.named[0].rows == found.tried
    few = explained(((ids * 3) % EXPERTS)[:2], weights[:2], logits[:2], bias)
    assert "id_permutation" not in names(few)


def test_what_cannot_be_told_from_the_reference_says_so() -> None:
    """A bias that BF16 holds exactly: a BF16 bias gives what the reference gives."""
    logits, bias = inputs()
    bias = bias.astype(BFLOAT16).astype(np.float32)
    ids, weights = select(
        make_select("standalone", {"logits": "bf16"}, "test"), logits, bias, GEOMETRY, SCORING
    )
    found = explained(ids, weights, logits, bias)
    assert names(found) == ["bf16_logits"]
    assert "bf16_bias" not in [one.name for one in found.hypotheses]


def test_ties_to_the_higher_id_are_named_under_the_contract() -> None:
    logits, bias = inputs()
    logits[:, 40], logits[:, 7] = 3.0, 3.0
    bias[40] = bias[7] = 0.0
    reference = reference_select(logits, bias, GEOMETRY, SCORING)
    mirrored = reference_select(logits[:, ::-1].copy(), bias[::-1].copy(), GEOMETRY, SCORING)
    ids = (EXPERTS - 1 - mirrored.ids).astype(np.int32)
    cut = ~same_as_expected(ids, reference.ids)
    if not cut.any():
        pytest.skip("no tie lies at the boundary with these inputs")
    weights = rule_weights(ids, reference.scores, SCORING).astype(np.float32)
    assert names(explained(ids, weights, logits, bias))[0] == "higher_id_on_ties"


BANK = "gaussian:geometry=mini,hidden=64,latent=32,rows=160,bias=0.3"


@pytest.fixture(scope="module")
def failing() -> Any:
    return neartie.run_audit(BANK, candidate="route:bias=bf16", rows=[12], ranks=2, gate=False)


def test_the_record_has_the_table_and_every_report_shows_it(failing: Any) -> None:
    (explanation,) = failing.record["explanations"]
    assert explanation["path"] == "candidate"
    assert explanation["best"] == "bf16_bias"
    assert explanation["tried"] == explanation["failing"] > 0
    assert f"first {MOST_SETS}" in explanation["limit"]
    row = explanation_table(failing.record).rows[0]
    count = str(explanation["tried"])
    assert row[:6] == ("candidate", explanation["bank"], "bf16_bias", count, "0", count)
    from neartie.audit.report.html import render_html
    from neartie.audit.report.markdown import render_markdown

    sentence = f"bf16_bias gives {count} of {count} failing rows of the candidate bit for bit"
    markdown = render_markdown(failing)
    assert "### Hypotheses for failing rows" in markdown
    for text in (markdown.replace("\\", ""), render_html(failing)):
        assert sentence in text


def test_the_same_audit_gives_the_same_table(failing: Any) -> None:
    again = neartie.run_audit(BANK, candidate="route:bias=bf16", rows=[12], ranks=2, gate=False)
    assert again.record["explanations"] == failing.record["explanations"]


def test_a_record_of_before_has_no_table() -> None:
    assert explanation_table({}).rows == []


def test_a_pasted_row_gets_the_same_table() -> None:
    logits, bias = inputs()
    ids, weights = select(SELECTS["hf"], logits, bias, GEOMETRY, ScoringRule())
    biased = _exact(logits, ids) + bias[ids]
    shares = (biased / biased.sum(axis=1, keepdims=True)).astype(np.float32)
    case = {
        "id": "pasted", "logits": logits[:3].tolist(), "bias": bias.tolist(), "top_k": 8,
        "leading_axis": "row",
        "scoring": {"function": "sigmoid", "renormalize": True, "epsilon": 1e-20},
        "a": {"ids": ids[:3].tolist(), "weights": weights[:3].tolist()},
        "b": {"ids": ids[:3].tolist(), "weights": shares[:3].tolist()},
    }  # fmt: skip
    result = explain_rows(case)
    found = result.cases[0].facts["explanations"]
    assert list(found) == ["b"]
    assert found["b"]["best"] == "biased_score_weights"
    assert found["b"]["named"][0]["rows"] == 3
    lines = [line for line in result.text().splitlines() if "biased_score_weights  " in line]
    assert len(lines) == 1
    assert lines[0].split()[1:4] == ["3", "0", "3"]


def test_a_case_without_weights_is_explained_by_its_ids() -> None:
    logits, bias = inputs()
    ids, _ = select(make_select("hf", {"bias": "none"}, "test"), logits, bias, GEOMETRY, SCORING)
    right, _ = select(SELECTS["hf"], logits, bias, GEOMETRY, SCORING)
    case = {
        "id": "ids", "logits": logits[0].tolist(), "bias": bias.tolist(), "top_k": 8,
        "scoring": {"function": "sigmoid"},
        "a": {"ids": right[0].tolist()}, "b": {"ids": ids[0].tolist()},
    }  # fmt: skip
    found = explain_rows(case).cases[0].facts["explanations"]["b"]
    assert found["best"] == "no_bias"
    assert not found["weights"]
    assert found["hypotheses"][0]["bits"] == 0


def test_the_names_of_the_weights_are_those_of_the_row_hypotheses() -> None:
    """One vocabulary: whoever reads a name in one place finds it in the other."""
    bias = np.ones(4, np.float32)
    made = {
        one.name
        for function, renormalize in (("sigmoid", True), ("softmax", False))
        for one in weight_mistakes(
            ScoringRule(function, renormalize=renormalize, scale=2.0),  # type: ignore[arg-type]
            bias,
        )
    }
    assert set(HYPOTHESES) <= made
