"""Evidence is written whole or not at all, and a place that cannot hold it is told before a run."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import neartie
from neartie.audit.environment import git_state
from neartie.audit.evidence.load import load_evidence
from neartie.audit.evidence.manifest import file_digest
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.evidence.write import check_target, write_evidence
from neartie.audit.result import AuditResult
from neartie.banks.errors import InputError

FILES = [
    "audit.json",
    "histograms.parquet",
    "junit.xml",
    "manifest.json",
    "report.html",
    "report.md",
    "results.sarif",
    "swaps.parquet",
    "values.parquet",
]


@pytest.fixture(scope="module")
def result() -> AuditResult:
    bank = "near_tie:geometry=mini,rows=6,gap=0,seed=1"
    return neartie.run_audit(bank, rows=[9], ranks=1, candidate="route:select=hf")


def test_a_new_or_empty_directory_is_taken(tmp_path: Path, result: AuditResult) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "deep/er"):
        check_target(tmp_path / name)
        made = write_evidence(result, tmp_path / name)
        assert sorted(path.name for path in made.iterdir()) == FILES
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_the_manifest_names_files_banks_and_what_it_was_made_with(
    tmp_path: Path, result: AuditResult
) -> None:
    made = write_evidence(result, tmp_path / "out")
    manifest = load_evidence(made).manifest
    others = [name for name in FILES if name != "manifest.json"]
    assert manifest["files"] == {name: file_digest(made / name) for name in others}
    (bank,) = manifest["banks"]
    assert bank["digest"] == neartie.open_bank(bank["spec"]).digest
    assert manifest["neartie"] == neartie.__version__
    assert manifest["command"] == result.record["command"]
    assert manifest["flags"]["numpy_flushes_subnormals"] is False
    assert set(manifest["versions"]) >= {"numpy", "pyarrow", "torch"}
    assert manifest["date"].endswith("+00:00")
    # A policy names the days of its measurements; the day of the run is in the manifest alone.
    record = {name: value for name, value in result.record.items() if name != "policy"}
    assert manifest["date"][:10] not in json.dumps(record)
    assert manifest["date"] not in result.to_json()


def test_outside_a_repository_there_is_no_commit(
    tmp_path: Path, result: AuditResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_evidence(write_evidence(result, "out")).manifest["working_directory"] is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    state = load_evidence(write_evidence(result, "again")).manifest["working_directory"]
    assert (len(state["commit"]), state["dirty"]) == (40, True)


def test_the_state_of_a_repository_is_read_without_its_lock(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "file").write_text("text")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    index = tmp_path / ".git" / "index"
    # As a checkout elsewhere leaves it: git status takes the lock and writes the new times down.
    os.utime(tmp_path / "file", (1, 1))
    before = index.read_bytes()
    state = git_state(tmp_path)
    assert state is not None
    assert not state["dirty"]
    assert index.read_bytes() == before
    subprocess.run([*git, "status", "--porcelain"], check=True)
    assert index.read_bytes() != before


def test_a_full_disk_is_one_message_and_leaves_nothing(
    tmp_path: Path, result: AuditResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(InputError) as error:
        write_evidence(result, tmp_path / "out")
    expected = "but should be a directory that can be written (No space left on device) [--out]"
    assert str(error.value) == f"out={tmp_path / 'out'}, {expected}"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_no_directory_is_told_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**places: Any) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(InputError, match=r"can be written \(Permission denied\)"):
        check_target(tmp_path / "out")


@pytest.mark.parametrize(
    "kind", ["file", "link", "dangling", "dot", "above", "under a file", "unfinished"]
)
def test_what_is_no_directory_of_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    target = {
        "dot": Path(),
        "above": Path(".."),
        "under a file": tmp_path / "file" / "x",
        "unfinished": tmp_path / "x.partial",
    }
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"^out=.*\[--out\]$"):
        check_target(target.get(kind, tmp_path / kind))
    assert sorted(tmp_path.rglob("*")) == before


KILLS = 40


def test_a_writer_killed_at_any_moment_leaves_whole_evidence_or_none(
    tmp_path: Path, result: AuditResult
) -> None:
    """Every round kills one forked writer a little later, from before the write to after it."""
    model = write_evidence(result, tmp_path / "model")
    script = f"""
import os, pathlib, sys, time
import neartie
from neartie.audit.evidence import write

bank = "near_tie:geometry=mini,rows=6,gap=0,seed=1"
result = neartie.run_audit(bank, rows=[9], ranks=1, candidate="route:select=hf")
place = pathlib.Path({str(tmp_path)!r})
# Charts are drawn by threads, and a process that has them cannot be forked: the texts are given.
texts = [(name, pathlib.Path({str(model)!r}, name).read_text()) for name, _ in write.RENDERED]
write.RENDERED = tuple((name, lambda result, text=text: text) for name, text in texts)
result.write(place / "first")


def forked(name):
    writer = os.fork()
    if not writer:
        result.write(place / name)
        os._exit(0)
    return writer


began = time.perf_counter()
os.waitpid(forked("measured"), 0)
print(time.perf_counter() - began, flush=True)
while line := sys.stdin.readline():
    writer = forked(line.strip())
    print(writer, flush=True)
    sys.stdin.readline()
    os.waitpid(writer, 0)
    print("gone", flush=True)
"""
    whole = none = 0
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seconds = float(process.stdout.readline())
        for number in range(KILLS):
            process.stdin.write(f"round{number}\n")
            process.stdin.flush()
            writer = int(process.stdout.readline())
            time.sleep(1.25 * seconds * number / KILLS)
            os.kill(writer, signal.SIGKILL)
            process.stdin.write("killed\n")
            process.stdin.flush()
            assert process.stdout.readline() == "gone\n"
            out = tmp_path / f"round{number}"
            if out.exists():
                found = verify_evidence(out)
                assert (found.state, list(found.problems)) == ("PASS", [])
                whole += 1
            else:
                none += 1
        process.stdin.close()
    left = [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    print(f"{KILLS} kills: {whole} whole, {none} none, {len(left)} unfinished directories left")
    assert whole
    assert none
    assert left
    for path in left:
        with pytest.raises(InputError, match="a directory that was finished"):
            verify_evidence(path)
        with pytest.raises(InputError, match="a directory that was finished"):
            load_evidence(path)


def test_an_interrupt_after_the_write_tells_that_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from neartie.audit import cli
    from neartie.audit.report import terminal

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "print_report", interrupt)
    out = str(tmp_path / "out")
    bank = "near_tie:geometry=mini,rows=6,gap=0,seed=1"
    monkeypatch.setattr(sys, "argv", ["neartie", "audit", bank, "--rows", "9", "--out", out])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"neartie: interrupted; evidence in {out} is whole\n"
    assert verify_evidence(out).state == "PASS"
