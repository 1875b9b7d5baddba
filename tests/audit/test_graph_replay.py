"""Replays of captured work against eager runs: each planted fault of a capture is found.

The fakes here capture on the CPU; ``test_cuda_front`` plants the same faults in real CUDA graphs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.graph_replay import check_replay
from neartie.audit.launching import (
    PathError,
    alternating,
    front_weights,
    make_launch,
    poisoned_outputs,
)
from neartie.banks.open import open_bank
from neartie.kernels.contract import Launch

BANK = "gaussian:geometry=mini,rows=60,seed=3"
OUTPUTS = ("latent", "logits", "ids", "weights")
Replay = Callable[[Any, Any, Any], None]


class Replayed:
    """Work captured on one launch; ``how(capturer, launch, out)`` is what a replay does."""

    def __init__(self, path: "Capturing", captured: Launch) -> None:
        self.path, self.captured, self.replays = path, captured, 0

    def replay(self, launch: Launch, out: Any) -> None:
        self.path.how(self, launch, out)
        self.replays += 1


class Capturing(WrappedPath):
    def __init__(self, how: Replay) -> None:
        super().__init__(name=f"capturing-{how.__name__}", batches_launches=False)
        self.how = how

    def capture(self, launch: Launch) -> Replayed:
        return Replayed(self, launch)


def right(replayed: Replayed, launch: Launch, out: Any) -> None:
    replayed.path.base.run(launch, out)


def skips_the_last_rows(replayed: Replayed, launch: Launch, out: Any) -> None:
    whole = poisoned_outputs(replayed.path, launch, neartie.audit.launching.POISONS[0])
    replayed.path.base.run(launch, whole)
    for name in OUTPUTS:
        getattr(out, name)[:, :-2] = getattr(whole, name)[:, :-2]


def reads_what_was_captured(replayed: Replayed, launch: Launch, out: Any) -> None:
    replayed.path.base.run(replayed.captured, out)


def writes_ids_once(replayed: Replayed, launch: Launch, out: Any) -> None:
    before = out.ids.copy()
    replayed.path.base.run(launch, out)
    # Under poison it looks right; over an older result nothing is written.
    if (before >= 0).all():
        out.ids[:] = before


def is_noisy(replayed: Replayed, launch: Launch, out: Any) -> None:
    replayed.path.base.run(launch, out)
    out.weights[0, 3, 2] = np.nextafter(out.weights[0, 3, 2], np.float32(1.0))


def launches() -> list[Launch]:
    bank = open_bank(BANK)
    return alternating(make_launch(bank, front_weights(bank), bank.read(0, 60), 20, 4))


def found(how: Replay) -> set[tuple[str, str]]:
    differences = check_replay(Capturing(how), launches())
    assert differences is not None
    return {(str(one.finding), one.tensor) for one in differences}


def test_a_right_replay_has_no_finding() -> None:
    assert found(right) == set()


def test_rows_that_a_replay_skips_are_unwritten_and_then_stale() -> None:
    assert found(skips_the_last_rows) == {
        (kind, tensor) for kind in ("unwritten_rows", "stale_output") for tensor in OUTPUTS
    }
    differences = check_replay(Capturing(skips_the_last_rows), launches())
    assert differences is not None
    assert all(np.flatnonzero(one.rows).tolist() == [18, 19] for one in differences)


def test_captured_inputs_make_stale_outputs() -> None:
    assert found(reads_what_was_captured) == {("stale_output", tensor) for tensor in OUTPUTS}


def test_an_output_that_is_not_rewritten_is_stale() -> None:
    assert found(writes_ids_once) == {("stale_output", "ids")}


def test_another_bit_is_nondeterministic() -> None:
    assert found(is_noisy) == {("nondeterministic", "weights")}


def test_a_capture_that_raises_is_no_finding() -> None:
    def breaks(replayed: Any, launch: Any, out: Any) -> None:
        raise RuntimeError("no graph")

    with pytest.raises(PathError, match="capturing-breaks raised RuntimeError: no graph"):
        check_replay(Capturing(breaks), launches())


@pytest.mark.parametrize("rows", [1, 13, 20, 60])
def test_the_second_launch_has_other_inputs(rows: int) -> None:
    bank = open_bank(BANK)
    width = min(rows, 20)
    pair = alternating(make_launch(bank, front_weights(bank), bank.read(0, rows), width, 4))
    assert [one.rows for one in pair] == [width] * (1 if rows == 1 else 2)
    inputs = {one.hidden.tobytes() for one in pair if one.hidden is not None}
    assert len(inputs) == len(pair)


def audit(how: Replay) -> Any:
    return neartie.run_audit(
        BANK, candidate=Capturing(how), rows=[12, 20], ranks=4, gate=False
    ).record


def test_the_audit_replays_what_a_path_captures() -> None:
    record = audit(right)
    assert [bank["graph_replays"] for bank in record["banks"]] == [8]
    assert not [r for r in record["verdict"]["reasons"] if r["state"] == "FAIL"]


@pytest.mark.parametrize(
    ("how", "codes"),
    [
        (skips_the_last_rows, {"unwritten_rows", "stale_output"}),
        (reads_what_was_captured, {"stale_output"}),
        (writes_ids_once, {"stale_output"}),
        (is_noisy, {"nondeterministic"}),
    ],
)
def test_the_audit_fails_a_faulty_capture_by_name(how: Replay, codes: set[str]) -> None:
    reasons = audit(how)["verdict"]["reasons"]
    failing = {r["code"] for r in reasons if r["state"] == "FAIL"}
    assert failing == codes
    assert all("CUDA-graph replay" in r["text"] for r in reasons if r["code"] in codes)
