"""Whether a worker is fit for the work: the same sources and the same banks make the same bits."""

from __future__ import annotations

from ...banks.bank import Bank
from ...banks.errors import InputError
from ..environment import code_digest


def check_sources(planned: str) -> None:
    """Refuse a worker whose package has other sources: its bits could differ.

    Raises:
        InputError: they are others.
    """
    code = code_digest()
    if code != planned:
        expected = f"{planned[:12]}, as where the run was started"
        raise InputError("package sources", code[:12], expected, "worker")


def check_bank(bank: Bank, planned: str) -> None:
    """Refuse a bank that has the planned one's name and other content.

    Raises:
        InputError: its digest is another.
    """
    if bank.digest != planned:
        raise InputError("bank digest", bank.digest[:12], f"{planned[:12]}, as planned", bank.spec)
