"""Sections on noise and on the effect of swaps, on paths whose logits are moved on purpose."""

import json
import math
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.launching import front_weights, make_launch, run_path
from neartie.audit.metrics.effect import swap_effect
from neartie.audit.why.noise import noise_swaps
from neartie.audit.why.stages import swap_stages
from neartie.audit.why.swap_effect import swap_effects
from neartie.banks.errors import InputError
from neartie.banks.memory import memory_bank
from neartie.kernels.contract import Launch, Routed
from neartie.kernels.select_stages import StagedPath

BANK = "gaussian:geometry=256x64x64x6,rows=240"
RANKS = 4


class NoisyPath(WrappedPath):
    """``general`` on logits that each run, or each width, perturbs anew."""

    def __init__(self, name: str, seed: int, size: float, by_width: bool = False) -> None:
        super().__init__(base="general", name=name)
        self.seed, self.size, self.by_width, self.calls = seed, size, by_width, 0

    def run(self, launch: Launch, out: Routed) -> None:
        self.base.run(launch, out)
        assert out.logits is not None
        self.calls += 1
        rng = np.random.default_rng([self.seed, launch.width if self.by_width else self.calls])
        # The same perturbation of a row wherever it stands in the launches.
        noise = self.size * rng.standard_normal((240, out.logits.shape[2]))
        logits = (out.logits[0] + noise[launch.row_index % 240]).astype(np.float32)
        out.logits[:] = logits
        assert isinstance(self.base, StagedPath)
        steps = self.base.select_stages(launch)
        out.ids[:], out.weights[:] = steps.normalise(steps.select(steps.bias(steps.score(logits))))


def test_the_swaps_of_noisy_logits_are_noise() -> None:
    a, b = NoisyPath("a", 1, 4e-3), NoisyPath("b", 2, 4e-3)
    found = noise_swaps(a, b, BANK, source="repeat", ranks=RANKS)
    swaps = found.classes.get("noise_swap", 0)
    assert swaps > 3
    # By one figure for all rows, as the policy has it, they are far.
    assert found.classes_before["far_swap"] == swaps
    assert "far_swap" not in found.classes
    assert found.test.answer == "agrees"
    assert found.sigma_median is not None
    assert 1e-4 < found.sigma_median < 4e-3
    text = "\n".join(found.lines())
    assert "baseline against itself, run again" in text
    assert "agrees" in text
    json.dumps(found.figures())


def test_a_swap_beyond_the_noise_is_far_and_a_surplus() -> None:
    def wrong(launch: Any, out: Any) -> None:
        """The last slot of every 80th row goes to the weakest expert."""
        rows = np.flatnonzero(launch.row_index % 80 == 7)
        out.ids[:, rows, -1] = out.logits[0, rows].argmin(axis=1)

    found = noise_swaps(
        "general", WrappedPath(wrong, "general"), BANK, source="fp32_order", ranks=RANKS
    )
    assert found.classes["far_swap"] == 3
    assert found.test.answer == "surplus"
    assert found.test.bands[-1].observed == 3
    # The same rows under noise as wide as the keys.
    loud = noise_swaps(
        "general", WrappedPath(wrong, "general"), BANK, source="declared", sigma=1.0, ranks=RANKS
    )
    assert loud.classes["noise_swap"] == 3


def test_a_width_is_another_perturbation() -> None:
    path = NoisyPath("by-width", 3, 1e-3, by_width=True)
    one = noise_swaps(path, path, BANK, source="widths", other_width=8, ranks=RANKS)
    same = noise_swaps(path, path, BANK, source="repeat", ranks=RANKS)
    assert one.sigma_median is not None
    assert one.sigma_median > 1e-5
    # At one width nothing moves: no row has noise, and none swaps.
    assert (same.sigma_largest, same.test.exact) == (0.0, same.test.rows)
    assert same.classes == {"identical": 240}


