"""Banks in object storage, against a server that speaks S3."""

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from random_banks import Kind, assert_same_rows, write_random
from s3_server import BUCKET, Watched, s3_server, upload
from wide_bank import COLUMNS, EXPERTS, ROWS, flip, open_stored, total_bytes, write_wide

from neartie.audit.cli import exit_status
from neartie.banks import remote_retries, remote_table, store
from neartie.banks.errors import BankError
from neartie.banks.manage import verify_bank
from neartie.banks.open import open_bank
from neartie.banks.remote import RemoteFiles
from neartie.banks.remote_urls import check_url, public_url
from neartie.banks.store import StoredBank, open_directory
from neartie.banks.write import BATCH_ROWS, BankWriter


@pytest.fixture(scope="module")
def server() -> Iterator[Watched]:
    with s3_server() as watched:
        yield watched


@pytest.fixture(scope="module")
def wide(server: Watched, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    place = tmp_path_factory.mktemp("wide") / "bank"
    write_wide(place)
    return place, upload(place, "wide")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_retries, "WAITS_S", [0.0, 0.0])


@pytest.mark.parametrize("stage", ["hidden", "partials", "shards", "logits", "outputs"])
def test_every_stage_has_the_rows_of_its_directory(
    server: Watched, tmp_path: Path, stage: Any
) -> None:
    digest = write_random(Kind(stage, 7, 1), tmp_path / "bank")
    url = upload(tmp_path / "bank", f"random/{stage}")
    bank = open_bank(url)
    assert (bank.digest, bank.spec) == (digest, url)
    assert_same_rows(bank, open_bank(tmp_path / "bank"))
    assert verify_bank(url).digest == digest


def test_one_of_ten_columns_moves_a_tenth(server: Watched, wide: tuple[Path, str]) -> None:
    place, url = wide
    before = server.sent
    logits = open_stored(url).numpy("logits")
    moved = server.sent - before
    assert np.array_equal(logits, open_directory(place).numpy("logits"))
    share = moved / total_bytes(place)
    print(f"1 of 10 columns: {moved:,} of {total_bytes(place):,} bytes, {share:.2%}")
    assert 0.1 <= share <= 0.15


def test_opening_reads_no_row(server: Watched, wide: tuple[Path, str]) -> None:
    place, url = wide
    keys = ROWS * 4 * 4
    small = (place / "bank.json").stat().st_size
    before = server.sent
    open_bank(url)
    # Keys, header, and two footers and heads of batches, each below 4 KiB.
    assert keys + small <= server.sent - before <= keys + small + 4 * 4096


def test_opening_a_large_bank_reads_no_key(
    server: Watched, wide: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "VERIFIED_AT_OPEN", 100)
    small = (wide[0] / "bank.json").stat().st_size
    before = server.sent
    open_bank(wide[1])
    assert small <= server.sent - before <= small + 2 * 4096
    # What another writer did not check is found by verify.
    with monkeypatch.context() as patch:
        patch.setattr(BankWriter, "_check_readable", lambda self: None)
        write_wide(tmp_path / "bank", last_row=3)
    url = upload(tmp_path / "bank", "twice")
    open_bank(url)
    with pytest.raises(BankError, match=r"keys\[record \d+\]=.* row 3, .* twice"):
        verify_bank(url)


def test_rows_of_one_batch_leave_the_other(server: Watched, wide: tuple[Path, str]) -> None:
    bank = open_stored(wide[1])
    before = server.sent
    bank.read_outputs(BATCH_ROWS + 1, BATCH_ROWS + 5)
    bank.numpy("correction_bias")
    assert server.sent - before < 4096
    bank.read(BATCH_ROWS + 1, BATCH_ROWS + 5)
    assert server.sent - before <= 900 * EXPERTS * 4 * len(COLUMNS) + 4096
    again = server.sent
    bank.read(BATCH_ROWS + 7, BATCH_ROWS + 9)
    assert server.sent == again


