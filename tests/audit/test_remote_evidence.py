"""Evidence in object storage, against a server that speaks S3."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from pyarrow import fs
from s3_server import BUCKET, Watched, s3_server, upload

import neartie
from neartie.audit.cli import exit_status
from neartie.audit.evidence import remote as evidence_remote
from neartie.audit.evidence.load import load_evidence
from neartie.audit.evidence.manifest import MANIFEST_FILE
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.evidence.write import check_target, keeping, write_gate_evidence
from neartie.audit.gate.run import run_gate
from neartie.audit.progress import Interrupted
from neartie.banks import remote_retries
from neartie.banks.errors import BankError, InputError
from neartie.banks.manage import make_bank

BANK = "gaussian:geometry=16x8x12x3,rows=40"


@pytest.fixture(scope="module")
def server() -> Iterator[Watched]:
    with s3_server() as watched:
        yield watched


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_retries, "WAITS_S", [])


@pytest.fixture(scope="module")
def bank(server: Watched, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("bank") / "bank"
    make_bank(BANK, place)
    return upload(place, "small")


WRITTEN = f"s3://{BUCKET}/written/by/audit"


def command(*words: str) -> tuple[int, str, str]:
    """Run the command line; return its exit status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["neartie", *words])
        status = exit_status()
    return status, out.getvalue(), err.getvalue()


def audit_words(bank: str) -> list[str]:
    return ["audit", bank, "--rows", "9", "--ranks", "2", "--no-gate", "--out", WRITTEN]


@pytest.fixture(scope="module")
def stored(server: Watched, bank: str) -> str:
    """Evidence of an audit of the remote bank, written to a URL by the command line."""
    server.requests.clear()
    status, told, _ = command(*audit_words(bank))
    assert status == 3
    assert told.endswith(f"evidence in {WRITTEN}\n")
    puts = [line for line in server.requests if line.startswith("PUT")]
    # The probe, and the mark of an empty directory that its removal leaves.
    puts = [line for line in puts if not line.endswith((".probe.partial", "/"))]
    assert len(puts) == len(listed("written/by/audit"))
    assert puts[-1].endswith(MANIFEST_FILE)
    return WRITTEN