def test_near_ties_that_roundings_swap_are_no_surplus_of_noise() -> None:
    bank = "near_tie:geometry=64x32x64x6,rows=40,gap=1"
    found = noise_swaps(
        "general:select=fused", "general:select=standalone", bank, source="declared", sigma=0.0,
        ranks=1,
    )  # fmt: skip
    assert found.classes["near_tie"] > 3
    assert (found.test.rows, found.test.undefined, found.test.answer) == (0, 40, "unknown")
    assert "unknown: no valid row" in found.lines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "guess"}, "source=guess"),
        ({"source": "declared"}, "sigma=None, but should be a number with source declared"),
        ({"sigma": 1.0}, "sigma=1.0"),
        ({"source": "declared", "sigma": math.nan}, "sigma=nan, but should be a finite number"),
        ({"source": "declared", "sigma": 10**400}, "but should be a finite number"),
        ({"source": "declared", "sigma": -1.0}, "sigma=-1.0"),
        ({"source": "declared", "sigma": "1"}, "sigma=1, but should be a finite number"),
        ({"source": "widths", "other_width": 12}, "other_width=12, but should be another width"),
        ({"source": "widths", "other_width": 21}, "width=21"),
        ({"source": "repeat", "bank": memory_bank(1, logits=[[0.0, 1.0]])}, "shows no logits"),
        ({"bank": memory_bank(1, logits=[[0.0, 1.0]])}, "a bank with hidden rows"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"bank": BANK, "ranks": RANKS, **options}
    if not isinstance(given["bank"], str):
        given["ranks"], given["width"] = 1, 1
    with pytest.raises(InputError) as told:
        noise_swaps("general", "general", **given)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("norms", "message"),
    [
        ([1.0] * 64, "expert_norms=list, but should be a numpy array"),
        (2.0, "expert_norms=float"),
        (np.ones(63), "expert_norms.shape=(63,)"),
        (np.ones((23, 64)), "expert_norms.shape=(23, 64), but should be (64,), or 24 rows"),
        (np.full(64, np.nan), "expert_norms=nan, but should be finite numbers, at least 0"),
        (np.full(64, -1.0), "expert_norms=-1.0"),
        (np.full(64, "a"), "expert_norms.dtype=<U1"),
    ],
)
def test_what_is_no_norms_is_named(norms: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        swap_effects("general", "general", BANK, ranks=RANKS, rows=24, expert_norms=norms)
    assert message in str(told.value)


class IdlePath(WrappedPath):
    """Writes nothing: its outputs are the poison that they were handed over with."""

    def run(self, launch: Launch, out: Routed) -> None:
        """Leave all as it is."""


def test_rows_that_are_all_invalid_are_unknown(recwarn: pytest.WarningsRecorder) -> None:
    pair = ("general", IdlePath(base="general", name="idle"))
    noise = noise_swaps(*pair, BANK, ranks=RANKS, rows=24)
    assert noise.classes == {"invalid": 24}
    assert (noise.test.answer, noise.test.undefined, noise.exit_status) == ("unknown", 24, 3)
    effect = swap_effects(*pair, BANK, ranks=RANKS, rows=24)
    assert (effect.effect.rows, effect.exit_status) == (0, 3)
    assert effect.lines()[-1] == "unknown: every row is invalid"
    stages = swap_stages(*pair, BANK, ranks=RANKS, rows=24)
    assert (stages.invalid_rows, stages.causes) == (24, {})
    assert stages.lines()[-2:] == [
        "expert sets, rows that differ: nothing to compare, no row counts",
        "  left out: 24 invalid rows",
    ]
    assert not recwarn.list


def test_counts_are_told_in_words() -> None:
    found = noise_swaps(
        "general", "general", BANK, source="declared", sigma=1e-3, ranks=RANKS, rows=1
    )
    text = "\n".join(found.lines())
    assert "sets of 1 row: " in text
    assert "swaps: 0, predicted below 1e-06 (95%: none): agrees" in text
    assert ": 1 row, 0 swaps, predicted below 1e-06, p 1" in text


def test_the_effect_is_that_of_the_paths_outputs() -> None:
    pair = ("general", "general:logits=bf16")
    norms = np.linspace(1.0, 2.0, 64)
    found = swap_effects(*pair, BANK, ranks=RANKS, expert_norms=norms, layers=10)
    bank = neartie.open_bank(BANK)
    launch = make_launch(bank, front_weights(bank), bank.read(0, 240), 12, RANKS)
    a, b = (run_path(neartie.make_path(spec), launch) for spec in pair)
    direct = swap_effect(a.ids[0], a.weights[0], b.ids[0], b.weights[0], norms)
    assert found.effect == direct
    assert direct.differing > 0
    assert found.model.rate == pytest.approx(1 - (1 - direct.differing / 240) ** 10, rel=1e-12)
    text = "\n".join(found.lines())
    assert f"sets differ on {direct.differing} of 240 rows" in text
    assert f"in row {direct.max_mass_row}" in text
    assert "over 10 independent layers" in text
    json.dumps(found.figures())


def test_invalid_rows_have_no_effect() -> None:
    def twice(launch: Any, out: Any) -> None:
        out.ids[:, launch.row_index % 240 < 5, 1] = out.ids[:, launch.row_index % 240 < 5, 0]

    none = swap_effects("general", WrappedPath(twice, "general"), BANK, ranks=RANKS)
    assert (none.effect.rows, none.invalid) == (235, 5)
    assert "invalid: 5 more rows" in none.lines()
    assert (none.effect.differing, none.effect.mean_mass, none.effect.max_output) == (0, None, None)
