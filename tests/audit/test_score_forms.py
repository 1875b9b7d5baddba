"""The score form behind wrong rows is named only where it gives their bits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit import form_windows, hypotheses
from neartie.audit.explain import select_steps
from neartie.kernels.contract import Declared
from neartie.kernels.cuda.facts import why_not_real
from neartie.kernels.known_scores import form_scores
from neartie.kernels.scores import score as cpu_score
from neartie.kernels.select import SELECTS, select

# Small scores beside a large bias: the tanh form's weights are wrong by far more than the budget.
SMALL = "gaussian:geometry=deepseek-v3,stage=logits,rows=2048,std=4,bias=0.5"
PLAIN = "gaussian:geometry=deepseek-v3,stage=logits,rows=8192,seed=1"
NO_DEVICE = why_not_real() is not None


class Scored:
    """A path of a user's own: scores by ``score``, the rest as ``noaux_tc``."""

    batches_launches = True
    outputs = ("ids", "weights")

    def __init__(self, score: Any, **changes: Any) -> None:
        self.name, self._score = "scored", score
        self._rule = replace(SELECTS["noaux_tc"], score="identity", functions=(), **changes)
        self.declared: Declared = neartie.make_path("route:select=noaux_tc").declared

    def unavailable(self) -> None:
        return None

    def check(self, launch: Any) -> None:
        return None

    def run(self, launch: Any, out: Any) -> None:
        scores = self._score(launch.logits)
        bias = launch.weights.bias
        out.ids[:], out.weights[:] = select(
            self._rule, scores, bias, launch.geometry, launch.scoring
        )


def coarse(steps: float) -> Any:
    """0.5*tanh(0.5x)+0.5 with a tanh that is rounded to multiples of 1 / steps."""

    def score(logits: Any) -> Any:
        tanh = np.round(np.tanh(0.5 * logits.astype(np.float64)) * steps) / steps
        return (0.5 * tanh + 0.5).astype(np.float32)

    return score


def tanh_form(logits: Any) -> Any:
    return form_scores("tanh", logits)


def explained(path: Any, bank: Any, baseline: Any = "route:select=fp64") -> Any:
    result = neartie.run_audit(
        bank, baseline=baseline, candidate=path, rows=[16], ranks=1, gate=False
    )
    texts = {}
    for one in result.record["verdict"]["reasons"]:
        # The baseline's own exact scores explain its rows too, where the pair is too far apart.
        if "score_form" in one["code"] and ": candidate " in one["text"]:
            assert one["state"] == "PASS_WITH_LIMITATIONS"
            texts[one["code"]] = one["text"]
    return result, texts


@pytest.mark.skipif(not NO_DEVICE, reason="device forms may fit as well")
def test_the_form_that_gives_every_bit_is_named_with_its_sum() -> None:
    result, texts = explained(Scored(tanh_form), SMALL)
    assert result.record["verdict"]["state"] == "FAIL"
    (text,) = texts.values()
    assert list(texts) == ["explained_by:score_form=tanh"]
    assert (
        "scores by tanh reproduces 64 of 64 wrong rows tried, ids and weights bit for bit" in text
    )
    assert "(with tanh scores, divide_fp64, sum fold or butterfly)" in text


@pytest.mark.skipif(not NO_DEVICE, reason="device forms may fit as well")
def test_one_bit_off_is_no_reproduction() -> None:
    def almost(logits: Any) -> Any:
        return np.nextafter(tanh_form(logits), np.float32(2))

    _, texts = explained(Scored(almost), SMALL)
    assert texts == {}


@pytest.mark.skipif(not NO_DEVICE, reason="device forms may fit as well")
def test_part_of_the_rows_is_told_as_a_part() -> None:
    def mixed(logits: Any) -> Any:
        scores = tanh_form(logits)
        scores[::256] = coarse(2.0**17)(logits[::256])
        return scores

    _, texts = explained(Scored(mixed), SMALL)
    text = texts["explained_by:score_form=tanh"]
    count = int(text.split("is consistent with ")[1].split(" of")[0])
    assert 32 < count < 64


