"""The record of ``neartie certify``: raw counts, what they say per range, and what that proves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from ..banks.errors import InputError
from ..kernels.exhaustive.float_line import RANGES, bits_at
from ..kernels.exhaustive.record import EXACT_BINS, FormCounts, RingCounts, ScanRecord
from ..kernels.exhaustive.scan import FINITE_PLACES, SpecialScores
from .metrics.score_bounds import key_bound, swap_window
from .metrics.ulp import from_ordered

RECORD_VERSION: Final = 1
"""Version of the certificate's file; a change of meaning raises it."""


@dataclass(frozen=True)
class ScoreCertificate:
    """What evaluating two score forms on every FP32 input showed.

    Attributes:
        form_a, form_b: names of ``scores.FORMS``, or both of ``forms.DEVICE_FORMS``,
            alphabetically.
        versions: of both forms.
        record: exact counts over all finite inputs.
        special: of each form, its scores of infinities and NaNs.
        provenance: date, seconds, versions and machine of the run.
        device: of device forms, what their bits hold for (``facts.KEY_FACTS``); None on the CPU,
            whose forms have the same bits on every machine.
    """

    form_a: str
    form_b: str
    versions: tuple[int, int]
    record: ScanRecord
    special: tuple[SpecialScores, SpecialScores]
    provenance: Mapping[str, Any]
    device: Mapping[str, str] | None = None

    def range(self, range_name: str) -> RingCounts:
        """Return the counts of a range of ``RANGES``: abs16, abs88 or all.

        Raises:
            InputError: another name.
        """
        if range_name not in RANGES:
            raise InputError("range", range_name, f"one of {', '.join(RANGES)}", "certificate")
        return self.record.range(range_name)

    def max_ulp(self, range_name: str) -> int:
        """Return the largest distance of the two scores in FP32 steps."""
        return self.range(range_name).pair.max_ulp

    def max_abs(self, range_name: str) -> float:
        """Return the largest |a - b|, rounded up where FP64 cannot hold it.

        Raises:
            InputError: a score in the range is not finite, so that no number bounds it.
        """
        pair = self.range(range_name).pair
        if pair.undefined:
            got = f"{pair.undefined} inputs with a score that is not finite"
            raise InputError("max_abs", got, "finite scores", f"certificate, {range_name}")
        return magnitude(pair.max_abs_bits)

    def score_range(self, range_name: str) -> tuple[float, float]:
        """Return the lowest and the highest finite score of either form."""
        forms = self.range(range_name).forms
        return score_of(min(f.lowest for f in forms)), score_of(max(f.highest for f in forms))

    def key_bound(self, range_name: str, bias_low: float, bias_high: float) -> float:
        """Return the largest |key_a - key_b| for logits in a range and biases from low to high.

        Raises:
            InputError: as ``max_abs`` and ``score_bounds.key_bound``.
        """
        low, high = self.score_range(range_name)
        bound = self.max_abs(range_name)
        return key_bound(bound, bias_low, bias_high, score_low=low, score_high=high)

    def swap_window(self, range_name: str, bias_low: float, bias_high: float) -> float:
        """Return the boundary gap above which both forms select the same set, absolute.

        Raises:
            InputError: as ``key_bound``.
        """
        return swap_window(self.key_bound(range_name, bias_low, bias_high))

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: ``ranges`` and ``special`` to read, ``counts`` for ``from_json``."""
        forms = (self.form_a, self.form_b)
        return {
            "record_version": RECORD_VERSION,
            "forms": dict(zip(forms, self.versions, strict=True)),
            "form_a": self.form_a,
            "form_b": self.form_b,
            **({} if self.device is None else {"device": dict(self.device)}),
            "ranges": {name: _range_dict(self.range(name), forms, name) for name in RANGES},
            "special": {
                form: _special_dict(one) for form, one in zip(forms, self.special, strict=True)
            },
            "provenance": dict(self.provenance),
            "counts": {
                **self.record.as_dict(),
                "special": [asdict(one) for one in self.special],
            },
        }

    def to_json(self) -> str:
        """Return the certificate as one strict JSON document."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "certificate") -> ScoreCertificate:
        """Return the certificate that ``to_json`` wrote; what is derived is derived again.

        Raises:
            InputError: no certificate, another record version, or not all inputs evaluated.
        """
        try:
            data = json.loads(text)
            version = data["record_version"]
            if version != RECORD_VERSION:
                raise InputError("record_version", version, RECORD_VERSION, where)
            first, second = (SpecialScores(**one) for one in data["counts"]["special"])
            form_a, form_b = data["form_a"], data["form_b"]
            versions = (data["forms"][form_a], data["forms"][form_b])
            record = ScanRecord.from_dict(data["counts"])
            provenance = dict(data["provenance"])
            device = dict(data["device"]) if "device" in data else None
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("file", repr(error), "a certificate", where) from error
        seen = sum(stop - start for start, stop in record.done)
        if seen != FINITE_PLACES:
            raise InputError("inputs", f"{seen:,}", f"{FINITE_PLACES:,}", where)
        return cls(form_a, form_b, versions, record, (first, second), provenance, device)

    def _repr_html_(self) -> str:
        """Show in a notebook what ``neartie certify`` prints."""
        # What shows a certificate imports its type.
        from .report.notebook import render_notebook_certificate

        return render_notebook_certificate(self)


