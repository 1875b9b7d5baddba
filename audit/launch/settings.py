"""What every rank of a launch is told before it joins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from ...banks.errors import InputError

_MOST_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class RankSettings:
    """How the ranks run.

    Attributes:
        device: ``cpu`` or ``cuda``.
        timeout_s: seconds after which a rank that does not answer ends the launch.
    """

    device: str
    timeout_s: float

    def text(self) -> str:
        """Return the settings as one argument of a command."""
        return json.dumps(asdict(self))


def check_rank_timeout(seconds: float) -> None:
    """Refuse a time that no rank can be given.

    Raises:
        InputError: no number above 0, or more than an hour.
    """
    if not 0 < seconds <= _MOST_SECONDS:
        expected = f"above 0 and at most {_MOST_SECONDS}"
        raise InputError("rank_timeout", seconds, expected, "--rank-timeout")


def parse_settings(text: str) -> RankSettings:
    """Return the settings that ``RankSettings.text`` wrote."""
    return RankSettings(**json.loads(text))