def test_a_right_path_is_explained_by_nothing() -> None:
    result, texts = explained("route:select=noaux_tc", PLAIN)
    assert result.record["provisional_class"] == "LIGHT"
    assert texts == {}


def test_another_fault_is_explained_by_no_form() -> None:
    _, texts = explained(Scored(tanh_form, bias="none"), PLAIN)
    assert texts == {}


@pytest.mark.skipif(not NO_DEVICE, reason="a device tries its own forms")
def test_without_a_device_the_certified_bounds_say_which_form_could() -> None:
    """A tanh off by 2^-18 moves keys as tanh.approx does, and further than the precise forms do."""
    _, texts = explained(
        Scored(coarse(2.0**17)), "gaussian:geometry=deepseek-v3,stage=logits,rows=65536,seed=4"
    )
    text = texts["within_the_bound_of_a_score_form"]
    assert "the bounds of tanh.approx (8.11e-06) against tanh.cuda allow that" in text
    assert "those of exp.cuda (4.77e-07), exp.approx (4.77e-07) do not" in text
    assert "certificates of NVIDIA H200" in text


def windows(
    gap: float, eligible: bool = True, third: float = 0.0, logit: float = 0.0
) -> str | None:
    """Expert 1 is taken for expert 0, whose key is ``gap`` higher; ``third`` has bias and logit."""
    keys = np.array([[0.5 + gap, 0.5, 0.25]], np.float32)
    can = np.array([[True, eligible, True]])
    bias = np.array([-0.02, 0.03, third], np.float32)
    logits = np.array([[0.0, 0.0, logit]], np.float32)
    ids = [np.array([[one]], np.int32) for one in (0, 1)]
    return form_windows.windows_that_allow(keys, can, ids[0], ids[1], logits, bias)


def test_bounds_name_a_form_only_where_they_tell_forms_apart() -> None:
    # One step of 2^-24 is inside every window, 2^-10 is beyond all.
    assert windows(2.0**-23) is None
    assert windows(2.0**-10) is None
    assert windows(2.0**-19) is not None
    # With another group's expert, sums of keys decide, and no window is known.
    assert windows(2.0**-19, eligible=False) is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_no_numbers_leave_the_bounds_of_the_others(value: float) -> None:
    assert windows(2.0**-19, third=value) == windows(2.0**-19)
    assert windows(2.0**-19, logit=value) == windows(2.0**-19)
    assert windows(value) is None


def test_the_device_forms_are_tried_where_there_is_a_device(monkeypatch: Any) -> None:
    """Stands in for a device: its one form is a coarse tanh."""
    approximate = coarse(2.0**17)

    def scores(form: str, logits: Any) -> Any:
        return approximate(logits) if form == "tanh.approx" else cpu_score(form, logits)

    monkeypatch.setattr(select_steps, "known_forms", lambda: ["sigmoid", "exp", "tanh.approx"])
    monkeypatch.setattr(select_steps, "form_scores", scores)
    monkeypatch.setattr(hypotheses, "form_scores", scores)
    bank = "gaussian:geometry=deepseek-v3,stage=logits,rows=65536,seed=4"
    result, texts = explained(Scored(approximate), bank, baseline="route:select=noaux_tc")
    assert result.record["numerics_class"] == "BEHAVIOURAL"
    text = texts["explained_by:score_form=tanh.approx"]
    assert "reproduces" in text
    witness = text.split("Witness: row ")[1]
    told = [
        float.fromhex(word.strip(",;):"))
        for word in witness.split()
        if word.startswith(("0x", "-0x"))
    ]
    # Per expert: logit, bias, key in the reference, key by the form.
    _, _, out_exact, out_form, _, _, in_exact, in_form = told
    assert out_exact > in_exact
    assert in_form >= out_form
