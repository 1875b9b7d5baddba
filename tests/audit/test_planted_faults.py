"""A path with a planted fault fails, and the message names the fault.

Each fault wraps the route path and spoils its outputs; the same audit of the clean pair passes
every rule but the row count.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.banks.bank import Header, RowBlock
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.write import write_bank
from neartie.kernels.contract import BFLOAT16

BANK = "gaussian:geometry=mini,rows=60,seed=3"
# A weight scale other than 1 shows what happens to it.
SCALED = "gaussian:geometry=deepseek-v3,hidden=64,rows=40,seed=3"


class Faulty(WrappedPath):
    """The route path, called launch by launch or not, with its outputs changed."""

    def __init__(self, spoil: Any, base: str = "route", at_once: bool = False) -> None:
        super().__init__(spoil, base, batches_launches=at_once)


def audit(
    spoil: Any,
    bank: Any = BANK,
    baseline: Any = "general",
    base: Any = "route",
    at_once: bool = False,
    **options: Any,
) -> Any:
    """Audit it; ``at_once`` where a fault is of each row by itself, and there are many rows."""
    path = Faulty(spoil, base, at_once)
    return neartie.run_audit(
        bank, baseline=baseline, candidate=path, rows=[12, 20], ranks=4, **options
    )


def failures(result: Any) -> Any:
    return {
        r["code"]: r["text"] for r in result.record["verdict"]["reasons"] if r["state"] == "FAIL"
    }


def test_the_clean_pair_has_no_failure() -> None:
    def nothing(launch: Any, out: Any) -> None:
        pass

    result = audit(nothing)
    assert failures(result) == {}
    assert result.record["provisional_class"] == "LIGHT"


def test_duplicate_id() -> None:
    def duplicate(launch: Any, out: Any) -> None:
        out.ids[:, 3, 5] = out.ids[:, 3, 4]

    found = failures(audit(duplicate))
    assert "candidate at width 20: duplicate_id in 12 of 240 rows" in found["breach:duplicate_id"]


def test_id_out_of_range() -> None:
    def beyond(launch: Any, out: Any) -> None:
        out.ids[:, 0, 0] = launch.geometry.experts

    assert "id_out_of_range" in failures(audit(beyond))["breach:id_out_of_range"]


def test_unwritten_tail_of_every_launch() -> None:
    def poisoned(launch: Any, out: Any) -> None:
        pass

    class Lazy(Faulty):
        def run(self, launch: Any, out: Any) -> None:
            ids, weights = out.ids.copy(), out.weights.copy()
            super().run(launch, out)
            out.ids[:, -2:], out.weights[:, -2:] = ids[:, -2:], weights[:, -2:]

    result = neartie.run_audit(BANK, candidate=Lazy(poisoned), rows=[12], ranks=4)
    found = failures(result)
    assert "breach:poison_survives" in found
    assert "unwritten_rows" in found


def test_stale_row_of_the_last_launch() -> None:
    def remember(launch: Any, out: Any) -> None:
        pass

    class Stale(Faulty):
        kept = None

        def run(self, launch: Any, out: Any) -> None:
            super().run(launch, out)
            fresh = out.ids[:, 7].copy(), out.weights[:, 7].copy()
            if self.kept is not None:
                out.ids[:, 7], out.weights[:, 7] = self.kept
            self.kept = fresh

    result = neartie.run_audit(BANK, candidate=Stale(remember), rows=[12], ranks=4)
    assert "repeat the same place of the launch before" in failures(result)["stale_output"]


def test_bias_inside_the_weights() -> None:
    def biased(launch: Any, out: Any) -> None:
        scores = 1 / (1 + np.exp(-out.logits.astype(np.float64)))
        chosen = np.take_along_axis(scores, out.ids.astype(np.int64), axis=2)
        chosen = chosen + launch.weights.bias[out.ids]
        out.weights[:] = chosen / chosen.sum(axis=2, keepdims=True)

    found = failures(audit(biased, bank="gaussian:geometry=mini,rows=60,bias=0.3"))
    assert "explained_by:biased_score_weights" in found
    assert "weight_budget" in found


def test_bf16_bias() -> None:
    def nothing(launch: Any, out: Any) -> None:
        pass

    bank = "gaussian:geometry=mini,rows=1000,bias=0.3"
    found = failures(audit(nothing, bank=bank, base="route:bias=bf16", at_once=True))
    assert (
        "bf16_bias reproduces 42 of 42 wrong rows tried, ids and weights bit for bit"
        in (found["explained_by:bf16_bias"])
    )


def test_one_rank_different() -> None:
    def third(launch: Any, out: Any) -> None:
        out.ids[2, 5, [0, 1]] = out.ids[2, 5, [1, 0]]

    found = failures(audit(third))
    assert "ids of rank 2 differs from rank 0" in found["rank_disagreement"]


def test_a_near_tie_does_not_excuse_a_rank_disagreement() -> None:
    """One rank takes the other expert of an exact tie: a swap that the policy would accept."""

    def last_rank_takes_the_other(launch: Any, out: Any) -> None:
        order = np.argsort(
            -out.logits[0] if out.logits is not None else -launch.logits, kind="stable"
        )
        out.ids[3, :, -1] = order[:, launch.geometry.top_k]

    result = neartie.run_audit(
        "near_tie:geometry=mini,gap=0,rows=40,bias=0",
        candidate=Faulty(last_rank_takes_the_other),
        rows=[20],
        ranks=4,
    )
    assert "rank_disagreement" in failures(result)


def test_scale_twice() -> None:
    def twice(launch: Any, out: Any) -> None:
        out.weights[:] = out.weights * np.float32(launch.scoring.scale)

    found = failures(
        audit(
            twice,
            bank=SCALED,
            baseline="general:select=grouped",
            base="route:select=grouped",
        )
    )
    assert "explained_by:scale_applied_twice" in found
    assert "scaled" in found["weight_budget"]


def test_a_run_that_differs_from_itself() -> None:
    calls = itertools.count(1)

    def drifting(launch: Any, out: Any) -> None:
        out.weights[:, 0, 0] += np.float32(1e-6 * next(calls))

    found = failures(audit(drifting))
    assert "differs between two runs on the same input" in found["nondeterministic"]


def test_a_row_that_depends_on_the_width() -> None:
    def wide(launch: Any, out: Any) -> None:
        if launch.width == 20:
            out.weights[:] = np.nextafter(out.weights, np.float32(2))

    path = Faulty(wide)
    path.declared = replace(path.declared, select_row_independent=True)
    result = neartie.run_audit(BANK, candidate=path, rows=[12, 20], ranks=4)
    assert "differs from the same row's at width 12" in failures(result)["width_dependent"]


def test_a_declared_width_dependence_is_disclosed_only() -> None:
    result = neartie.run_audit(BANK, baseline="general:reduce=ring_bf16", rows=[9, 20], ranks=4)
    assert failures(result) == {}
    codes = {r["code"] for r in result.record["verdict"]["reasons"]}
    assert "width_dependent" in codes


def test_logits_read_in_another_layout() -> None:
    def rank_major_as_row_major(launch: Any, out: Any) -> None:
        ranks, rows, experts = out.logits.shape
        width = experts // ranks
        shards = out.logits[0].reshape(rows, ranks, width).transpose(1, 0, 2)
        out.logits[:] = shards.reshape(rows, experts)

    assert "layout_permutation" in failures(audit(rank_major_as_row_major))


def test_permuted_ids() -> None:
    def permuted(launch: Any, out: Any) -> None:
        out.ids[:] = (out.ids * 3) % launch.geometry.experts

    # 3 and 896 share no factor, so this is a permutation of the experts.
    assert "id_permutation" in failures(audit(permuted))


def test_a_wrong_schedule_is_named() -> None:
    def nothing(launch: Any, out: Any) -> None:
        pass

    path = Faulty(nothing, "general:reduce=tree_bf16")
    path.declared = neartie.make_path("general").declared
    result = neartie.run_audit(BANK, candidate="route", baseline=path, rows=[20], ranks=8)
    assert "nearest is tree_bf16" in failures(result)["schedule_mismatch"]


def test_both_paths_with_the_same_fault_do_not_pass() -> None:
    """The oracle that repeats the bug: only the reference can tell."""

    def nothing(launch: Any, out: Any) -> None:
        pass

    bank = "gaussian:geometry=mini,rows=1000,bias=0.3"
    found = failures(
        audit(
            nothing, bank=bank, baseline="general:bias=bf16", base="route:bias=bf16", at_once=True
        )
    )
    assert "oracle_echo" in found


def test_bf16_weights_are_named() -> None:
    def narrowed(launch: Any, out: Any) -> None:
        out.weights[:] = out.weights.astype(BFLOAT16).astype(np.float32)

    found = failures(audit(narrowed))
    assert "narrowed_bf16" in found["weight_budget"]


def test_experts_that_are_never_chosen() -> None:
    def first_half_only(launch: Any, out: Any) -> None:
        half = launch.geometry.experts // 2
        keys = out.logits[0, :, :half] + 10 * (launch.weights.bias[:half] > 9)
        out.ids[:] = np.argsort(-keys, axis=1, kind="stable")[:, : launch.geometry.top_k]

    bank = "gaussian:geometry=mini,rows=2000,bias=0"
    found = failures(audit(first_half_only, bank=bank, at_once=True))
    assert "448..895" in found["never_selected"]


def spread_partials(ranks: int, directory: Path) -> str:
    """A bank of partials whose FP32 sum depends on the order."""
    geometry = Geometry("spread", hidden=64, latent=64, experts=64, top_k=4)
    rng = np.random.default_rng(5)
    partials = rng.standard_normal((ranks, 20, 64))
    # Large values of ranks 0 and 1 cancel: exactly before the small ones are added, and with a
    # rounding of the small ones after.
    partials[0], partials[1] = 2.0**20, -(2.0**20)
    zero = np.zeros(20, np.int32)
    keys = {"layer": zero, "step": zero, "row": np.arange(20, dtype=np.int32), "rank": zero - 1}
    block = RowBlock(
        0,
        20,
        keys,
        latent_partials=partials.astype(BFLOAT16),
        logits_shards=rng.standard_normal((ranks, 20, 64 // ranks)).astype(np.float32),
    )
    header = Header(
        "spread", 20, geometry, ScoringRule(), "unspecified", "row", "partials", "", ranks=ranks
    )
    write_bank(directory, header, {"correction_bias": np.zeros(64, np.float32)}, [block])
    return str(directory)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_that_add_in_another_order_disagree(ranks: int, tmp_path: Path) -> None:
    result = neartie.run_audit(
        spread_partials(ranks, tmp_path / "bank"),
        baseline="general:reduce=own_rank_first_fp32",
        candidate="general",
        rows=[20],
        ranks=ranks,
    )
    found = failures(result)
    if ranks == 2:
        # a + b = b + a: two ranks cannot disagree.
        assert "rank_disagreement" not in found
    else:
        assert "latent of rank" in found["rank_disagreement"]
        assert "baseline general:reduce=own_rank_first_fp32" in found["rank_disagreement"]


def test_a_path_that_raises_is_not_run_with_its_reason() -> None:
    def explode(launch: Any, out: Any) -> None:
        if launch.width == 20:
            raise RuntimeError("kernel launch failed")

    result = audit(explode)
    assert [w["width"] for w in result.record["widths"]] == [12]
    (gone,) = [item for item in result.record["coverage"] if not item["ran"]]
    assert gone["width"] == 20
    assert "raised RuntimeError: kernel launch failed (test_planted_faults.py:" in gone["reason"]
    assert result.exit_status == 3
    assert {r["width"] for r in result.values.to_pylist()} == {12}


def test_a_path_cannot_change_what_the_other_one_sees() -> None:
    def greedy(launch: Any, out: Any) -> None:
        launch.hidden[:] = 0

    result = audit(greedy)
    assert result.record["verdict"]["state"] == "NOT_RUN"
    assert "read-only" in result.record["verdict"]["reasons"][0]["text"]
