"""Files of a web server, by ranges of bytes."""

from __future__ import annotations

from typing import Any, Final

import aiohttp
import pyarrow as pa
from fsspec.implementations.http import HTTPFileSystem
from pyarrow import fs

from .remote_fsspec import FsspecHandler

CONNECT_S: Final = 10.0
"""Seconds for a connection to a server."""
SILENCE_S: Final = 60.0
"""Seconds without a byte after which a connection counts as broken."""


def timeouts() -> aiohttp.ClientTimeout:
    """Return how long to wait for a server; an answer that keeps coming may take any time."""
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)


class HttpHandler(FsspecHandler):
    """Files of a web server that sends ranges."""

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading ranges.

        Raises:
            FileNotFoundError: the server has none.
            ValueError: the server tells no size, or that it sends no ranges.
        """
        info = self._info(path)
        size = info["size"]
        if size is None:
            raise ValueError("the server tells no size of it")
        if not info.get("partial", True):
            raise ValueError("the server sends no ranges of it")
        if size == 0:
            return pa.BufferReader(b"")
        file = self.fs.open(path, "rb", cache_type="none", size=size)
        return pa.PythonFile(file, mode="r")

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Return whether files are there, and their sizes."""
        found = []
        for path in paths:
            try:
                found.append(self._create_file_info(path, self._info(path)))
            except FileNotFoundError:
                found.append(fs.FileInfo(path, fs.FileType.NotFound))
        return found

    def _is_other(self, name: str) -> bool:
        # A page of files links to itself, sorted in another way.
        return "?" in name or "#" in name

    def _info(self, path: str) -> dict[str, Any]:
        try:
            info: dict[str, Any] = self.fs.info(path)
        except FileNotFoundError as error:
            # fsspec says this of any failure.
            cause = error.__cause__
            if cause is None or getattr(cause, "status", None) in (404, 410):
                raise
            raise cause from None
        return info


def web_server(url: str) -> tuple[HttpHandler, str]:
    """Return a handler for a URL of http or https, and the URL, which is the path in it.

    Proxies, and credentials in ``~/.netrc``, are taken from the environment.
    """
    # Compressed on the way, ranges would be ranges of something else.
    session = {
        "headers": {"Accept-Encoding": "identity"},
        "timeout": timeouts(),
        "trust_env": True,
    }
    return HttpHandler(HTTPFileSystem(client_kwargs=session, skip_instance_cache=True)), url
