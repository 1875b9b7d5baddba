"""What every rank of a launch is told before it joins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


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


def parse_settings(text: str) -> RankSettings:
    """Return the settings that ``RankSettings.text`` wrote."""
    return RankSettings(**json.loads(text))
