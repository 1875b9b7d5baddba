"""``sign``, ``diff`` and ``history`` as a user meets them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from neartie.audit.evidence.keys import load_public_key
from neartie.audit.evidence.load import Evidence
from neartie.audit.evidence.sign import check_signatures

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
