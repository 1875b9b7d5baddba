"""Stages of a select, one after the other, are the select: bit for bit, for every named one."""

import numpy as np
import pytest

import neartie
from neartie.audit.launching import front_weights, make_launch, run_path, same_bits
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import F32, I32
from neartie.kernels.select import SELECTS, select
from neartie.kernels.select_stages import SelectStages, SelectSteps, StagedPath

PLAIN = Geometry("plain", 0, 0, 24, 5)
GROUPED = Geometry("grouped", 0, 0, 24, 5, groups=4, top_groups=2)
RULE = ScoringRule()


def staged(steps: SelectSteps, logits: F32) -> tuple[I32, F32]:
    return steps.normalise(steps.select(steps.bias(steps.score(logits))))


def rows() -> F32:
    """Ordinary rows, ties, infinities, NaN, and rows where nothing can be selected."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((96, 24)).astype(np.float32)
    logits[20:40] = np.round(logits[20:40])
    for row, value in enumerate((np.inf, -np.inf, np.nan), 40):
        logits[row, ::5] = value
        logits[row + 10] = value
    return logits


CASES = [(name, PLAIN) for name in SELECTS] + [
    (name, GROUPED) for name, rule in SELECTS.items() if rule.groups
]


@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_the_stages_make_the_select(name: str, geometry: Geometry) -> None:
    rule = SELECTS[name]
    scoring = RULE if not rule.functions else ScoringRule(function=rule.functions[0])  # type: ignore[arg-type]
    logits = rows()
    bias = np.random.default_rng(1).standard_normal(24).astype(np.float32)
    for special in (None, np.inf, -np.inf, np.nan):
        if special is not None:
            bias[3] = special
        ids, weights = select(rule, logits, bias, geometry, scoring)
        found = staged(SelectStages(rule, geometry, scoring, bias), logits)
        assert np.array_equal(ids, found[0])
        assert np.array_equal(weights.view(np.uint32), found[1].view(np.uint32))


@pytest.mark.parametrize(
    "spec", ["general", "general:reduce=ring_bf16,bias=bf16", "route", "route:logits=bf16"]
)
def test_a_front_cut_in_two_is_the_front(spec: str) -> None:
    bank, path = neartie.open_bank("gaussian:geometry=mini,rows=24"), neartie.make_path(spec)
    assert isinstance(path, StagedPath)
    launch = make_launch(bank, front_weights(bank), bank.read(0, 24), 12, 2)
    whole = run_path(path, launch)
    pieces = path.projected(launch)
    assert pieces.hidden is None
    assert path.projected(pieces) is pieces
    cut = run_path(path, pieces)
    for name in ("latent", "logits", "ids", "weights"):
        assert same_bits(getattr(whole, name), getattr(cut, name)), name
    assert whole.logits is not None
    ids, weights = staged(path.select_stages(launch), whole.logits[0])
    assert np.array_equal(whole.ids[0], ids)
    assert same_bits(whole.weights[0], weights)
