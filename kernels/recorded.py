"""The outputs that a bank carries, as one more path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..banks.errors import EnvelopeError
from .contract import Declared, Launch, Recorded, Routed, check_width
from .options import Option, canonical, resolve

RECORDED_OPTIONS: Final = {"name": Option("gpu", None, "which of the bank's recorded outputs")}


class NotRecorded(EnvelopeError):
    """The bank holds no outputs of that name for this width."""


class RecordedPath:
    """Ids and weights that were recorded with the bank, the same on every rank."""

    batches_launches = True
    outputs = ("ids", "weights")

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("recorded", options, RECORDED_OPTIONS)
        self.name = canonical("recorded", values, RECORDED_OPTIONS)
        self._source = values["name"]
        words = "as recorded"
        self.declared = Declared(
            project=words,
            exchange=words,
            score=words,
            nonfinite=words,
            weight_sum=words,
            normalise=words,
            slot_order=words,
            row_independent=False,
            device="recorded",
            notes="one recording per row, copied to every rank; only at the recorded width",
        )

    def unavailable(self) -> str | None:
        """None: whether a bank holds the outputs is told by ``check``."""
        return None

    def _found(self, launch: Launch) -> Recorded:
        if self._source not in launch.recorded:
            have = ", ".join(sorted(launch.recorded)) or "a bank with recorded outputs"
            raise NotRecorded("name", self._source, f"one of {have}", self.name)
        found = launch.recorded[self._source]
        if found.width is not None and found.width != launch.width:
            raise NotRecorded("width", launch.width, f"the recorded {found.width}", self.name)
        return found

    def check(self, launch: Launch) -> None:
        """Refuse a launch whose outputs were not recorded.

        Raises:
            NotRecorded: no outputs of this name, at this width, or without weights.
            EnvelopeError: the width.
        """
        check_width(launch.width, self.name)
        if self._found(launch).weights is None:
            raise NotRecorded("weights", "nothing", "recorded with the ids", self.name)

    def run(self, launch: Launch, out: Routed) -> None:
        """Copy the recorded ids and weights to every rank.

        Raises:
            NotRecorded: as for ``check``.
        """
        self.check(launch)
        found = self._found(launch)
        assert found.weights is not None
        out.ids[:] = found.ids
        out.weights[:] = found.weights


def recorded(options: Mapping[str, str]) -> RecordedPath:
    """Outputs recorded with the bank (ids and weights), at the width they were recorded at."""
    return RecordedPath(options)
