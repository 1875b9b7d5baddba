"""Banks at http://, against a server of plain files."""

import os
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from random_banks import Kind, assert_same_rows, write_random
from web_server import Fault, Watched, web_server
from wide_bank import flip, open_stored, total_bytes, write_wide

from neartie.audit.cli import exit_status
from neartie.banks import remote_http, remote_retries
from neartie.banks.errors import BankError
from neartie.banks.manage import verify_bank
from neartie.banks.open import open_bank
from neartie.banks.store import open_directory
from neartie.banks.write import BATCH_ROWS


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    root = tmp_path_factory.mktemp("web")
    write_wide(root / "wide")
    write_random(Kind("shards", 7, 1), root / "small")
    with web_server(root) as watched:
        yield watched


@pytest.fixture
def server(served: Watched) -> Watched:
    served.ranges, served.sized, served.fails, served.faults = "sent", True, ("GET",), []
    return served


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_retries, "WAITS_S", [0.0, 0.0])


def refusal(url: str) -> str:
    with pytest.raises(BankError) as raised:
        open_bank(url)
    return str(raised.value)


@pytest.mark.parametrize("way", ["", "/moved"])
def test_every_row_is_that_of_the_directory(server: Watched, way: str) -> None:
    url = f"{server.url}{way}/small"
    bank = open_bank(url)
    assert (bank.spec, bank.digest) == (url, open_bank(server.root / "small").digest)
    assert_same_rows(bank, open_bank(server.root / "small"))
    assert verify_bank(url).digest == bank.digest


def test_one_of_ten_columns_moves_a_tenth(server: Watched) -> None:
    before = server.sent
    logits = open_stored(f"{server.url}/wide").numpy("logits")
    moved = server.sent - before
    assert np.array_equal(logits, open_directory(server.root / "wide").numpy("logits"))
    total = total_bytes(server.root / "wide")
    print(f"1 of 10 columns: {moved:,} of {total:,} bytes, {moved / total:.2%}")
    assert 0.1 <= moved / total <= 0.15


def test_a_flipped_bit_is_found_where_it_is_read(server: Watched) -> None:
    place = server.root / "flipped"
    write_wide(place)
    flip(place, "rows.arrow", open_directory(place).numpy("extra3")[BATCH_ROWS + 5].tobytes())
    url = f"{server.url}/flipped"
    bank = open_stored(url)
    bank.numpy("logits")
    expected = rf"sha256 of column extra3, batch 1=.* as in bank.json \[{url}/rows.arrow\]"
    with pytest.raises(BankError, match=expected):
        bank.numpy("extra3")


@pytest.mark.parametrize(
    ("ranges", "sized", "told", "file"),
    [
        ("denied", True, "the server sends no ranges of it", "bank.json"),
        ("ignored", True, "The HTTP server doesn't appear to support range req", "rows.arrow"),
        ("sent", False, "the server tells no size of it", "bank.json"),
    ],
)
def test_a_server_without_ranges_is_refused(
    server: Watched, ranges: str, sized: bool, told: str, file: str
) -> None:
    server.ranges, server.sized = ranges, sized  # type: ignore[assignment]
    url, before = f"{server.url}/wide", server.sent
    found = refusal(url)
    assert found.startswith(f"file={told}")
    assert found.endswith(f", but should be readable [{url}/{file}]")
    # Nobody takes a whole file for a part of it: some of it at most is on the way by then.
    assert server.sent - before < total_bytes(server.root / "wide")


def test_what_is_not_there_is_told_at_once(server: Watched) -> None:
    url = f"{server.url}/none/bank.json"
    assert refusal(f"{server.url}/none") == f"file=nothing, but should be present [{url}]"
    (server.root / "part").mkdir(exist_ok=True)
    for name in ("bank.json", "rows.arrow"):
        (server.root / "part" / name).write_bytes((server.root / "wide" / name).read_bytes())
    url = f"{server.url}/part/weights.arrow"
    assert refusal(f"{server.url}/part") == f"file=nothing, but should be present [{url}]"


def test_an_empty_file_is_no_bank(server: Watched) -> None:
    (server.root / "empty").mkdir(exist_ok=True)
    (server.root / "empty" / "bank.json").write_bytes(b"")
    assert refusal(f"{server.url}/empty").startswith("document=")


@pytest.mark.parametrize("fault", ["drop", "short", 408, 429, 500, 503])
def test_a_fault_that_passes_goes_unnoticed(server: Watched, fault: Fault) -> None:
    bank = open_stored(f"{server.url}/wide")
    server.faults = [fault] * 2
    here = open_directory(server.root / "wide")
    assert np.array_equal(bank.numpy("extra1"), here.numpy("extra1"))
    assert server.faults == []
    server.faults = [fault] * 4
    with pytest.raises(BankError) as raised:
        bank.numpy("extra2")
    told = (raised.value.expected, raised.value.where)
    assert told == ("readable", f"{server.url}/wide/rows.arrow")
    assert len(server.faults) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_what_will_not_work_is_asked_once(
    server: Watched,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bank = open_stored(f"{server.url}/wide")
    server.faults = [status] * 9
    with pytest.raises(BankError, match=f"^file=HTTP status {status} .*rows.arrow"):
        bank.numpy("extra2")
    assert len(server.faults) == 8
    server.fails = ("HEAD", "GET")
    monkeypatch.setattr(sys, "argv", ["neartie", "bank", "info", f"{server.url}/wide"])
    assert exit_status() == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"neartie: file=HTTP status {status} ")


def test_a_server_that_is_silent_is_given_up(
    server: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_http, "SILENCE_S", 0.1)
    bank = open_stored(f"{server.url}/wide")
    server.faults = ["silence"] * 3
    began = time.monotonic()
    with pytest.raises(BankError, match=r"^file=timed out, but should be readable \["):
        bank.numpy("extra2")
    assert server.faults == []
    assert time.monotonic() - began < 5


def test_a_server_that_is_not_there_is_told(server: Watched) -> None:
    assert refusal("http://127.0.0.1:9/wide").startswith("file=Cannot connect to host 127.0.0.1:9")


def test_a_bank_of_this_machine_has_a_url_too(server: Watched) -> None:
    place = server.root / "small"
    bank = open_bank(place.as_uri())
    assert_same_rows(bank, open_bank(place))
    # The same file system behind fsspec.
    linked = f"local://{os.fspath(place)}"
    assert_same_rows(open_bank(linked), open_bank(place))
    assert verify_bank(linked).digest == bank.digest
