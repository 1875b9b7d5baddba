"""What a bank of recorded outputs alone can answer, and what it cannot."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neartie.audit.cli import exit_status
from neartie.audit.gate.run import run_gate
from neartie.audit.metrics.rates import upper_bound
from neartie.audit.metrics.routings import RoutingTally, missing
from neartie.audit.recorded_pair import compare_recorded, pair_lines
from neartie.audit.run import run_audit
from neartie.banks.errors import BankError, InputError
from neartie.banks.formats import import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading
from neartie.banks.merge import join_outputs
from neartie.banks.open import open_bank

TOKENS, LAYERS, EXPERTS, K = 30, 3, 20, 4
Array = np.ndarray[Any, Any]


def rollout() -> Array:
    rng = np.random.default_rng(2)
    return np.argsort(rng.random((TOKENS, LAYERS, EXPERTS)), axis=2)[:, :, :K].astype(np.int32)


def trainer(ids: Array) -> Array:
    """The same but for: 1 reordered, 1 with one and 1 with two others, 1 invalid."""
    other = ids.copy()
    other[1, 0] = other[1, 0, ::-1]
    free = [
        np.setdiff1d(np.arange(EXPERTS), ids[token, layer]) for token, layer in ((4, 1), (4, 2))
    ]
    other[4, 1, 2] = free[0][0]
    other[4, 2, :2] = free[1][:2]
    other[9, 2, 1] = other[9, 2, 0]
    return other


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pair")
    ids = rollout()
    for name, array in (("rollout", ids), ("trainer", trainer(ids))):
        np.save(place / f"{name}.npy", array)
        reading = Reading(geometry=Geometry("g", 0, 0, EXPERTS, K), path=name)
        import_files([place / f"{name}.npy"], place / name, reading=reading)
    join_outputs([open_bank(place / "rollout"), open_bank(place / "trainer")], place / "both")
    return place / "both"


def test_every_planted_difference_is_counted(joined: Path) -> None:
    pair = compare_recorded(open_bank(joined), "rollout", "trainer")
    total = pair.total
    assert (total.rows, total.compared) == (TOKENS * LAYERS, TOKENS * LAYERS - 1)
    assert (total.invalid_baseline, total.invalid_candidate) == (0, 1)
    assert (total.identical, total.reordered, total.differing) == (86, 1, 2)
    assert dict(total.exchanged) == {1: 1, 2: 1}
    assert {layer: tally.differing for layer, tally in pair.layers.items()} == {0: 0, 1: 1, 2: 1}
    assert pair.tokens == (TOKENS, 1)
    assert pair.units == (1, 1)
    assert pair.first == [(1, 0, 4), (2, 0, 4)]


def test_a_path_against_itself(joined: Path) -> None:
    total = compare_recorded(open_bank(joined), "trainer", "trainer").total
    assert (total.identical, total.differing, total.invalid_baseline) == (89, 0, 1)


def test_the_bound_is_of_independent_units() -> None:
    pair = compare_recorded(open_bank("k3-mini/layer0"), "gpu", "gpu")
    assert pair.unit == "doc"
    assert pair.unit_rate_upper() == upper_bound(0, pair.units[0])
    none = compare_recorded(open_bank("k3-mini/tie-witness"), "gpu", "gpu")
    assert none.unit_rate_upper() is None
    assert "bound      none: the bank's independence unit is none" in pair_lines(none)


def test_what_needs_inputs_is_refused(joined: Path) -> None:
    message = "stage=outputs, but should be one with inputs: outputs alone can be held against"
    with pytest.raises(InputError, match=message):
        run_audit(str(joined))
    with pytest.raises(InputError, match=message):
        run_gate("standalone", "fused", str(joined), rows=100)
    with pytest.raises(
        BankError, match="recorded outputs=gpu, but should be one of rollout, train"
    ):
        compare_recorded(open_bank(joined), "gpu", "trainer")


def test_the_command(
    joined: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bank", "compare", str(joined), "--baseline", "rollout", "--candidate", "trainer"]
    monkeypatch.setattr(sys, "argv", ["neartie", *words, "--json"])
    assert exit_status() == 0
    record = json.loads(capsys.readouterr().out)
    assert record["total"]["differing"] == 2
    assert record["units"] == {"compared": 1, "differing": 1, "rate_upper_95": 1.0}
    assert "no difference can be called a tie" in record["note"]


def test_missing_is_what_sets_say() -> None:
    rng = np.random.default_rng(0)
    a = np.argsort(rng.random((500, 9)), axis=1)[:, :4]
    b = np.argsort(rng.random((500, 9)), axis=1)[:, :4]
    want = [len(set(x) - set(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert missing(a, b).tolist() == want
    tally = RoutingTally()
    rows = tally.add(a, b, 9)
    assert rows.exchanged.tolist() == want
    assert tally.identical + tally.reordered + tally.differing == 500
