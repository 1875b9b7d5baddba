"""Audits cut into row ranges: the bits of one process, whoever ran what, and after any stop."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

from neartie.audit.attribute import LatentSums
from neartie.audit.bank_outcome import BankOutcome, ExpertCounts
from neartie.audit.bank_run import BankRun
from neartie.audit.engine.contract import Part
from neartie.audit.engine.local import LocalEngine
from neartie.audit.finding_log import FindingLog
from neartie.audit.gate.run import run_gate
from neartie.audit.hypotheses import FailingRows
from neartie.audit.pairing import Pairing
from neartie.audit.policy import Policy
from neartie.audit.result import AuditResult
from neartie.audit.run import plan_audit, run_audit
from neartie.audit.shard_document import read_shard, shard_document
from neartie.audit.width_dependence import WidthCounts
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.kernels.registry import make_path

# Three chunks of the first bank, of rows whose candidate has other sets; a bank of one; and one
# whose rows run the whole front.
BANKS = [
    "normal:geometry=mini,rows=9000,seed=3",
    "special:geometry=mini,rows=60",
    "gaussian:geometry=256x64x64x6,rows=40",
]
WORDS = ["--candidate", "route:bias=bf16", "--rows", "9,20", "--ranks", "2", "--no-gate"]
ASKED: dict[str, Any] = {
    "candidate": "route:bias=bf16",
    "rows": [9, 20],
    "ranks": 2,
    "gate": False,
}
SHARDS = 5


def bits(result: AuditResult, folder: Path) -> dict[str, bytes]:
    """All that is written; the manifest alone has the date."""
    written = result.write(folder)
    return {p.name: p.read_bytes() for p in written.iterdir() if p.name != "manifest.json"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The evidence of one process that keeps nothing."""
    return bits(run_audit(BANKS, **ASKED), tmp_path_factory.mktemp("whole") / "evidence")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work directory with every shard, made by two processes."""
    folder = tmp_path_factory.mktemp("kept")
    result = run_audit(BANKS, **ASKED, work=folder / "work", workers=2)
    bits(result, folder / "evidence")
    return folder


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the shards that are run from here on, in this process."""
    seen: list[int] = []
    run = LocalEngine.run

    def counting(self: Any, work: Any, parts: Sequence[Part], done: Any) -> None:
        seen.extend(part.number for part in parts)
        run(self, work, parts, done)

    monkeypatch.setattr(LocalEngine, "run", counting)
    return seen


def shards(work: Path) -> list[Path]:
    return sorted(work.glob("audit-*/shard-*.pickle"))


def test_two_processes_give_the_bits_of_one(whole: dict[str, bytes], kept: Path) -> None:
    evidence = kept / "evidence"
    names = {p.name for p in evidence.iterdir()} - {"manifest.json"}
    assert names == set(whole)
    assert {name: (evidence / name).read_bytes() for name in names} == whole
    assert len(shards(kept / "work")) == SHARDS


def test_what_is_finished_is_not_run_again(
    whole: dict[str, bytes], kept: Path, tmp_path: Path, counted: list[int]
) -> None:
    work = tmp_path / "work"
    (work / "x").mkdir(parents=True)
    (source,) = (kept / "work").iterdir()
    folder = work / source.name
    folder.mkdir()
    for path in shards(kept / "work"):
        (folder / path.name).write_bytes(path.read_bytes())
    files = shards(work)
    # One is gone, one is half written, one is another one's.
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-1])
    files[4].write_bytes(files[3].read_bytes())
    result = run_audit(BANKS, **ASKED, work=work)
    assert counted == [1, 2, 4]
    assert bits(result, tmp_path / "evidence") == whole


def test_chunks_merge_in_the_worker_where_a_bank_has_many(
    whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neartie.audit.bank_work.MOST_SHARDS", 1)
    result = run_audit(BANKS, **ASKED, work=tmp_path / "work")
    assert len(shards(tmp_path / "work")) == len(BANKS)
    assert bits(result, tmp_path / "evidence") == whole


def test_another_question_takes_nothing_over(kept: Path, counted: list[int]) -> None:
    run_audit(BANKS, **{**ASKED, "rows": [9]}, work=kept / "work")
    assert counted == list(range(SHARDS))


def test_a_killed_audit_goes_on(
    whole: dict[str, bytes], tmp_path: Path, counted: list[int]
) -> None:
    work = tmp_path / "work"
    words = [sys.executable, "-P", "-m", "neartie", "audit", *BANKS, *WORDS]
    words += ["--work", str(work), "--workers", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not shards(work) and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = len(shards(work))
    assert 1 <= finished < SHARDS
    result = run_audit(BANKS, **ASKED, work=work)
    assert counted == list(range(finished, SHARDS))
    assert bits(result, tmp_path / "evidence") == whole


def test_a_work_directory_of_somebody_else_cannot_act(kept: Path, tmp_path: Path) -> None:
    class Acts:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "acted",))

    assert read_shard(shards(kept / "work")[0], "another key", 0) is None
    path = tmp_path / "shard"
    path.write_bytes(shard_document("key", 0, Acts()))  # type: ignore[arg-type]
    assert read_shard(path, "key", 0) is None
    assert not (tmp_path / "acted").exists()
    # The document itself is in order: an unpickler that trusts it would act.
    pickle.loads(pickle.dumps(Acts()))
    assert (tmp_path / "acted").exists()


