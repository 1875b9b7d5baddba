"""The Ray engine: the bits of the local one, whoever is lost on the way; one small cluster here."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_work import WAIT_SECONDS, Misbehaving, SeesDevices, documents, nothing, parts_in

from neartie.audit.engine.contract import Part, WorkerError
from neartie.audit.engine.ray_cluster import connected
from neartie.audit.engine.ray_engine import LOST_AT_MOST, QUEUED_PER_SLOT, RayEngine, _Flight
from neartie.audit.gate.result import GateResult
from neartie.audit.gate.run import run_gate
from neartie.audit.run import run_audit
from neartie.banks.errors import InputError

pytest.importorskip("ray", reason="the extra ray is not installed")

SLOTS = 2
SMALL: dict[str, Any] = {
    "source": "normal:geometry=mini",
    "rows": 8000,
    "widths": (9, 20),
    "shard_rows": 1000,
    "seed": 3,
}
SHARDS = 8


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two slots on this machine, for all tests of this file; its workers find ``engine_work``."""
    support = Path(__file__).resolve().parent.parent / "support"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(support), prepend=os.pathsep)
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 1}')
        with connected(None, SLOTS):
            yield


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The evidence of one process."""
    return bits(run_gate("standalone", "radix_bf16", **SMALL), tmp_path_factory.mktemp("local"))


def bits(result: GateResult, folder: Path) -> dict[str, bytes]:
    """All that was written; the manifest alone has the date."""
    written = result.write(folder / "evidence")
    names = sorted(path.name for path in written.iterdir() if path.name != "manifest.json")
    assert {"gate.json", "swaps.parquet", "histograms.parquet"} <= set(names)
    return {name: (written / name).read_bytes() for name in names}


def running_workers() -> list[int]:
    """Processes below this one that run a part now."""
    found, todo = [], [os.getpid()]
    while todo:
        process = Path(f"/proc/{todo.pop()}")
        try:
            todo += [int(n) for t in process.glob("task/*/children") for n in t.read_text().split()]
            if (process / "cmdline").read_bytes().startswith(b"ray::_run_parts"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_the_bits_are_those_of_one_process(local: dict[str, bytes], tmp_path: Path) -> None:
    result = run_gate("standalone", "radix_bf16", **SMALL, engine="ray")
    assert bits(result, tmp_path) == local
    assert len(result.swaps) > 100
    assert result.record["plan"]["shards"] == SHARDS


def test_a_worker_killed_in_the_middle_changes_no_bit(
    local: dict[str, bytes], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill(done: int, total: int, text: str) -> None:
        running = running_workers()
        if running and not killed:
            os.kill(running[0], signal.SIGKILL)
            killed.append(running[0])

    result = run_gate("standalone", "radix_bf16", **SMALL, engine="ray", progress=kill)
    assert len(killed) == 1
    assert bits(result, tmp_path) == local


def test_ray_goes_on_from_what_a_local_run_finished(
    local: dict[str, bytes], tmp_path: Path
) -> None:
    work = tmp_path / "work"

    class Stopped(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done >= 3000:
            raise Stopped

    with pytest.raises(Stopped):
        run_gate("standalone", "radix_bf16", **SMALL, work=work, progress=stop)
    result = run_gate("standalone", "radix_bf16", **SMALL, work=work, engine="ray", workers=1)
    assert result.reused_shards == 3
    assert bits(result, tmp_path) == local


def test_a_part_that_lost_its_worker_is_run_again(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, 4)
    RayEngine().run(Misbehaving(tmp_path, "die_once", bad=2, key="a"), parts, nothing)
    assert documents(parts) == [f"document {n}" for n in range(4)]
    assert (tmp_path / "deaths").read_text() == "x"


def test_a_part_that_kills_every_worker_ends_the_run(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, 2)
    with pytest.raises(WorkerError, match=f"part 1 lost its worker {LOST_AT_MOST + 1} times"):
        RayEngine().run(Misbehaving(tmp_path, "die", bad=1, key="b"), parts, nothing)
    # Another try, begun because a new worker takes long to come, may be under way.
    assert LOST_AT_MOST + 1 <= len((tmp_path / "deaths").read_text()) <= LOST_AT_MOST + 2


def test_a_parts_own_error_is_told_once_and_not_tried_again(tmp_path: Path) -> None:
    text = (
        r"^part 0 failed by ZeroDivisionError: of this part\\nand no other \(engine_work.py:\d+\)$"
    )
    with pytest.raises(WorkerError, match=text):
        RayEngine().run(Misbehaving(tmp_path, "raise", key="c"), parts_in(tmp_path, 3), nothing)
    with pytest.raises(InputError, match=r"^row=7, but should be another \[the part\]$"):
        RayEngine().run(Misbehaving(tmp_path, "refuse", key="d"), parts_in(tmp_path, 3), nothing)


def test_a_slow_part_holds_up_no_other_and_few_are_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, most = 12, 0
    finished: list[int] = []
    plain = _Flight.documents

    def watched(self: _Flight, parts: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
        nonlocal most
        for part, document in plain(self, parts):
            most = max(most, len(self._calls))
            yield part, document

    def done(part: Part) -> None:
        finished.append(part.number)
        if len(finished) == count - 1:
            (tmp_path / "go").touch()

    monkeypatch.setattr(_Flight, "documents", watched)
    RayEngine().run(Misbehaving(tmp_path, "wait", key="e"), parts_in(tmp_path, count), done)
    assert finished[-1] == 0
    assert sorted(finished) == list(range(count))
    assert SLOTS <= most <= SLOTS * QUEUED_PER_SLOT


def test_a_call_that_hangs_is_run_by_another_worker(tmp_path: Path) -> None:
    """The first try at part 0 takes a minute, and the rest of its call waits for it.

    Its worker is ended when all is done, or it would keep its slot of a cluster that others use.
    """
    parts, told = parts_in(tmp_path, 12), list[int]()
    began = time.monotonic()
    work = Misbehaving(tmp_path, "hang_once", key="hang_once")
    RayEngine().run(work, parts, lambda part: told.append(part.number))
    assert time.monotonic() - began < WAIT_SECONDS / 4
    assert documents(parts) == [f"document {n}" for n in range(12)]
    assert sorted(told) == list(range(12))
    assert gone_soon(Path(f"/proc/{(tmp_path / 'hung').read_text()}/cmdline"))


def gone_soon(process: Path) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 10.0
    while process.exists() and process.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not process.exists() or not process.read_bytes()


def test_a_gpu_is_asked_for_where_the_work_needs_one(tmp_path: Path) -> None:
    """The cluster is told that it has one GPU; a task that asked for it sees that one alone."""
    parts = parts_in(tmp_path, 3)
    RayEngine().run(SeesDevices(), parts, nothing)
    assert documents(parts) == ["0", "0", "0"]
    assert RayEngine().slots(SeesDevices()) == 1
    assert RayEngine().slots(SeesDevices(gpus=0)) == SLOTS
    with pytest.raises(InputError, match="GPUs of the cluster=fewer, but should be at least the 2"):
        RayEngine().run(SeesDevices(gpus=2), parts, nothing)


def test_another_clusters_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"address=127[.]0[.]0[.]1:1, but should be"):
        RayEngine(None, "127.0.0.1:1").run(Misbehaving(tmp_path), parts_in(tmp_path, 1), nothing)


def test_an_audit_of_banks_apart_has_the_bits_of_one_here() -> None:
    banks = ["near_tie:geometry=mini,rows=32", "gaussian:geometry=mini,rows=10"]
    options: dict[str, Any] = {"rows": [9, 20], "ranks": 2, "gate": False, "command": "the same"}
    seen: list[tuple[int, int]] = []
    here = run_audit(banks, candidate="general:select=radix_bf16", **options)
    apart = run_audit(
        banks, candidate="general:select=radix_bf16", engine="ray", **options,
        progress=lambda done, total, name: seen.append((done, total)),
    )  # fmt: skip
    assert apart.to_json() == here.to_json()
    assert len(here.swaps) > 0
    for table in ("swaps", "values", "histograms"):
        assert getattr(apart, table).equals(getattr(here, table))
    # Told once a bank: they ran apart.
    assert len(seen) == 2
    assert seen[-1] == (84, 84)
