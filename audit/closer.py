"""Whether the candidate is closer to the reference, from the tables alone: pooled and by bank.

The sign test is made of the rows counted under ``row_error``. The bootstrap needs errors and not
only their order: ``row_error_group`` keeps both paths' squared errors of each group of independence
units as whole parts of their sum. Evidence from before it has the sign test alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .compare import BASELINE, CANDIDATE
from .counts import Counts, Histograms
from .error_groups import METRIC
from .metrics.closeness import (
    FP64_OF_FP32,
    WORST_FACTOR,
    Evidence,
    decide,
    nothing_paired,
    ratio_interval,
    sign_test,
)
from .metrics.values import relative_rms

F64 = npt.NDArray[np.float64]

_PAIRS: Final = {CANDIDATE: "candidate_reference", BASELINE: "baseline_reference"}

Controls = Mapping[str, Mapping[str, float | None]]
"""By bank and tensor, the relative RMS of the FP32 reference against the FP64 one."""


def read_groups(histograms: Histograms, bank: str, width: int | None) -> dict[str, dict[str, F64]]:
    """Return parts by tensor and path, one float64 a group; a line of another form is left out."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for path in (CANDIDATE, BASELINE):
        for line in histograms.lines(bank, width, METRIC, path):
            tensor, _, group = str(line["key"]).partition("/")
            if group.isdecimal() and len(group) < 4 and (line["steps"] or 0) >= 0:
                sides = found.setdefault(tensor, {CANDIDATE: {}, BASELINE: {}})
                sides[path][int(group)] = line["steps"] or 0
    return {
        tensor: {
            path: np.array([sides[path].get(group, 0) for group in _numbers(sides)], np.float64)
            for path in sides
        }
        for tensor, sides in found.items()
    }


def _numbers(sides: Mapping[str, Mapping[int, int]]) -> list[int]:
    return sorted({group for groups in sides.values() for group in groups})


class ErrorTables:
    """Both tables of an audit, asked for closeness.

    Args:
        histograms: the counts.
        values: rows of ``VALUES_SCHEMA``.
        controls: how far the FP32 reference is from the FP64 one.
    """

    def __init__(self, histograms: Histograms, values: pa.Table, controls: Controls) -> None:
        self._histograms, self._controls = histograms, controls
        self._values: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = {}
        for row in values.to_pylist():
            if row["rank"] is None:
                place = (row["bank"], row["width"], row["tensor"])
                self._values.setdefault(place, {})[row["pair"]] = row

    def figures(
        self, counts: Counts, width: int, banks: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return the answer by tensor with all that it is made of, JSON values.

        A tensor that the two paths do not both show is not in it.

        Args:
            counts: of the same banks at the same width.
            width: rows per launch.
            banks: those that are looked at; None: all.
        """
        names = [
            bank
            for bank, at in self._histograms.places()
            if at == width and (banks is None or bank in banks)
        ]
        groups = {bank: read_groups(self._histograms, bank, width) for bank in names}
        found = {}
        for tensor, pairs in counts.paired.items():
            if pairs is None:
                continue
            sign = sign_test(pairs)
            having = [bank for bank in names if tensor in groups[bank]]
            found[tensor] = asdict(sign)
            if having:
                mine, other = self._errors(groups, having, width, tensor)
                evidence = Evidence(
                    sign,
                    ratio_interval(mine, other),
                    self._rms(having, width, tensor),
                    self._worst(having, width, tensor),
                    self._reference_error(having, tensor),
                )
                found[tensor].update(_decided(evidence))
            elif nothing_paired(sign):
                # Errors that are no numbers leave no groups either.
                found[tensor]["reasons"] = nothing_paired(sign)
        return found

    def _errors(
        self, groups: Mapping[str, Any], banks: Sequence[str], width: int, tensor: str
    ) -> tuple[F64, F64]:
        """Squared errors of the groups of all banks, in one scale."""
        sides = []
        for path in (CANDIDATE, BASELINE):
            parts = [
                groups[bank][tensor][path] * self._scale(bank, width, tensor) for bank in banks
            ]
            sides.append(np.concatenate(parts))
        return sides[0], sides[1]

    def _scale(self, bank: str, width: int, tensor: str) -> float:
        """The squared errors of both paths on the bank, which its parts are parts of."""
        sides = self._values.get((bank, width, tensor), {})
        return math.fsum(
            max(0.0, sides[pair]["error_square"]) for pair in _PAIRS.values() if pair in sides
        )

    def _rms(
        self, banks: Sequence[str], width: int, tensor: str
    ) -> tuple[float | None, float | None]:
        found = []
        for pair in _PAIRS.values():
            rows = self._rows(banks, width, tensor, pair)
            squares = [math.fsum(r[n] for r in rows) for n in ("error_square", "reference_square")]
            found.append(relative_rms(max(0.0, squares[0]), squares[1]))
        return found[0], found[1]

    def _worst(
        self, banks: Sequence[str], width: int, tensor: str
    ) -> tuple[float | None, float | None]:
        found = []
        for pair in _PAIRS.values():
            rows = self._rows(banks, width, tensor, pair)
            known = [row["worst_row_relative_rms"] for row in rows]
            found.append(max((one for one in known if one is not None), default=None))
        return found[0], found[1]

    def _rows(
        self, banks: Sequence[str], width: int, tensor: str, pair: str
    ) -> list[dict[str, Any]]:
        sides = [self._values.get((bank, width, tensor), {}) for bank in banks]
        return [side[pair] for side in sides if pair in side]

    def _reference_error(self, banks: Sequence[str], tensor: str) -> float | None:
        """How far the FP64 sums may be off, from what FP32 ones are: the worst of the banks."""
        known = [self._controls.get(bank, {}).get(tensor) for bank in banks]
        return max((one * FP64_OF_FP32 for one in known if one is not None), default=None)


def _decided(evidence: Evidence) -> dict[str, Any]:
    interval, decision = evidence.interval, decide(evidence)
    mine, other = evidence.worst
    return {
        "answer": decision.answer,
        "sign_answer": evidence.sign.answer,
        "ratio_answer": interval.answer,
        "reasons": list(decision.reasons),
        "ratio": interval.ratio,
        "ratio_low": interval.low,
        # JSON has no infinity: no resample of the baseline's errors bounds the ratio.
        "ratio_high": None if interval.high == math.inf else interval.high,
        "units": interval.units,
        "confidence": interval.confidence,
        "resamples": interval.resamples,
        "seed": interval.seed,
        "worst_row_ratio": mine / other if mine is not None and other else None,
        "worst_factor": WORST_FACTOR,
        "reference_error": evidence.reference_error,
    }


def recorded_controls(banks: object) -> dict[str, dict[str, float | None]]:
    """Return the controls of a record's ``banks``; what is no number there is none."""
    found: dict[str, dict[str, float | None]] = {}
    for bank in banks if isinstance(banks, list) else ():
        control = bank.get("fp32_reference_control") if isinstance(bank, dict) else None
        if isinstance(control, dict):
            found[str(bank.get("name"))] = {
                name: value if isinstance(value, float) else None for name, value in control.items()
            }
    return found