def test_what_another_process_could_not_make_keeps_no_shards(tmp_path: Path) -> None:
    path = WrappedPath(name="mine")
    with pytest.raises(InputError, match=r"work=.*, but should be left out with open banks"):
        run_audit(BANKS[0], candidate=path, rows=[9], ranks=2, work=tmp_path / "work")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="but should be a directory that can be written"):
        run_audit(BANKS[1], rows=[9], ranks=2, gate=False, work=file / "work")
    with pytest.raises(InputError, match=r"work=.*, but should be left out with open banks"):
        plan_audit(BANKS[0], candidate=path, rows=[9], ranks=2, work=tmp_path / "work")


@pytest.mark.parametrize("place", ["", "s3://bucket/work", Path("gs://bucket/work")])
def test_what_is_no_directory_keeps_no_shards(place: str | Path) -> None:
    with pytest.raises(InputError, match="but should be a directory of this machine"):
        run_audit(BANKS[1], rows=[9], ranks=2, work=place)
    with pytest.raises(InputError, match="but should be a directory of this machine"):
        run_gate("standalone", "fused", "normal:geometry=mini", rows=100, work=place)


def test_what_is_no_file_is_no_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError, match=rf"shard=.*{name}, but should be a file"):
            read_shard(tmp_path / name, "key", 0)


def test_a_width_that_raises_in_one_chunk_is_no_result() -> None:
    """Shards cannot know of each other's widths; merged, the width is gone from all of them."""

    def late(launch: Any, out: Any) -> None:
        if launch.width == 9 and launch.row_index[0] >= 4096:
            raise ValueError("a later row")

    path = WrappedPath(late, "route:bias=bf16", name="late")
    both = run_audit(BANKS[0], candidate=path, rows=[9, 20], ranks=2, gate=False)
    alone = run_audit(BANKS[0], candidate=path, rows=[20], ranks=2, gate=False)
    covered = {c["width"]: c for c in both.record["coverage"]}
    assert not covered[9]["ran"]
    assert "ValueError: a later row" in covered[9]["reason"]
    assert both.values.equals(alone.values)
    assert both.histograms.equals(alone.histograms)
    assert {c["width"] for c in both.swaps.to_pylist()} == {20}


@pytest.mark.parametrize(
    "spec", ["normal:geometry=mini,rows=400", "gaussian:geometry=256x64x64x6,rows=400"]
)
def test_what_is_held_does_not_grow_with_the_rows(spec: str) -> None:
    """Merged, 32 chunks without a differing row are as large as one, but for longer integers."""
    bank, path = open_bank(spec), make_path("route")
    run = BankRun(bank, 0, Pairing(make_path("general"), path, (9,), 2, Policy()))
    shard = run.shard(0, bank.rows)
    assert not shard.counts.certificates
    found, sizes = run.empty(), []
    for _ in range(32):
        found.merge(shard, (9,))
        sizes.append(len(pickle.dumps(found)))
    assert found.counts.tallies[9].rows == 32 * 2 * bank.rows
    assert sizes[-1] < sizes[0] + 500


PARTS = [BankOutcome, FindingLog, WidthCounts, LatentSums, FailingRows]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_a_part_that_is_left_out_of_the_merge_is_seen(
    part: Any,
    whole: dict[str, bytes],
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part, "merge", lambda *arguments: None)
    # Every shard lies there: they are merged, and none is run.
    merged = run_audit(BANKS, **ASKED, work=kept / "work")
    assert bits(merged, tmp_path / "evidence") != whole


def test_experts_add_up_by_path_and_width() -> None:
    first, later = ExpertCounts(), ExpertCounts()
    first.chosen["candidate", 9] = np.array([1, 0, 2])
    later.chosen["candidate", 9] = np.array([0, 5, 1])
    later.chosen["candidate", 20] = np.array([1, 1, 1])
    first.rows[9], later.rows[9] = 3, 4
    first.merge(later)
    assert first.of("candidate", 3).tolist() == [2, 6, 4]
    assert first.of("baseline", 3).tolist() == [0, 0, 0]
    assert first.rows[9] == 7
    first.forget_width(20)
    assert first.of("candidate", 3).tolist() == [1, 5, 3]


def test_the_earlier_width_keeps_its_failing_rows() -> None:
    """What one pass over all rows would keep: the first width, in the audit's order, that fails."""
    late, early = FailingRows(width=20, count=5), FailingRows(width=9, count=2)
    late.merge(early, [9, 20])
    assert (late.width, late.count) == (9, 2)
    late.merge(FailingRows(width=20, count=7), [9, 20])
    late.merge(FailingRows(width=9, count=1), [9, 20])
    late.merge(FailingRows(), [9, 20])
    assert (late.width, late.count) == (9, 3)
    late.forget_width(9)
    assert (late.width, late.count) == (0, 0)
