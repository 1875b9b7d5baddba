"""Refuse what ``attribute_schedule`` cannot take, before anything is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...banks.errors import InputError
from ...kernels.contract import BFLOAT16, F64, Bf16
from ...kernels.reduce import SCHEDULES
from .attribution import GATHER

_WHERE: Final = "attribute_schedule"


@dataclass(frozen=True, slots=True)
class ScheduleInputs:
    """What was given, checked.

    Attributes:
        ranks, rows, latent: the shape of the partials.
        seen: the ranks that were observed.
        counted: so many first rows count.
    """

    ranks: int
    rows: int
    latent: int
    seen: tuple[int, ...]
    counted: int


def check_inputs(
    partials: Bf16,
    observed: Bf16,
    reference: F64 | None,
    width: int | None,
    seen: Sequence[int] | None,
    also: Sequence[str],
    rows: int | None,
) -> ScheduleInputs:
    """Return the arguments of ``attribute_schedule``, checked.

    Raises:
        InputError: one that is of another type, shape or range.
    """
    for name, array in (("partials", partials), ("observed", observed)):
        _array(name, array, "a numpy array of bfloat16")
        if array.dtype != BFLOAT16:
            raise InputError(f"{name}.dtype", array.dtype, "bfloat16", _WHERE)
    if partials.ndim != 3 or not partials.size:
        raise InputError("partials.shape", partials.shape, "[rank, row, latent], not empty", _WHERE)
    ranks, all_rows, latent = partials.shape
    places = _seen(seen, ranks)
    if observed.shape != (len(places), all_rows, latent):
        expected = (len(places), all_rows, latent)
        raise InputError("observed.shape", observed.shape, expected, _WHERE)
    if reference is not None:
        _array("reference", reference, "a numpy array of numbers")
        if reference.shape != (all_rows, latent):
            raise InputError("reference.shape", reference.shape, (all_rows, latent), _WHERE)
        if reference.dtype.kind not in "fiu":
            raise InputError("reference.dtype", reference.dtype, "real numbers", _WHERE)
    if width is not None and (not _whole(width) or width < 1 or all_rows % width):
        raise InputError("width", width, f"a divisor of {all_rows} rows", _WHERE)
    if rows is not None and (not _whole(rows) or not 1 <= rows <= all_rows):
        raise InputError("rows", rows, f"1..{all_rows}", _WHERE)
    _check_names(also)
    return ScheduleInputs(ranks, all_rows, latent, places, all_rows if rows is None else int(rows))


def _array(name: str, value: object, expected: str) -> None:
    if not isinstance(value, np.ndarray):
        raise InputError(name, type(value).__name__, expected, _WHERE)


def _seen(seen: Sequence[int] | None, ranks: int) -> tuple[int, ...]:
    if seen is None:
        return tuple(range(ranks))
    expected = f"different ranks of 0..{ranks - 1}"
    if not isinstance(seen, Sequence | np.ndarray):
        raise InputError("seen", seen, expected, _WHERE)
    places = list(seen)
    if not places or not all(_whole(one) and 0 <= one < ranks for one in places):
        raise InputError("seen", places, expected, _WHERE)
    if len(set(places)) != len(places):
        raise InputError("seen", places, expected, _WHERE)
    return tuple(int(one) for one in places)


def _check_names(also: Sequence[str]) -> None:
    if isinstance(also, str) or not isinstance(also, Sequence):
        raise InputError("also", also, "a list of schedules, such as ['two_level:4']", _WHERE)
    known = [*SCHEDULES, GATHER]
    for name in also:
        plain, colon, islands = name.partition(":") if isinstance(name, str) else ("", "", "")
        counted = plain == "two_level" and islands.isascii() and islands.isdigit()
        if plain not in known or (colon and not counted):
            expected = f"one of {', '.join(known)}, or two_level:<islands>"
            raise InputError("also", name, expected, _WHERE)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
