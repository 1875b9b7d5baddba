"""Files that people write: what is no file of a sensible size is refused before it is read."""

import os
from pathlib import Path
from typing import Any

import pytest

import neartie
from neartie.audit import small_file
from neartie.banks.errors import InputError


@pytest.mark.parametrize("read", [neartie.explain_rows, neartie.load_policy])
def test_a_device_or_a_pipe_is_not_read(read: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="but should be a regular file"):
            read(path)


def test_a_file_beyond_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cases.json"
    file.write_text("[" + " " * 200 + "]")
    monkeypatch.setattr(small_file, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="but should be at most 0 MiB"):
        neartie.explain_rows(file)