def test_what_is_held_is_bounded(
    server: Watched, wide: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = BATCH_ROWS * EXPERTS * 4
    cache = remote_table.ColumnCache(3 * column)
    monkeypatch.setattr(remote_table, "CACHE", cache)
    bank = open_stored(wide[1])
    for start in range(0, ROWS, 2048):
        bank.read(start, min(start + 2048, ROWS))
        assert 0 < cache.bytes <= 3 * column
    bank.read(0, 10)
    bank.forget(0, BATCH_ROWS)
    assert cache.bytes <= 900 * EXPERTS * 4 * len(COLUMNS)


def test_a_flipped_bit_is_found_where_it_is_read(
    server: Watched, wide: tuple[Path, str], tmp_path: Path
) -> None:
    second = open_directory(wide[0]).numpy("extra3")[BATCH_ROWS + 5].tobytes()
    write_wide(tmp_path / "bank")
    flip(tmp_path / "bank", "rows.arrow", second)
    url = upload(tmp_path / "bank", "flipped")
    bank = open_stored(url)
    bank.numpy("logits")
    bank.read(0, BATCH_ROWS)
    expected = rf"sha256 of column extra3, batch 1=.* as in bank.json \[{url}/rows.arrow\]"
    with pytest.raises(BankError, match=expected):
        bank.read(BATCH_ROWS, BATCH_ROWS + 1)
    with pytest.raises(BankError, match=r"sha256=.*rows.arrow"):
        verify_bank(url)


def test_a_digest_that_no_value_has_is_found_by_verify(tmp_path: Path) -> None:
    write_random(Kind("logits", 5, 1), tmp_path / "bank")
    path = tmp_path / "bank" / "bank.json"
    document = json.loads(path.read_text())
    batches = document["files"]["rows.arrow"]["batches"]
    batches["sha256"]["logits"] = ["0" * 64]
    path.write_text(json.dumps(document))
    open_bank(tmp_path / "bank")
    with pytest.raises(BankError, match="sha256 of column logits, batch 0"):
        verify_bank(str(tmp_path / "bank"))
    batches["rows"] = [2, 3]
    path.write_text(json.dumps(document))
    with pytest.raises(BankError, match=r"batches.sha256.layer=1 digests, but should be 2"):
        open_bank(tmp_path / "bank")
    batches["rows"] = [4]
    path.write_text(json.dumps(document))
    with pytest.raises(BankError, match=r"batches.rows=4 in all, but should be 5"):
        open_bank(tmp_path / "bank")
    batches["rows"] = [5]
    del batches["sha256"]["logits"]
    path.write_text(json.dumps(document))
    with pytest.raises(BankError, match=r"batches.sha256.logits=nothing, but should be present"):
        open_bank(tmp_path / "bank")


def test_batches_of_another_size_are_found(
    server: Watched, wide: tuple[Path, str], tmp_path: Path
) -> None:
    write_wide(tmp_path / "bank")
    path = tmp_path / "bank" / "bank.json"
    document = json.loads(path.read_text())
    batches = document["files"]["rows.arrow"]["batches"]
    batches["rows"] = [BATCH_ROWS - 1, 901]
    path.write_text(json.dumps(document))
    with pytest.raises(BankError, match="rows of batch 0=4096, but should be 4095 as in"):
        verify_bank(str(tmp_path / "bank"))
    url = upload(tmp_path / "bank", "sizes")
    with pytest.raises(BankError, match="rows of column layer, batch 0=4096, but should be 4095"):
        open_bank(url)
    batches["rows"] = [ROWS]
    batches["sha256"] = {name: ["0" * 64] for name in batches["sha256"]}
    path.write_text(json.dumps(document))
    for place in (str(tmp_path / "bank"), upload(tmp_path / "bank", "sizes")):
        with pytest.raises(BankError, match=r"batches=2, but should be 1 as in bank.json"):
            verify_bank(place)


def without_batches(directory: Path) -> None:
    """What an older version wrote."""
    path = directory / "bank.json"
    document = json.loads(path.read_text())
    for entry in document["files"].values():
        del entry["batches"]
    path.write_text(json.dumps(document))


def test_a_bank_without_digests_of_batches(server: Watched, tmp_path: Path) -> None:
    write_random(Kind("shards", 6, 2), tmp_path / "bank")
    without_batches(tmp_path / "bank")
    old = open_bank(tmp_path / "bank")
    assert_same_rows(open_bank(upload(tmp_path / "bank", "old")), old)
    # Checked as a whole when it is opened: it is small.
    shards = old.read(0, 6).logits_shards
    assert shards is not None
    flip(tmp_path / "bank", "ranks.arrow", shards[0, 0].tobytes())
    with pytest.raises(BankError, match=r"sha256=.*ranks.arrow"):
        open_bank(upload(tmp_path / "bank", "old"))


def test_a_fault_that_passes_goes_unnoticed(server: Watched, wide: tuple[Path, str]) -> None:
    bank = open_stored(wide[1])
    server.faults = ["503 Slow Down"] * 3
    assert len(bank.numpy("extra1")) == ROWS
    assert server.faults == []


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory behind a connection that breaks."""

    protocol = "flaky"
    faults: ClassVar[list[BaseException]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("flaky:/"))
        return stripped

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return FlakyFile(super()._open(path, *args, **kwargs).getvalue())


class FlakyFile(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if Flaky.faults:
            raise Flaky.faults.pop(0)
        return super().read(size)


@pytest.fixture
def flaky(tmp_path: Path) -> StoredBank:
    Flaky.faults.clear()
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    write_random(Kind("hidden", 5, 3), tmp_path / "bank")
    fsspec.filesystem("memory").put(str(tmp_path / "bank"), "/flaky", recursive=True)
    return open_stored("flaky://flaky")


@pytest.mark.parametrize(
    "fault",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError("timed out"),
        OSError("AWS Error UNKNOWN (HTTP status 500) during GetObject operation"),
    ],
)
def test_a_transient_fault_is_tried_twice_more(flaky: StoredBank, fault: OSError) -> None:
    Flaky.faults[:] = [fault] * 2
    assert len(flaky.numpy("hidden")) == 5
    Flaky.faults[:] = [fault] * 3
    told = str(fault).removeprefix("[Errno 104] ")
    expected = (
        rf"^file=[^=]*{re.escape(told)}, but should be readable \[flaky://flaky/rows.arrow\]$"
    )
    with pytest.raises(BankError, match=expected):
        flaky.numpy("half")
    assert Flaky.faults == []


def test_what_took_long_is_not_tried_again(
    flaky: StoredBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_retries, "TRIED_S", -1.0)
    Flaky.faults[:] = [TimeoutError("timed out")] * 3
    with pytest.raises(BankError, match=r"^file=timed out, .*readable \[flaky://flaky/rows.arrow"):
        flaky.numpy("half")
    assert len(Flaky.faults) == 2
    Flaky.faults.clear()


def test_another_fault_is_told_at_once(flaky: StoredBank) -> None:
    Flaky.faults[:] = [OSError("no such luck at s3://key:hidden@host/x?sig=hidden")] * 3
    with pytest.raises(BankError, match="no such luck at s3://host/x, but") as raised:
        flaky.numpy("hidden")
    assert "hidden" not in str(raised.value)
    assert len(Flaky.faults) == 2
    Flaky.faults.clear()


def test_what_will_not_work_is_asked_once(server: Watched, wide: tuple[Path, str]) -> None:
    bank = open_stored(wide[1])
    server.faults = ["403 Forbidden"] * 40
    with pytest.raises(BankError, match="ACCESS_DENIED"):
        bank.numpy("extra2")
    assert len(server.faults) == 39
    server.faults.clear()


def test_the_command_line_tells_it_in_one_line(
    server: Watched,
    wide: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(url: str) -> str:
        monkeypatch.setattr(sys, "argv", ["neartie", "bank", "info", url])
        assert exit_status() == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "test-secret" not in err
        return err

    server.faults = ["403 Forbidden"]
    told = refused(wide[1])
    assert told.startswith("neartie: file=AWS Error ACCESS_DENIED")
    assert told.endswith(", but should be readable [s3://banks/wide/bank.json]\n")
    missing = "neartie: file=nothing, but should be present [s3://banks/none/bank.json]\n"
    assert refused(f"s3://{BUCKET}/none") == missing


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://key:hidden@banks/a", "URL=s3://banks/a, but should be without credentials"),
        ("s3://hidden@banks/a", "URL=s3://banks/a, but should be without credentials"),
        ("http://hidden@host/a", "URL=http://host/a, but should be without credentials"),
        ("abfs://c:hidden@account/a", "URL=abfs://account/a, but should be without credentials"),
        ("s3://banks/a?endpoint_override=http://u:hidden@h", "URL=s3://banks/a, but should be"),
        ("s3://banks/a#hidden", "URL=s3://banks/a, but should be"),
        ("s3://banks/a?secret_key=hidden", "option of the URL=secret_key, but should be one of"),
        ("http://host/a?X-Amz-Signature=hidden", "option of the URL=X-Amz-Signature, but should"),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_told(url: str, told: str) -> None:
    with pytest.raises(BankError) as raised:
        RemoteFiles(url)
    assert str(raised.value).startswith(told)
    assert "hidden" not in str(raised.value)


def test_a_container_is_no_secret() -> None:
    check_url("abfs://container@account/path")
    assert public_url("abfs://container@account/path?x=1") == "abfs://container@account/path"


def test_any_file_system_of_fsspec(tmp_path: Path) -> None:
    digest = write_random(Kind("hidden", 5, 3), tmp_path / "bank")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "bank"), "/any-fsspec", recursive=True)
    bank = open_bank("memory://any-fsspec")
    assert bank.digest == digest
    assert_same_rows(bank, open_bank(tmp_path / "bank"))
    memory.rm("/any-fsspec/rows.arrow")
    with pytest.raises(BankError, match=r"\[memory://any-fsspec/rows.arrow\]"):
        open_bank("memory://any-fsspec")
