"""``sign``, ``report``, ``diff`` and ``history`` as a user meets them."""

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from neartie.audit.evidence.keys import load_public_key
from neartie.audit.evidence.load import Evidence
from neartie.audit.evidence.rejudge import rejudge
from neartie.audit.evidence.sign import check_signatures
from neartie.audit.evidence.write import report_text
from neartie.audit.policy import load_policy

MakeEvidence = Callable[..., Evidence]
Neartie = Callable[..., subprocess.CompletedProcess[str]]
KEY = ed25519.Ed25519PrivateKey.generate()


@pytest.fixture
def neartie(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Neartie:
    """Run ``neartie`` with the passphrase of a key, or without one."""
    command_line = CommandLine(monkeypatch, capfd)
    monkeypatch.delenv("NEARTIE_KEY_PASSPHRASE", raising=False)

    def call(*words: object, passphrase: str | None = None) -> subprocess.CompletedProcess[str]:
        given = {} if passphrase is None else {"NEARTIE_KEY_PASSPHRASE": passphrase}
        return command_line(*map(str, words), env=given)

    return call


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("neartie: ")
    assert message in line


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """An encrypted OpenSSH key, its passphrase ``open``, with its .pub."""
    path = tmp_path / "id"
    path.write_bytes(
        KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.BestAvailableEncryption(b"open"),
        )
    )
    public = KEY.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    (tmp_path / "id.pub").write_bytes(public + b" Ada\n")
    return path


def test_sign_writes_one_file_and_says_what_was_signed(
    make_evidence: MakeEvidence, neartie: Neartie, key: Path
) -> None:
    evidence = make_evidence()
    refused(neartie("sign", evidence.directory, "--key", key), "NEARTIE_KEY_PASSPHRASE")
    wrong = neartie("sign", evidence.directory, "--key", key, passphrase="shut")
    refused(wrong, "and its passphrase")
    assert not (evidence.directory / "signatures").exists()
    done = neartie("sign", evidence.directory, "--key", key, "--json", passphrase="open")
    assert done.returncode == 0, done
    signed = json.loads(done.stdout)
    public = load_public_key(key.with_name("id.pub"))
    assert signed == {
        "file": str(evidence.directory / "signatures" / f"{public.keyid[:16]}.dsse.json"),
        "keyid": public.keyid,
        "verdict": "INCONCLUSIVE",
        "numerics_class": "UNKNOWN",
    }
    (state,) = check_signatures(evidence, [public])
    assert state.text == f"signed by Ada (keyid {public.keyid[:16]}) as 'Ada'"
    again = neartie("sign", evidence.directory, "--key", key, passphrase="open")
    refused(again, "has signed")


def says(form: str, text: str) -> tuple[str, bool]:
    """State and class in a document, and whether it is of its form."""
    if form == "sarif":
        log = json.loads(text)
        told = log["runs"][0]["properties"]
        return f"{told['verdict']} {told['numericsClass']}", log["version"] == "2.1.0"
    if form == "junit":
        root = ET.fromstring(text)
        (verdict,) = (c for c in root.iter("testcase") if c.get("name") == "verdict")
        (named,) = (p for p in root.iter("property") if p.get("name") == "numerics_class")
        state = "INCONCLUSIVE" if verdict.find("error") is not None else "PASS"
        return f"{state} NUMERICS-{named.get('value')}", root.tag == "testsuites"
    if form == "html":
        (state,) = re.findall(r'<p class="state (\w+)">', text)
        (name,) = re.findall(r"<h1>(.*)</h1>", text)
        return f"{state} {name}", text.startswith("<!DOCTYPE html>")
    (name,) = re.findall(r"^## (.*)$", text, re.MULTILINE)
    (state,) = re.findall(r"^\*\*(\w+)\*\* for replacing", text, re.MULTILINE)
    return f"{state} {name}", text.startswith("## ")


@pytest.mark.parametrize("form", ["md", "html", "junit", "sarif"])
def test_report_prints_each_document_under_the_recorded_or_another_policy(
    make_evidence: MakeEvidence, neartie: Neartie, tmp_path: Path, form: str
) -> None:
    evidence = make_evidence()
    recorded = neartie("report", evidence.directory, "--format", form)
    state, shaped = says(form, recorded.stdout)
    assert (recorded.returncode, state.split()[0], shaped) == (3, "INCONCLUSIVE", True), state
    assert recorded.stdout == report_text(rejudge(evidence), form)
    if form == "md":
        assert neartie("report", evidence.directory).stdout == recorded.stdout
    # A limit that 24 rows certify.
    (tmp_path / "loose.toml").write_text('name = "loose"\nset_rate = 0.3\n')
    loose = tmp_path / "loose.toml"
    other = neartie("report", evidence.directory, "--format", form, "--policy", loose)
    state, shaped = says(form, other.stdout)
    assert (other.returncode, shaped) == (0, True)
    assert state.startswith("PASS")
    assert "LIGHT" in state
    assert other.stdout == report_text(rejudge(evidence, load_policy(loose)), form)


def test_report_refuses_what_is_no_form_or_two_at_once(
    make_evidence: MakeEvidence, neartie: Neartie
) -> None:
    place = make_evidence().directory
    refused(neartie("report", place, "--format", "html", "--json"), "format=html with --json")
    refused(neartie("report", place, "--format", "md", "--trailer"), "trailer=with --policy")
    refused(neartie("report", place, "--format", "pdf"), "pdf")


def test_diff_tells_worse_by_its_exit_status(make_evidence: MakeEvidence, neartie: Neartie) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["policy"]["set_rate"] = 1e-4

    first, second = make_evidence("a").directory, make_evidence("b", edit).directory
    assert neartie("diff", first, first).returncode == 0
    worse = neartie("diff", first, second)
    assert worse.returncode == 1
    assert worse.stdout.endswith(
        "  worse by policy: set_rate is 0.0001, was 5e-05\nsecond  worse\n"
    )
    done = neartie("diff", second, first, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["worse"] == []
    gate = make_evidence("c", kind="gate").directory
    refused(neartie("diff", first, gate), "kind=audit and gate")
    refused(neartie("diff", first, first / "nothing"), "a directory with audit.json or gate.json")


def test_history_prints_series(make_evidence: MakeEvidence, neartie: Neartie) -> None:
    first = make_evidence("a").directory
    second = make_evidence("b", date="2026-02-01").directory
    done = neartie("history", second, first)
    assert done.returncode == 0, done
    assert done.stdout.index("2026-01-01") < done.stdout.index("2026-02-01")
    assert "no drift at 95%" in done.stdout
    document = json.loads(neartie("history", second, first, "--json").stdout)
    assert [Path(run["directory"]) for run in document["runs"]] == [first, second]
    refused(neartie("history", first, first), "given twice")
