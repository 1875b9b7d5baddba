"""The two paths of an audit and the conditions that they are compared under."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels.contract import Path
from .compare import BASELINE, CANDIDATE
from .policy import Policy


@dataclass(frozen=True)
class Pairing:
    """The two paths and the conditions that they are compared under."""

    baseline: Path
    candidate: Path
    widths: tuple[int, ...]
    ranks: int
    policy: Policy
    device: str = "cpu"
    specs: tuple[str | None, str | None] = (None, None)
    """What makes baseline and candidate again; None where only their names are known."""

    @property
    def paths(self) -> dict[str, Path]:
        """Both paths by their role."""
        return {BASELINE: self.baseline, CANDIDATE: self.candidate}
