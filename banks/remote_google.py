"""Objects of Google's storage, by its JSON API."""

from __future__ import annotations

import inspect
import os
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import google.auth.exceptions
import requests
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError

from .errors import BankError, first_sentence
from .remote_fsspec import FsspecHandler
from .remote_http import timeouts
from .remote_urls import public_url

EMULATOR: Final = "STORAGE_EMULATOR_HOST"
"""The variable with which Google's clients are pointed at another server, as ``host:port`` or a
URL."""

_request: Final = inspect.unwrap(GCSFileSystem._request)


class GoogleStorage(GCSFileSystem):  # type: ignore[misc]
    """gcsfs, whose every request is made once: ``retried`` decides what is tried again.

    It would try six times over half a minute, for a server that is not there too.
    """

    async def _request(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await _request(self, *args, **kwargs)
        except requests.exceptions.ProxyError:
            # What it makes of 502.
            raise HttpError({"code": 502, "message": "Bad Gateway"}) from None


def google_storage(url: str) -> tuple[FsspecHandler, str]:
    """Return a handler for ``gs://bucket/path`` and the path in it.

    Options of the URL: ``endpoint_override`` (another server, as ``http://host:port``;
    ``EMULATOR`` does the same) and ``anonymous`` (true: ask without credentials). No credentials
    are sent over http.

    Raises:
        BankError: there are no credentials, or an option has a value that it cannot have.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = _endpoint(options)
    anonymous = options.get("anonymous", "false")
    if anonymous not in ("true", "false"):
        raise BankError("anonymous", anonymous, "true or false", public_url(url))
    plain = endpoint is not None and endpoint.startswith("http://")
    token = "anon" if plain or anonymous == "true" else "google_default"
    try:
        system = GoogleStorage(
            token=token,
            endpoint_url=endpoint,
            requests_timeout=timeouts(),
            session_kwargs={"trust_env": True},
            use_listings_cache=False,
            skip_instance_cache=True,
        )
    except google.auth.exceptions.GoogleAuthError as error:
        expected = "those that Google's clients find, or anonymous=true in the URL"
        reason = first_sentence(str(error))
        raise BankError("Google's credentials", reason, expected, public_url(url)) from None
    return FsspecHandler(system), unquote(f"{parts.netloc}{parts.path}")


def _endpoint(options: dict[str, str]) -> str | None:
    """The server's URL, None for Google's own."""
    if "endpoint_override" in options:
        host = options["endpoint_override"]
        return host if "://" in host else f"https://{host}"
    emulator = os.environ.get(EMULATOR)
    if not emulator:
        return None
    return emulator if "://" in emulator else f"http://{emulator}"
