"""Evidence at gs:// and http://, against servers of both."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import gcs_server
import pytest
from web_server import Watched, web_server

from neartie.audit.cli import exit_status
from neartie.audit.evidence.manifest import MANIFEST_FILE
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.evidence.write import write_gate_evidence
from neartie.audit.gate.record import GateRecord
from neartie.audit.gate.run import run_gate
from neartie.banks import remote_retries
from neartie.banks.errors import InputError


@pytest.fixture(scope="module")
def google() -> Iterator[gcs_server.Watched]:
    with gcs_server.gcs_server() as watched:
        yield watched


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_retries, "WAITS_S", [0.0, 0.0])


@pytest.fixture(scope="module")
def result() -> GateRecord:
    return run_gate("topk_sigmoid", "topk_sigmoid", "k3-mini/tie-witness", rows=20, widths=[9])


@pytest.fixture(scope="module")
def web(result: GateRecord, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    root = tmp_path_factory.mktemp("web")
    write_gate_evidence(result, root / "gate")
    with web_server(root) as watched:
        yield watched


def test_evidence_is_written_to_google_and_verified(
    google: gcs_server.Watched, result: GateRecord
) -> None:
    out = "gs://banks/by/gate"
    google.faults, google.fails = [503] * 2, "POST"
    assert write_gate_evidence(result, out) == out
    assert google.faults == []
    posts = [line for line in google.requests if line.startswith("POST") and "probe" not in line]
    assert MANIFEST_FILE in posts[-1]
    found = verify_evidence(out)
    assert (found.state, found.problems) == ("PASS", [])
    with pytest.raises(InputError, match=r"^out=gs://banks/by/gate, .* a new or empty directory"):
        write_gate_evidence(result, out)


def test_a_listing_that_fails_is_no_empty_directory(
    google: gcs_server.Watched, result: GateRecord
) -> None:
    google.faults, google.fails = [403] * 40, "GET"
    with pytest.raises(InputError, match=r"^file=Forbidden"):
        write_gate_evidence(result, "gs://banks/other")
    google.faults = []
    posted = [line for line in google.requests if line.startswith("POST") and "other" in line]
    assert posted == []


def test_a_changed_file_at_google_is_found(
    google: gcs_server.Watched, result: GateRecord, tmp_path: Path
) -> None:
    write_gate_evidence(result, tmp_path / "gate")
    report = tmp_path / "gate" / "report.md"
    report.write_text(report.read_text().replace("9", "8"))
    problems = verify_evidence(gcs_server.upload(google, tmp_path / "gate", "changed")).problems
    assert [(p.code, p.where) for p in problems] == [("changed_file", "report.md")]


def test_a_bucket_that_is_not_there_is_one_line(
    google: gcs_server.Watched,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["neartie", "audit", "k3-mini/tie-witness", "--out", "gs://no-such-bucket/out"]
    monkeypatch.setattr(sys, "argv", words)
    assert exit_status() == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("neartie: out=gs://no-such-bucket/out, but should be a directory that")


def test_evidence_of_a_web_server_is_verified(web: Watched) -> None:
    found = verify_evidence(f"{web.url}/gate")
    assert (found.state, found.problems) == ("PASS", [])
    shutil.copytree(web.root / "gate", web.root / "changed")
    report = web.root / "changed" / "report.md"
    report.write_text(report.read_text().replace("9", "8"))
    problems = verify_evidence(f"{web.url}/changed").problems
    assert [(p.code, p.where) for p in problems] == [("changed_file", "report.md")]


def test_a_web_server_that_lists_nothing_is_refused(
    web: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "lists", False)
    expected = rf"^evidence={web.url}/gate, but should be at a server that lists its directories"
    with pytest.raises(InputError, match=expected):
        verify_evidence(f"{web.url}/gate")


def test_evidence_is_not_written_to_a_web_server(web: Watched, result: GateRecord) -> None:
    expected = rf"^out={web.url}/new, .* \(files of this scheme are only read\) \[--out\]"
    with pytest.raises(InputError, match=expected):
        write_gate_evidence(result, f"{web.url}/new")
