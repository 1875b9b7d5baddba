"""What an engine refuses before anything runs, and workers that are unfit for a plan."""

import errno
import importlib.util
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_work import Misbehaving, documents, nothing, parts_in

from neartie.audit.certificates import severity
from neartie.audit.engine import ray_cluster
from neartie.audit.engine.choose import make_engine
from neartie.audit.engine.contract import WorkerError, write_whole
from neartie.audit.engine.local import LocalEngine
from neartie.audit.engine.ray_engine import RayEngine
from neartie.audit.gate import device_plan, host_shard
from neartie.audit.gate.device_plan import DevicePlan
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.run import run_gate
from neartie.audit.gate.work import GateWork
from neartie.audit.policy import Policy
from neartie.banks.bank import RowBlock
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.store import StoredBank
from neartie.banks.write import write_bank

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the extra ray is not installed"
)


def test_without_ray_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        make_engine("ray")
    expected = (
        'engine=ray, but should be installed: pip install ".[ray]" in a clone of neartie [--engine]'
    )
    assert str(caught.value) == expected


@needs_ray
@pytest.mark.parametrize("address", ["", "nowhere", "host:port", "127.0.0.1:99999", "closed"])
def test_an_address_where_nobody_answers(address: str, tmp_path: Path) -> None:
    with socket.socket() as held:
        # Bound and not listening: nobody else can take it, and nobody answers.
        held.bind(("127.0.0.1", 0))
        if address == "closed":
            address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(InputError, match=f"^address={address}, but should be "):
            RayEngine(1, address).run(Misbehaving(tmp_path), parts_in(tmp_path, 1), nothing)


def test_one_process_and_two_write_the_same_documents(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, 5)
    told: list[int] = []
    LocalEngine(2).run(Misbehaving(tmp_path), parts, lambda part: told.append(part.number))
    assert documents(parts) == [f"document {n}" for n in range(5)]
    assert sorted(told) == list(range(5))
    LocalEngine(1).run(Misbehaving(tmp_path), parts, nothing)
    assert documents(parts) == [f"document {n}" for n in range(5)]


def test_what_a_process_refuses_is_said_as_in_one_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"row=7, but should be another \[the part\]"):
            LocalEngine(workers).run(
                Misbehaving(tmp_path, "refuse"), parts_in(tmp_path, 4), nothing
            )
    assert "Traceback" not in capfd.readouterr().err


def test_a_document_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"work=.*a directory that can be written"):
        write_whole(tmp_path / "missing" / "part", b"document")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_whole(tmp_path / "part", b"document")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="a worker process ended with status 1"):
        LocalEngine(2).run(Misbehaving(tmp_path, "die"), parts_in(tmp_path, 4), nothing)


def plan() -> GatePlan:
    made, _ = make_plan(
        "standalone", "fused", "normal:geometry=mini", rows=100, widths=(9,), seed=0,
        policy=Policy(),
    )  # fmt: skip
    return made


def test_a_worker_with_other_sources_is_unfit() -> None:
    with pytest.raises(InputError, match=r"^package sources=.*, but should be 00000000"):
        GateWork(replace(plan(), code="0" * 64)).open()


def test_a_bank_that_changed_since_the_plan_is_refused() -> None:
    run_part = GateWork(replace(plan(), digests=("0" * 64,))).open()
    with pytest.raises(InputError, match=r"^bank digest=.*, but should be 00000000.*, as planned"):
        run_part(0)


def test_memory_of_the_merge_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are capped, the gravest kept however shards are cut; row units are counts."""
    options: dict[str, Any] = {"rows": 3000, "widths": (9,), "seed": 1}
    source = "normal:geometry=mini"
    whole = run_gate("standalone", "radix_bf16", source, **options, shard_rows=3000)
    differing = whole.record["pooled"]["observed"]["differing"]
    assert differing == len(whole.swaps) > 100
    monkeypatch.setattr("neartie.audit.gate.run.MOST_MERGED", 50)
    cut = run_gate("standalone", "radix_bf16", source, **options, shard_rows=300)
    assert cut.record["pooled"]["observed"] == whole.record["pooled"]["observed"]
    assert cut.record["pooled"]["certificates_left_out"] == differing - 50
    gravest = sorted(whole.swaps.to_pylist(), key=severity, reverse=True)[:50]
    kept = cut.swaps.to_pylist()
    assert kept == sorted(gravest, key=lambda record: record["row"])


def test_a_worker_with_another_device_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = DevicePlan({"device": "one GPU", "driver": "1"}, {})
    monkeypatch.setattr(device_plan, "device_facts", lambda: dict(planned.facts))
    device_plan.check_device(planned)
    monkeypatch.setattr(device_plan, "device_facts", lambda: {"device": "one GPU", "driver": "2"})
    with pytest.raises(InputError, match=r"^driver=2, but should be 1, as planned \[device of a"):
        GateWork(replace(plan(), device_plan=planned)).open()


def test_a_shard_of_recorded_outputs_is_not_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared in pieces, it counts the same; no piece is larger than asked for."""
    bank = open_bank("normal:geometry=mini,rows=900")
    block = bank.read(0, 900)
    ids = np.tile(np.arange(bank.geometry.top_k, dtype=np.int32), (900, 1))
    weights = np.full(ids.shape, 0.125, np.float32)
    other = ids.copy()
    other[::90, 0] = 700
    recorded: dict[str, Any] = {"a": (ids, weights), "b": (other, weights)}
    header = replace(bank.header, recorded_widths=dict.fromkeys("ab", 9))
    write_bank(tmp_path / "bank", header, bank.weights, [replace(block, recorded=recorded)])
    sides, spec = ("recorded:name=a", "recorded:name=b"), str(tmp_path / "bank")
    whole = run_gate(*sides, spec, rows=None, widths=(9,))
    assert whole.record["pooled"]["observed"]["differing"] == 10
    read: list[int] = []
    plain = StoredBank.read_outputs

    def noted(self: StoredBank, start: int, stop: int) -> RowBlock:
        read.append(stop - start)
        return plain(self, start, stop)

    monkeypatch.setattr(StoredBank, "read_outputs", noted)
    monkeypatch.setattr(host_shard, "RECORDED_ROWS", 128)
    pieces = run_gate(*sides, spec, rows=None, widths=(9,))
    assert max(read) == 128
    assert pieces.to_json() == whole.to_json()
    assert pieces.swaps.equals(whole.swaps)
