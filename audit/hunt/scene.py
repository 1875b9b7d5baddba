"""Rows that both paths are run on: logits and one bias, at a width and on a number of ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...banks.bank import NO_UNIT, Bank, Header, RowBlock
from ...banks.generate import row_keys
from ...banks.geometry import Geometry, ScoringRule

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Scene:
    """Rows of one run.

    Attributes:
        logits: [row, expert] float32.
        bias: [expert] float32.
        width: rows per launch; the rows are cut into launches in their order.
        ranks: tensor-parallel ranks.
    """

    logits: F32
    bias: F32
    width: int
    ranks: int

    @property
    def rows(self) -> int:
        """Rows given, without those that fill up the last launch."""
        return len(self.logits)

    def with_rows(self, logits: F32, width: int | None = None) -> Scene:
        """Return other rows under the same bias."""
        return replace(self, logits=logits, width=self.width if width is None else width)


class SceneBank(Bank):
    """A scene in the form that launches and the reference take; it bounds no rate."""

    def __init__(
        self, scene: Scene, geometry: Geometry, scoring: ScoringRule, *, sharded: bool
    ) -> None:
        header = Header(
            name="hunt",
            rows=scene.rows,
            geometry=geometry,
            scoring=scoring,
            tie_contract="unspecified",
            independence_unit=NO_UNIT,
            stage="shards" if sharded else "logits",
            digest="",
            ranks=scene.ranks if sharded else None,
        )
        super().__init__(header, {"correction_bias": scene.bias})
        self._scene, self._sharded = scene, sharded

    def _read(self, start: int, stop: int) -> RowBlock:
        rows = np.ascontiguousarray(self._scene.logits[start:stop])
        keys = row_keys(start, stop)
        if not self._sharded:
            return RowBlock(start, stop - start, keys, logits=rows)
        shards = np.stack(np.split(rows, self._scene.ranks, axis=1))
        return RowBlock(start, stop - start, keys, logits_shards=shards)
