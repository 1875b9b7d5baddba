"""File systems of fsspec as pyarrow's: exact ranges, and no error taken for an empty place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from fsspec.core import url_to_fs
from pyarrow import fs


class FsspecHandler(fs.FSSpecHandler):  # type: ignore[misc]
    """pyarrow's handler, where that one reads ahead or takes any failure for a missing file."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading ranges: what is asked for is what is read."""
        return pa.PythonFile(self.fs.open(path, "rb", cache_type="none"), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its start."""
        return pa.PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Open a file for writing."""
        try:
            return super().open_output_stream(path, metadata)
        except NotImplementedError:
            raise OSError("files of this scheme are only read") from None

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """List the files below a directory, all of them."""
        try:
            return list(self._below(selector.base_dir))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def _is_other(self, name: str) -> bool:
        """Whether an entry of a listing is no file of the directory."""
        return False

    def _below(self, directory: str) -> Iterator[fs.FileInfo]:
        for entry in self.fs.ls(directory, detail=True):
            name = entry["name"].rstrip("/")
            if name.strip("/") == directory.strip("/"):
                continue
            if self._is_other(name):
                continue
            if entry["type"] == "directory":
                yield from self._below(name)
            else:
                yield self._create_file_info(name, entry)


def any_system(url: str) -> tuple[FsspecHandler, str]:
    """Return a handler for the file system of any URL that fsspec knows, and the path in it.

    Raises:
        ValueError, ImportError: it knows none, or lacks what it needs.
    """
    system, path = url_to_fs(url)
    return FsspecHandler(system), path
