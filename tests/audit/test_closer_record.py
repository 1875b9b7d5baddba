"""Closeness in an audit's record: made from the tables, checked there, and absent in older ones."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.closer import recorded_controls
from neartie.audit.compare import BASELINE, CANDIDATE
from neartie.audit.error_groups import (
    GROUPS,
    METRIC,
    PARTS,
    ROUNDED_PARTS,
    GroupSums,
    group_of_units,
)
from neartie.audit.evidence.manifest import Manifest, document_text, file_digest
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.histograms import HISTOGRAMS_SCHEMA
from neartie.audit.metrics.closeness import RESAMPLES, SEED
from neartie.audit.result import AuditResult

BANKS = [f"gaussian:geometry=256x64x64x6,rows=64,seed={seed}" for seed in (1, 2)]
RANKS = 8


@pytest.fixture(scope="module")
def result() -> AuditResult:
    return neartie.run_audit(BANKS, rows=[12], ranks=RANKS)


@pytest.fixture(scope="module")
def written(result: AuditResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result.write(tmp_path_factory.mktemp("evidence") / "audit")


@pytest.fixture
def evidence(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "audit"))


def latent(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = result.record["widths"][0]["closer_to_reference"]["latent"]
    return found


def test_route_is_closer_pooled_and_on_each_bank(result: AuditResult) -> None:
    found = latent(result)
    assert (found["answer"], found["sign_answer"], found["ratio_answer"]) == ("closer",) * 3
    assert (found["units"], found["resamples"], found["seed"]) == (2 * GROUPS, RESAMPLES, SEED)
    sides = result.record["widths"][0]["triangle"]["latent"]
    ratio = sides["candidate_reference"] / sides["baseline_reference"]
    assert found["ratio"] == pytest.approx(ratio, rel=1e-12)
    assert found["ratio_low"] < ratio < found["ratio_high"] < 0.8
    assert found["reasons"] == []
    assert 0 < found["reference_error"] < 1e-14
    for bank in result.record["banks"]:
        own = bank["per_width"]["12"]["closer_to_reference"]["latent"]
        assert (own["answer"], own["wins"], own["units"]) == ("closer", 64, GROUPS)
    # Both paths have the same logits: each row is a tie.
    logits = result.record["widths"][0]["closer_to_reference"]["logits"]
    assert (logits["answer"], logits["ratio"]) == ("not distinguishable", 1.0)


def test_swapped_it_is_farther_and_an_equal_schedule_is_not_distinguishable() -> None:
    swapped = neartie.run_audit(BANKS[0], baseline="route", candidate="general", rows=[12],
                                ranks=RANKS)  # fmt: skip
    assert latent(swapped)["answer"] == "farther"
    equal = neartie.run_audit(
        BANKS[0], candidate="general:reduce=own_rank_first_fp32", rows=[12], ranks=RANKS
    )
    found = latent(equal)
    assert found["answer"] == "not distinguishable"
    assert found["ratio_low"] <= 1.0 <= found["ratio_high"]


def test_weights_that_are_no_numbers_are_the_reason() -> None:
    def without_weights(launch: Any, out: Any) -> None:
        out.weights[:] = np.nan

    bank = "gaussian:geometry=256x64x64x6,rows=24"
    path = WrappedPath(without_weights, "general")
    audit = neartie.run_audit(bank, baseline="general", candidate=path, rows=[12], ranks=4)
    found = audit.record["widths"][0]["closer_to_reference"]["weights"]
    assert (found["answer"], found["undefined"]) == ("not distinguishable", 24)
    assert found["reasons"] == ["no row has an error on both sides (on 24 rows it is no number)"]


def test_groups_are_of_units_and_hold_all_errors() -> None:
    units = np.array([7, 7, 3, 9, 3, 100])
    assert group_of_units(units).tolist() == [7, 7, 3, 9, 3, 100 - 3 * GROUPS]
    assert group_of_units(np.arange(GROUPS + 1))[-1] == 0
    mine, other = np.array([1.0, 2, 3, 4, 5, np.nan]), np.array([1.0, 1, 1, 1, 1, 1])
    sums = GroupSums()
    sums.add(mine, other, units)
    lines = list(sums.parts())
    rows: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for path, _, share, count in lines:
        rows[path] += count
        parts[path] += share
    assert rows == {CANDIDATE: 5, BASELINE: 5}
    assert abs(parts.total() - PARTS) <= ROUNDED_PARTS
    assert parts[CANDIDATE] / parts[BASELINE] == pytest.approx(3.0, rel=1e-12)
    nothing = GroupSums()
    nothing.add(np.zeros(3), np.zeros(3), np.arange(3))
    assert list(nothing.parts()) == []


def rewritten(place: Path, change: Any) -> Any:
    """Verify with the histograms' lines changed and every hash made again."""
    lines = pq.read_table(place / "histograms.parquet").to_pylist()
    table = pa.Table.from_pylist(change(lines), schema=HISTOGRAMS_SCHEMA)
    pq.write_table(table, place / "histograms.parquet")
    document = json.loads((place / "manifest.json").read_text())
    document["files"] = {name: file_digest(place / name) for name in document["files"]}
    digest = Manifest.model_validate(document).own_digest()
    (place / "manifest.json").write_text(document_text({**document, "digest": digest}))
    return verify_evidence(place)


def first_group(lines: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    number = next(i for i, line in enumerate(lines) if line["metric"] == METRIC)
    lines[number] = lines[number] | changes
    return lines


def test_evidence_verifies_and_older_evidence_without_groups_does_too(evidence: Path) -> None:
    assert verify_evidence(evidence).state == "PASS"
    record = json.loads((evidence / "audit.json").read_text())
    old = ("answer", "wins", "losses", "ties", "undefined", "p_value")
    for width in record["widths"]:
        tests = width["closer_to_reference"]
        for tensor, test in tests.items():
            tests[tensor] = {name: test[name] for name in old} | {"answer": test["sign_answer"]}
    for bank in record["banks"]:
        for counts in bank["per_width"].values():
            del counts["closer_to_reference"]
    (evidence / "audit.json").write_text(document_text(record))
    found = rewritten(evidence, lambda lines: [o for o in lines if o["metric"] != METRIC])
    # Reports are rendered from the record, whose answers have not changed.
    assert found.state == "PASS", found


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"count": 3}, "latent has 64 rows with two errors"),
        ({"steps": 0}, "the groups of latent hold"),
        ({"steps": -1}, "has -1 parts"),
        ({"steps": None}, "has None parts"),
        ({"key": "latent/77"}, "has a group 77"),
    ],
)
def test_a_changed_group_is_found(evidence: Path, changes: dict[str, Any], text: str) -> None:
    found = rewritten(evidence, lambda lines: first_group(lines, **changes))
    assert found.state == "FAIL"
    assert any(p.code == "counts" and text in p.text for p in found.problems), found


def test_controls_of_an_edited_record_are_numbers_or_nothing() -> None:
    banks = [{"name": "a", "fp32_reference_control": {"latent": "x", "logits": 1e-7}}, "b", {}]
    assert recorded_controls(banks) == {"a": {"latent": None, "logits": 1e-7}}
    assert recorded_controls(None) == {}
