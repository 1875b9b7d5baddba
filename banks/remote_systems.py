"""The file system of a URL: pyarrow's own, or fsspec's behind pyarrow's interface."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from .errors import BankError
from .remote_retries import clean
from .remote_urls import check_url, public_url

_GOOGLE: Final = frozenset(("gs", "gcs"))
"""Schemes that pyarrow knows but reads badly: to say whether a file is open, it asks for the whole
object, holding Python's lock, and some 4 MB of it come."""


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL and the path in it.

    pyarrow's own for s3, hdfs, abfs and others; through fsspec (extra ``cloud``) for gs, gcs, http,
    https and any scheme that pyarrow does not know.

    Raises:
        BankError: no such file system, credentials in the URL, or none where they are needed.
    """
    check_url(url)
    where = public_url(url)
    try:
        if urlsplit(url).scheme in _GOOGLE:
            return _of_fsspec(url)
        try:
            return _of_pyarrow(url)
        except pa.ArrowInvalid as error:
            if "nrecognized filesystem type" not in str(error):
                raise
        return _of_fsspec(url)
    except BankError:
        raise
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        reason = clean(error, url)
        raise BankError("URL", where, f"one that can be opened ({reason})", "URL") from None


def _of_pyarrow(url: str) -> tuple[fs.FileSystem, str]:
    system, path = fs.FileSystem.from_uri(url)
    return system, path


def _of_fsspec(url: str) -> tuple[fs.FileSystem, str]:
    scheme = urlsplit(url).scheme
    try:
        if scheme in _GOOGLE:
            from .remote_google import google_storage

            handler, path = google_storage(url)
        elif scheme in ("http", "https"):
            from .remote_http import web_server

            handler, path = web_server(url)
        else:
            from .remote_fsspec import any_system

            handler, path = any_system(url)
    except ImportError as error:
        reason = f"{scheme}:// needs the extra cloud: {error}"
        raise ValueError(reason) from None
    return fs.PyFileSystem(handler), path
