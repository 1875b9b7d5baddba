"""What fails behind a URL: tried again where it may work the next time, told in one line."""

from __future__ import annotations

import errno
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pyarrow as pa

from .errors import BankError, first_sentence
from .remote_urls import public_url

_Value = TypeVar("_Value")

WAITS_S: list[float] = [0.5, 2.0]
"""Seconds before each further try of what may work the next time; S3's client has tried for some
six seconds by then."""

TRIED_S: float = 20.0
"""Seconds after which no further try is begun: a client that took so long has tried by itself.
Without credentials S3's looks for some at each of its own tries, for ten seconds where nobody
answers."""

# What pyarrow says of S3; it gives no number.
_TRANSIENT: Final = re.compile(
    r"HTTP (response code|status) (408|429|5\d\d)|\b50[0234]\b|NETWORK_CONNECTION|SLOW_DOWN|THROTTL"
    r"|SERVICE_UNAVAILABLE|INTERNAL_(FAILURE|ERROR)|REQUEST_TIMEOUT|curlCode|UNAVAILABLE"
    r"|[Tt]imed? ?out|[Cc]onnection (was )?(reset|refused|aborted)|Retry policy exhausted",
)
_TRANSIENT_ERRNO: Final = frozenset(
    (errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT)
)
_TRANSIENT_STATUS: Final = frozenset((408, 429, *range(500, 505)))
# A name that no server knows: S3's client has asked for it for its six seconds.
_PERMANENT: Final = re.compile(r"[Cc]ould not resolve host")

_FOREIGN: Final = {
    "aiohttp": "ClientError",
    "gcsfs.retry": "HttpError",
    "google.auth.exceptions": "GoogleAuthError",
}
"""Errors of libraries behind fsspec that are none of Python's, by the module that has them."""
_BROKEN_OFF: Final = ("ServerDisconnectedError", "ClientPayloadError")
"""Those of aiohttp's that say that an answer did not come to its end."""


def clean(error: BaseException, url: str) -> str:
    """Return the first sentence of an error, without what a URL in it may tell."""
    status = _status(error)
    told = str(error) if status is None else str(getattr(error, "message", ""))
    # gcsfs ends its messages with the status.
    text = first_sentence(told.removesuffix(f", {status}").replace(url, ""))
    if status is not None:
        text = f"HTTP status {status} {text}".rstrip()
    elif not text:
        text = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    return re.sub(r"\w[\w+.-]*://[^\s'\"]+", lambda m: public_url(m[0]), text)


def _of_loaded(module: str, name: str) -> tuple[type[BaseException], ...]:
    loaded = sys.modules.get(module)
    return () if loaded is None else (getattr(loaded, name),)


def _failures() -> tuple[type[BaseException], ...]:
    """What file systems raise."""
    foreign = [kind for place in _FOREIGN.items() for kind in _of_loaded(*place)]
    return (pa.ArrowException, OSError, ValueError, *foreign)


def _status(error: BaseException) -> int | None:
    """The status of HTTP that an error of aiohttp or gcsfs names."""
    # aiohttp's errors have both, and warn where the second is asked for.
    told: Any = getattr(error, "status", None)
    if told is None:
        told = getattr(error, "code", None)
    return int(told) if str(told).isdigit() else None


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    status = _status(error)
    if status is not None:
        return status in _TRANSIENT_STATUS
    broken_off = tuple(kind for name in _BROKEN_OFF for kind in _of_loaded("aiohttp", name))
    if isinstance(error, (ConnectionError, TimeoutError, *broken_off)):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO:
        return True
    return not _PERMANENT.search(str(error)) and _TRANSIENT.search(str(error)) is not None


def retried(action: Callable[[], _Value], where: str) -> _Value:
    """Return what an action returns, tried again after ``WAITS_S`` where the network failed.

    After ``TRIED_S`` it is not tried again.

    Raises:
        BankError: there is no such file, or it still fails.
    """
    began = time.monotonic()
    for wait in (*WAITS_S, None):
        try:
            return action()
        except FileNotFoundError:
            raise BankError("file", "nothing", "present", where) from None
        except BankError:
            raise
        except _failures() as error:
            late = time.monotonic() - began > TRIED_S
            if wait is None or late or not _is_transient(error):
                raise BankError("file", clean(error, where), "readable", where) from None
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")
