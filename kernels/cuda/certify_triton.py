"""Two device score forms on every FP32 input, on the device: the record that the CPU also makes.

Each program of ``exhaustive_triton`` counts ``SPAN`` consecutive places of ``float_line``; the host
merges them into a ``ScanRecord``, with the meanings, bins, witnesses and ranges it has on the CPU.
From the record, ``screen_bound`` is what the gate's screen needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import EnvelopeError, InputError
from ..exhaustive.float_line import MINUS_INFINITY, PLACES, PLUS_INFINITY, Stretch, stretches
from ..exhaustive.record import (
    BINS,
    EMPTY_FORM,
    EMPTY_PAIR,
    NOWHERE,
    FormSlot,
    PairSlot,
    RingCounts,
    ScanRecord,
)
from .exhaustive_triton import form_kernel, pair_kernel
from .forms import DEVICE_FORMS
from .lang import device, launch, unavailable
from .scores_triton import device_score

if TYPE_CHECKING:
    from ..exhaustive.scan import SpecialScores

SPAN: Final = 1 << 20
"""Places of one program."""

_BLOCK: Final = 256
_SLOTS: Final = 40
_PAIR: Final = 0
_FORMS: Final = (8, 24)
_BIN_SPACE: Final = 128


def device_scan(
    form_a: str, form_b: str, parts: list[Stretch] | None = None, span: int = SPAN
) -> ScanRecord:
    """Return the record of two device forms over all finite inputs, or over some stretches.

    Args:
        form_a: a name of ``DEVICE_FORMS``.
        form_b: another, or the same.
        parts: stretches of one sign and ring each; default all, ``float_line.stretches()``.
        span: places of one program, a multiple of 256.

    Raises:
        InputError: an unknown form.
        EnvelopeError: no device, or no Triton.
    """
    import torch

    for form in (form_a, form_b):
        if form not in DEVICE_FORMS:
            raise InputError("form", form, f"one of {', '.join(DEVICE_FORMS)}", "certify")
    reason = unavailable()
    if reason is not None:
        raise EnvelopeError("device", reason, "a CUDA device with Triton", "certify")
    where = device()
    codes = (DEVICE_FORMS[form_a].code, DEVICE_FORMS[form_b].code)
    waiting = []
    for part in stretches() if parts is None else parts:
        programs = -(-(part.stop - part.start) // span)
        out = torch.zeros((programs, _SLOTS), dtype=torch.int64, device=where)
        bins = torch.zeros((programs, _BIN_SPACE), dtype=torch.int32, device=where)
        first, stop = part.start, part.stop
        shape = (span, _BLOCK, _SLOTS)
        launch(pair_kernel, programs, out, bins, first, stop, *codes, *shape, warps=4)
        for slot, code in zip(_FORMS, codes, strict=True):
            launch(form_kernel, programs, out[:, slot:], first, stop, code, *shape, warps=4)
        waiting.append((part, out, bins))
    record = ScanRecord.empty()
    for part, out, bins in waiting:
        counts = _merged(out.cpu().numpy(), bins.to(torch.int64).sum(0).cpu().numpy())
        rings = ScanRecord.empty().rings
        rings[part.ring] = counts
        record = record.merge(ScanRecord(rings, ((part.start, part.stop),)))
    return record


def _merged(out: npt.NDArray[np.int64], bins: npt.NDArray[np.int64]) -> RingCounts:
    """The counts of all programs of one stretch, in order of place."""
    pair = np.array(EMPTY_PAIR, np.int64)
    columns = out[:, _PAIR : _PAIR + len(PairSlot)]
    for slot in (PairSlot.INPUTS, PairSlot.DIFFER, PairSlot.UNDEFINED):
        pair[slot] = columns[:, slot].sum()
    pair[PairSlot.UNDEFINED_AT] = _first(columns[:, PairSlot.UNDEFINED_AT])
    for value, place in (
        (PairSlot.MAX_ULP, PairSlot.MAX_ULP_AT),
        (PairSlot.MAX_ABS_BITS, PairSlot.MAX_ABS_AT),
    ):
        pair[value], pair[place] = _largest(columns[:, value], columns[:, place])
    forms = np.array([_merged_form(out[:, slot : slot + len(FormSlot)]) for slot in _FORMS])
    return RingCounts.of(pair, forms, bins[:BINS])


def _merged_form(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    form = np.array(EMPTY_FORM, np.int64)
    for slot in (
        FormSlot.NONFINITE, FormSlot.ONES, FormSlot.ZEROS, FormSlot.SUBNORMALS, FormSlot.DROPS,
    ):  # fmt: skip
        form[slot] = columns[:, slot].sum()
    low, high = columns[:, FormSlot.LOWEST].min(), columns[:, FormSlot.HIGHEST].max()
    if low <= high:
        form[FormSlot.LOWEST], form[FormSlot.HIGHEST] = low, high
    for slot in (FormSlot.FIRST_ONE, FormSlot.FIRST_SUBNORMAL, FormSlot.FIRST_DROP):
        form[slot] = _first(columns[:, slot])
    for slot in (FormSlot.LAST_ZERO, FormSlot.LAST_SUBNORMAL):
        form[slot] = columns[:, slot].max()
    form[FormSlot.DROP_BITS], form[FormSlot.DROP_AT] = _largest(
        columns[:, FormSlot.DROP_BITS], columns[:, FormSlot.DROP_AT]
    )
    return form


def _first(places: npt.NDArray[np.int64]) -> int:
    found = places[places != NOWHERE]
    return int(found.min()) if len(found) else NOWHERE


def _largest(values: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> tuple[int, int]:
    largest = int(values.max())
    return largest, int(places[values == largest].min()) if largest > 0 else NOWHERE


def device_special(form: str) -> SpecialScores:
    """Return a device form's scores of both infinities and of every NaN.

    Raises:
        InputError: an unknown form.
    """
    import torch

    from ..exhaustive.scan import SpecialScores

    if form not in DEVICE_FORMS:
        raise InputError("form", form, f"one of {', '.join(DEVICE_FORMS)}", "certify")
    where = device()
    ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float32, device=where)
    minus, plus = device_score(form, ends).view(torch.int32).cpu().tolist()
    total, numbers, first = 0, 0, NOWHERE
    for start, stop in ((0, MINUS_INFINITY), (PLUS_INFINITY + 1, PLACES)):
        places = torch.arange(start, stop, dtype=torch.int64, device=where)
        bits = torch.where(places >= 1 << 31, places - (1 << 31), PLACES - 1 - places)
        bits = torch.where(bits >= 1 << 31, bits - PLACES, bits).to(torch.int32)
        found = ~device_score(form, bits.view(torch.float32)).isnan()
        total += stop - start
        if bool(found.any()):
            numbers += int(found.sum())
            if first == NOWHERE:
                first = int(places[found].min())
    return SpecialScores(minus & 0xFFFFFFFF, plus & 0xFFFFFFFF, total, total - numbers, first)


def screen_bound(record: ScanRecord) -> float:
    """Return the largest |a - b| of a record over all finite inputs, rounded up to FP64.

    Raises:
        InputError: not all finite inputs were evaluated, or a score was not finite.
    """
    pair = record.range("all").pair
    expected = PLUS_INFINITY - MINUS_INFINITY - 1
    if pair.inputs != expected or pair.undefined:
        got = f"{pair.inputs} inputs, {pair.undefined} undefined"
        raise InputError("record", got, f"{expected} inputs, 0 undefined", "screen bound")
    return float(np.int64(pair.max_abs_bits).view(np.float64))


def screen_bounds(screen: str, forms: tuple[str, ...]) -> tuple[float, dict[str, Any]]:
    """Return the bound that a gate's screen needs for some forms, and each form's record."""
    records = {form: device_scan(screen, form) for form in forms}
    return max(screen_bound(record) for record in records.values()), records
