"""URLs of banks and evidence: which may be opened, and what of one is told."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from .errors import BankError

OPTIONS: Final = {
    "s3": ("allow_bucket_creation", "endpoint_override", "region", "scheme"),
    "gs": ("anonymous", "endpoint_override"),
    "gcs": ("anonymous", "endpoint_override"),
}
"""What a URL may say after ``?``, by its scheme: none of it is a secret, and all of it opens the
bank again."""

_BEFORE_AT: Final = frozenset(("abfs", "abfss", "hdfs"))
"""Schemes whose URLs name a container or user before the ``@``: ``abfs://container@account/path``."""


def public_url(url: str) -> str:
    """Return a URL for messages: without a key, token, password, query or fragment."""
    scheme, _, rest = url.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    before, _, after = host.rpartition("@")
    if scheme not in _BEFORE_AT or ":" in before:
        host = after
    return f"{scheme}://{host}{slash}{path}"


def check_url(url: str) -> None:
    """Refuse a URL with a secret in it: it would be kept in evidence.

    Raises:
        BankError: a key or password, a fragment, or an option that is not one of ``OPTIONS``.
    """
    where = public_url(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BankError("URL", where, f"one that can be read ({error})", "URL") from None
    if public_url(url) != url.partition("?")[0] or "@" in parts.query:
        expected = "without credentials (they belong in the environment) and without #"
        raise BankError("URL", where, expected, "URL")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        known = OPTIONS.get(parts.scheme, ())
        if name not in known:
            expected = f"one of {', '.join(known)}" if known else "absent"
            raise BankError("option of the URL", name, expected, where)