@pytest.fixture(scope="module")
def local(stored: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same evidence, copied into a directory."""
    place = tmp_path_factory.mktemp("evidence")
    system, root = fs.FileSystem.from_uri(stored)
    fs.copy_files(root, str(place), system, fs.LocalFileSystem())
    return place


def listed(name: str) -> set[str]:
    system, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}")
    selector = fs.FileSelector(f"{BUCKET}/{name}", allow_not_found=True, recursive=True)
    return {info.base_name for info in system.get_file_info(selector)}


def remove(name: str) -> None:
    system, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}")
    system.delete_file(f"{BUCKET}/{name}")


def test_what_an_audit_wrote_is_verified(stored: str, bank: str) -> None:
    status, told, _ = command("verify", stored, "--json")
    found = json.loads(told)
    assert (status, found["state"], found["problems"]) == (0, "PASS", [])
    assert "digests of 1 of 1 banks" in found["checked"]
    assert load_evidence(stored).record["banks"][0]["spec"] == bank


def test_evidence_is_not_overwritten(stored: str, bank: str) -> None:
    status, told, err = command(*audit_words(bank))
    assert (status, told) == (2, "")
    assert err == f"neartie: out={stored}, but should be a new or empty directory [--out]\n"


def test_every_reader_reads_a_url(local: Path, stored: str) -> None:
    def same(*words: str) -> None:
        here = command(*[word.replace("EVIDENCE", str(local)) for word in words])
        there = command(*[word.replace("EVIDENCE", stored) for word in words])
        assert there == (here[0], here[1].replace(str(local), stored), here[2])
        assert here[0] != 2

    same("report", "EVIDENCE")
    same("report", "EVIDENCE", "--trailer")
    same("diff", "EVIDENCE", "EVIDENCE")
    same("history", "EVIDENCE")
    same("claims", "check", "route-9-20", "EVIDENCE", "--json")


def test_a_gate_writes_to_a_url(server: Watched) -> None:
    result = run_gate("topk_sigmoid", "topk_sigmoid", "k3-mini/tie-witness", rows=20, widths=[9])
    out = f"s3://{BUCKET}/gate"
    assert write_gate_evidence(result, out) == out
    assert verify_evidence(out).state == "PASS"


def test_a_copy_goes_with_its_evidence(stored: str) -> None:
    evidence = load_evidence(stored)
    copy = evidence.directory
    assert copy.is_dir()
    assert evidence.name == stored
    del evidence
    assert not copy.exists()


def test_a_changed_file_is_found(local: Path, server: Watched) -> None:
    url = upload(local, "changed")
    system, root = fs.FileSystem.from_uri(url)
    with system.open_output_stream(f"{root}/report.md") as sink:
        sink.write((local / "report.md").read_bytes().replace(b"9", b"8"))
    problems = verify_evidence(url).problems
    assert [(p.code, p.where) for p in problems] == [("changed_file", "report.md")]


def test_a_changed_record_is_refused_by_every_reader(local: Path, server: Watched) -> None:
    url = upload(local, "edited")
    system, root = fs.FileSystem.from_uri(url)
    with system.open_output_stream(f"{root}/audit.json") as sink:
        sink.write((local / "audit.json").read_bytes().replace(b"UNKNOWN", b"BITWISE"))
    expected = "neartie: audit.json=changed since it was written, but should be as manifest.json "
    expected += f"records it: neartie verify {url} names every problem [{url}]\n"
    for words in (["report", url, "--trailer"], ["diff", url, url], ["history", url]):
        assert command(*words) == (2, "", expected)


def test_without_a_manifest_nobody_reads_it(local: Path, server: Watched) -> None:
    url = upload(local, "unfinished")
    remove(f"unfinished/{MANIFEST_FILE}")
    expected = f"neartie: evidence={url}, but should be a directory with manifest.json"
    for words in (["verify", url], ["report", url], ["diff", url, url], ["history", url]):
        status, told, err = command(*words)
        assert (status, told, err.count("\n")) == (2, "", 1)
        assert err.startswith(expected)


def test_a_put_that_fails_leaves_nothing(
    local: Path, server: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = evidence_remote._put

    def failing(system: fs.FileSystem, path: str, content: bytes, where: str) -> None:
        put(system, path, content, where)
        if path.endswith("/c"):
            raise BankError("file", "the network is gone", "readable", where)

    def fill(place: Path) -> None:
        for name in ("a", "b", "c", "d", MANIFEST_FILE):
            (place / name).write_text(name)

    monkeypatch.setattr(evidence_remote, "_put", failing)
    with pytest.raises(InputError, match=r"out=s3://banks/broken, .*\(the network is gone\)"):
        evidence_remote.write_to_url(f"s3://{BUCKET}/broken", fill)
    assert listed("broken") == set()


def test_a_url_that_cannot_be_written_is_refused_before_the_audit(bank: str) -> None:
    status, told, err = command("audit", bank, "--out", "s3://no-such-bucket/out")
    assert (status, told, err.count("\n")) == (2, "", 1)
    assert err.startswith("neartie: out=s3://no-such-bucket/out, but should be a directory that")
    assert "test-secret" not in err
    status, told, err = command("audit", bank, "--out", "s3://key:hidden@banks/out")
    assert (status, told, err.count("\n")) == (2, "", 1)
    assert "hidden" not in err


def test_a_url_as_a_path_is_no_directory() -> None:
    with pytest.raises(InputError, match=r"out=s3:/banks/out, but should be a path, or a URL as"):
        check_target(Path("s3://banks/out"))


def test_an_interrupt_after_the_manifest_tells_that_it_is_whole(stored: str) -> None:
    with pytest.raises(Interrupted, match="is whole"), keeping(stored):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), keeping(f"s3://{BUCKET}/not-there"):
        raise KeyboardInterrupt


def test_an_assertion_keeps_its_evidence_here() -> None:
    with pytest.raises(InputError, match=r"out=s3://banks/kept, but should be a directory, not"):
        neartie.assert_equivalent("general", "route", "k3-mini/tie-witness", out="s3://banks/kept")


def test_evidence_at_a_url_is_not_signed_there(stored: str, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = tmp_path / "key.pem"
    made = Ed25519PrivateKey.generate()
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    status, told, err = command("sign", stored, "--key", str(key), "--signer", "me")
    assert (status, told) == (2, "")
    assert err.startswith(f"neartie: evidence={stored}, but should be a directory of this machine")
