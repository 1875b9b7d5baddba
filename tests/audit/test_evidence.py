"""Evidence is written whole or not at all, and a place that cannot hold it is told before a run."""

import errno
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neartie.audit.evidence import write as evidence
from neartie.audit.evidence.write import check_target, write_evidence
from neartie.banks.errors import InputError


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(evidence, "render_markdown", lambda result: "report")
    table = pa.table({"row": [1]})
    return SimpleNamespace(to_json=lambda: "{}", swaps=table, values=table, histograms=table)


def test_a_new_or_empty_directory_is_taken(tmp_path: Path, result: Any) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "deep/er"):
        check_target(tmp_path / name)
        made = write_evidence(result, tmp_path / name)
        assert sorted(path.name for path in made.iterdir()) == [
            "audit.json",
            "histograms.parquet",
            "report.md",
            "swaps.parquet",
            "values.parquet",
        ]
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_a_full_disk_is_one_message_and_leaves_nothing(
    tmp_path: Path, result: Any, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "dot", "above", "under a file"])
def test_what_is_no_directory_of_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    target = {"dot": Path(), "above": Path(".."), "under a file": tmp_path / "file" / "x"}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"^out=.*\[--out\]$"):
        check_target(target.get(kind, tmp_path / kind))
    assert sorted(tmp_path.rglob("*")) == before