def magnitude(bits: int) -> float:
    """Return the FP64 number of a bit pattern that ``exhaustive.record`` keeps."""
    return float(np.int64(bits).view(np.float64))


def score_of(steps: int) -> float:
    """Return the FP32 score at a number of steps from zero."""
    return float(from_ordered(steps, np.float32))


def bins_of(histogram: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return (least distance, largest distance, inputs) of each bin that is not empty.

    Example:
        >>> bins_of((5, 0, 1) + (0,) * 62 + (7,))
        [(0, 0, 5), (2, 2, 1), (65, 128, 7)]
    """
    result = []
    for number, inputs in enumerate(histogram):
        low = high = number
        if number >= EXACT_BINS:
            high = (EXACT_BINS - 1) << (number - EXACT_BINS + 1)
            low = high // 2 + 1
        if inputs:
            result.append((low, high, inputs))
    return result


def _range_dict(counts: RingCounts, forms: tuple[str, str], name: str) -> dict[str, Any]:
    pair = counts.pair
    return {
        "range": RANGES[name][1],
        "inputs": pair.inputs,
        "differ": pair.differ,
        "undefined": pair.undefined,
        "max_ulp": pair.max_ulp,
        "max_ulp_input": _input(pair.max_ulp_at),
        "max_abs": magnitude(pair.max_abs_bits),
        "max_abs_hex": magnitude(pair.max_abs_bits).hex(),
        "max_abs_input": _input(pair.max_abs_at),
        "histogram": [
            {"from": low, "to": high, "inputs": inputs}
            for low, high, inputs in bins_of(counts.histogram)
        ],
        "scores": {form: _form_dict(one) for form, one in zip(forms, counts.forms, strict=True)},
    }


def _form_dict(counts: FormCounts) -> dict[str, Any]:
    return {
        "lowest": score_of(counts.lowest),
        "highest": score_of(counts.highest),
        "nonfinite": counts.nonfinite,
        "ones": counts.ones,
        "first_one": _input(counts.first_one),
        "zeros": counts.zeros,
        "last_zero": _input(counts.last_zero),
        "subnormals": counts.subnormals,
        "first_subnormal": _input(counts.first_subnormal),
        "last_subnormal": _input(counts.last_subnormal),
        "monotone": counts.drops == 0,
        "drops": counts.drops,
        "first_drop": _input(counts.first_drop),
        "largest_drop": magnitude(counts.drop_bits),
        "largest_drop_input": _input(counts.drop_at),
    }


def _special_dict(special: SpecialScores) -> dict[str, Any]:
    return {
        "minus_infinity": _number(special.minus_infinity),
        "plus_infinity": _number(special.plus_infinity),
        "nan_inputs": special.nan_inputs,
        "nan_scores": special.nan_scores,
        "first_nan_that_gives_a_number": _input(special.first_number_at),
    }


def _number(bits: int) -> dict[str, Any]:
    """A number as its bit pattern and its value; None for a value that JSON cannot hold."""
    value = float(np.uint32(bits).view(np.float32))
    return {"bits": f"0x{bits:08x}", "value": value if math.isfinite(value) else None}


def _input(place: int) -> dict[str, Any] | None:
    """An input as its bit pattern and its value; None for one that does not occur."""
    if place < 0:
        return None
    return _number(bits_at(place))
