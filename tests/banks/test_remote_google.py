"""Banks at gs://, against a server that speaks Google's JSON API."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import numpy as np
import pytest
from gcs_server import BUCKET, Watched, gcs_server, upload
from google.auth.compute_engine import _metadata
from random_banks import Kind, assert_same_rows, write_random
from wide_bank import flip, open_stored, total_bytes, write_wide

from neartie.audit.cli import exit_status
from neartie.banks import remote_retries
from neartie.banks.errors import BankError
from neartie.banks.manage import verify_bank
from neartie.banks.open import open_bank
from neartie.banks.remote import RemoteFiles
from neartie.banks.store import open_directory
from neartie.banks.write import BATCH_ROWS


@pytest.fixture(scope="module")
def started() -> Iterator[Watched]:
    with gcs_server() as watched:
        yield watched


@pytest.fixture
def server(started: Watched) -> Watched:
    started.faults = []
    return started


@pytest.fixture(scope="module")
def wide(started: Watched, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    place = tmp_path_factory.mktemp("wide") / "bank"
    write_wide(place)
    return place, upload(started, place, "wide")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_retries, "WAITS_S", [0.0, 0.0])


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str) -> str:
    """What the command line says of a bank that it cannot open: one line."""
    monkeypatch.setattr(sys, "argv", ["neartie", "bank", "info", url])
    assert exit_status() == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_every_row_is_that_of_the_directory(server: Watched, tmp_path: Path) -> None:
    digest = write_random(Kind("shards", 7, 1), tmp_path / "a b+c")
    url = upload(server, tmp_path / "a b+c", "a b+c")
    bank = open_bank(url.replace(" ", "%20"))
    assert bank.digest == digest
    assert_same_rows(bank, open_bank(tmp_path / "a b+c"))
    assert verify_bank(url.replace(" ", "%20")).digest == digest


def test_one_of_ten_columns_moves_a_tenth(server: Watched, wide: tuple[Path, str]) -> None:
    place, url = wide
    before = server.sent
    logits = open_stored(url).numpy("logits")
    moved = server.sent - before
    assert np.array_equal(logits, open_directory(place).numpy("logits"))
    share = moved / total_bytes(place)
    print(f"1 of 10 columns: {moved:,} of {total_bytes(place):,} bytes, {share:.2%}")
    assert 0.1 <= share <= 0.15


def test_a_flipped_bit_is_found_where_it_is_read(
    server: Watched, wide: tuple[Path, str], tmp_path: Path
) -> None:
    second = open_directory(wide[0]).numpy("extra3")[BATCH_ROWS + 5].tobytes()
    write_wide(tmp_path / "bank")
    flip(tmp_path / "bank", "rows.arrow", second)
    url = upload(server, tmp_path / "bank", "flipped")
    bank = open_stored(url)
    bank.numpy("logits")
    expected = rf"sha256 of column extra3, batch 1=.* as in bank.json \[{url}/rows.arrow\]"
    with pytest.raises(BankError, match=expected):
        bank.numpy("extra3")


def test_what_is_not_there_is_one_line(
    server: Watched,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = "neartie: file=nothing, but should be present [gs://banks/none/bank.json]\n"
    assert refused(monkeypatch, capsys, f"gs://{BUCKET}/none") == missing
    missing = "neartie: file=nothing, but should be present [gs://none/bank/bank.json]\n"
    assert refused(monkeypatch, capsys, "gs://none/bank") == missing


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_fault_that_passes_goes_unnoticed(
    server: Watched, wide: tuple[Path, str], status: int
) -> None:
    files = RemoteFiles(wide[1])
    server.faults = [status] * 2
    assert json.loads(files.read("bank.json"))["rows"] == BATCH_ROWS + 900
    assert server.faults == []
    # One more than that is told, after as many requests.
    server.faults = [status] * 4
    with pytest.raises(BankError, match=r"but should be readable \[gs://banks/wide/bank.json\]"):
        files.read("bank.json")
    assert len(server.faults) == 1
    server.faults = []


def test_what_will_not_work_is_asked_once(
    server: Watched,
    wide: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.faults = [401] * 40
    told = refused(monkeypatch, capsys, wide[1])
    assert (
        told
        == "neartie: file=HTTP status 401, but should be readable [gs://banks/wide/bank.json]\n"
    )
    # As a file, in a list, and as a directory; what is asked side by side may be broken off.
    assert len(server.faults) >= 37
    server.faults = [403] * 40
    told = refused(monkeypatch, capsys, wide[1])
    assert told.startswith("neartie: file=Forbidden")
    assert told.endswith(", but should be readable [gs://banks/wide/bank.json]\n")
    assert len(server.faults) >= 37


def test_the_server_may_stand_in_the_url(
    server: Watched, wide: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    url = f"{wide[1]}?endpoint_override=http://{server.address}"
    bank = open_bank(url)
    assert (bank.digest, bank.spec) == (open_bank(wide[0]).digest, url)
    with pytest.raises(BankError, match=r"anonymous=yes, but should be true or false \[gs://b/x\]"):
        RemoteFiles("gs://b/x?anonymous=yes")
    with pytest.raises(BankError, match="option of the URL=scheme, but should be one of anonymous"):
        RemoteFiles("gcs://b/x?scheme=http")


class _Silent(BaseRequestHandler):
    """Takes a connection and says nothing until the test is over."""

    over = threading.Event()

    def handle(self) -> None:
        self.over.wait(30)


@pytest.fixture
def silent() -> Iterator[str]:
    _Silent.over.clear()
    with ThreadingTCPServer(("127.0.0.1", 0), _Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield "{}:{}".format(*server.server_address)
        _Silent.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))


@pytest.mark.usefixtures("_no_credentials")
def test_without_credentials_it_is_told_at_once(
    silent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Where a machine of Google's would say who it is; this one accepts and never answers.
    monkeypatch.setenv("GCE_METADATA_IP", silent)
    monkeypatch.setenv("GCE_METADATA_HOST", silent)
    # Three seconds, three times, and pauses: 12.2 s were measured. Here 0.3 s, once.
    defaults: Any = _metadata.ping.__defaults__
    seconds, tries = defaults
    assert seconds * tries <= 10
    monkeypatch.setattr(_metadata.ping, "__defaults__", (seconds / 10, 1))
    began = time.monotonic()
    told = refused(monkeypatch, capsys, "gs://bucket/bank")
    took = time.monotonic() - began
    print(f"no credentials, and a metadata server that says nothing: {took:.1f} s")
    assert told == (
        "neartie: Google's credentials=Your default credentials were not found, but should be those"
        " that Google's clients find, or anonymous=true in the URL [gs://bucket/bank]\n"
    )
    assert took < 5


@pytest.mark.usefixtures("_no_credentials")
def test_credentials_that_cannot_be_used_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def with_file(**fields: Any) -> str:
        path = tmp_path / "credentials.json"
        path.write_text(json.dumps(fields))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        began = time.monotonic()
        told = refused(monkeypatch, capsys, "gs://bucket/bank")
        assert time.monotonic() - began < 10
        assert "hidden" not in told
        return told

    told = with_file(type="nonsense", private_key="hidden")
    assert told.startswith("neartie: Google's credentials=The file ")
    told = with_file(
        type="authorized_user", client_id="c", client_secret="hidden", refresh_token="hidden"
    )
    assert told.startswith("neartie: file=")
    assert told.endswith(", but should be readable [gs://bucket/bank/bank.json]\n")


@pytest.mark.usefixtures("_no_credentials")
def test_a_server_that_is_not_there_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    url = "gs://bucket/bank?endpoint_override=http://127.0.0.1:9"
    told = refused(monkeypatch, capsys, url)
    assert time.monotonic() - began < 5
    assert told.startswith("neartie: file=Cannot connect to host 127.0.0.1:9")
