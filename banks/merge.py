"""Banks made of several others: their rows one after the other, or their outputs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .bank import Array, Bank, RowBlock
from .derived import Rows, derived_header, read_keys
from .errors import BankError, InputError
from .interchange import steps
from .write import write_bank


def merge_rows(
    banks: Sequence[Bank], directory: str | Path, *, shift_steps: bool = False,
    name: str | None = None,
) -> str:  # fmt: skip
    """Write the rows of several banks, one after the other, and return the new bank's digest.

    Args:
        banks: at least two of one front: same sizes, rule, weights (bit for bit) and columns.
        directory: a new or empty directory.
        shift_steps: add to each bank's steps so that they follow those of the bank before; without
            it a record (layer, step, row, rank) that two banks have is refused.
        name: the new bank's; None takes the directory's.

    Raises:
        BankError: banks of different fronts or columns, or a record that is there twice.
        InputError: fewer than two banks.
    """
    if len(banks) < 2:
        raise InputError("banks", len(banks), "at least 2", "merge")
    first = banks[0]
    for other in banks[1:]:
        _check_alike(first, other)
    shifts = _shifts(banks) if shift_steps else [0] * len(banks)
    made: dict[str, Any] = {"operation": "merge", "shift_steps": shift_steps}
    header = derived_header(first, directory, name, made, parents=banks)

    def blocks() -> Iterator[RowBlock]:
        for bank, shift in zip(banks, shifts, strict=True):
            for start, stop in steps(bank.rows):
                block = bank.read(start, stop)
                keys = dict(block.keys)
                moved = keys["step"].astype(np.int64) + shift
                keys["step"] = _narrow(moved, keys["step"], bank.name)
                yield replace(block, keys=keys)

    return write_bank(directory, header, first.weights, blocks())


def _narrow(values: npt.NDArray[np.int64], like: Array, where: str) -> Array:
    if values.max() > np.iinfo(like.dtype).max:
        raise BankError("step", int(values.max()), f"at most that of {like.dtype}", where)
    return values.astype(like.dtype)


def _shifts(banks: Sequence[Bank]) -> list[int]:
    shifts: list[int] = []
    end = 0
    for bank in banks:
        spans = [read_keys(bank, start, stop)["step"] for start, stop in steps(bank.rows)]
        lowest, highest = min(int(s.min()) for s in spans), max(int(s.max()) for s in spans)
        shifts.append(end - lowest if shifts else 0)
        end = highest + shifts[-1] + 1
    return shifts


def _check_alike(first: Bank, other: Bank) -> None:
    for what in ("scoring", "tie_contract", "independence_unit", "stage", "ranks"):
        got, expected = getattr(other, what), getattr(first, what)
        if got != expected:
            raise BankError(what, got, f"{expected}, as of {first.name}", other.name)
    if replace(other.geometry, name=first.geometry.name) != first.geometry:
        raise BankError("geometry", other.geometry, f"that of {first.name}", other.name)
    if dict(other.recorded_widths) != dict(first.recorded_widths):
        got, expected = dict(other.recorded_widths), dict(first.recorded_widths)
        raise BankError("recorded widths", got, f"{expected}, as of {first.name}", other.name)
    for name in sorted({*first.weights, *other.weights}):
        one, two = first.weights.get(name), other.weights.get(name)
        if one is None or two is None or one.dtype != two.dtype or one.tobytes() != two.tobytes():
            expected = f"the bits of {first.name}: a bank has the weights of one layer"
            raise BankError(name, "other bits" if two is not None else "nothing", expected,
                            other.name)  # fmt: skip


def join_outputs(
    banks: Sequence[Bank],
    directory: str | Path,
    *,
    on: Sequence[str] = ("layer", "step", "row", "rank"),
    name: str | None = None,
) -> str:
    """Write the first bank's rows with the recorded outputs of the others beside its own.

    Args:
        banks: the first gives rows, inputs and weights; each other the outputs of its paths for
            every one of these rows (it may have more).
        directory: a new or empty directory.
        on: the keys by which a row of one bank is that of another.
        name: the new bank's; None takes the directory's.

    Raises:
        BankError: other experts or top k, a path that two banks have, a row that another bank lacks
            or has twice.
        InputError: fewer than two banks, or a key that one lacks.
    """
    if len(banks) < 2:
        raise InputError("banks", len(banks), "at least 2", "join")
    first = banks[0]
    widths = dict(first.recorded_widths)
    for other in banks[1:]:
        for size in ("experts", "top_k"):
            got, expected = getattr(other.geometry, size), getattr(first.geometry, size)
            if got != expected:
                raise BankError(size, got, f"{expected}, as of {first.name}", other.name)
        if not other.recorded_widths:
            raise BankError("recorded", "nothing", "outputs of a path", other.name)
        for path, width in other.recorded_widths.items():
            if path in widths:
                raise BankError(f"recorded.{path}", "here too", "of one bank only", other.name)
            widths[path] = width
    places = [_matched(first, other, list(on)) for other in banks[1:]]
    made = {"operation": "join", "on": list(on)}
    header = derived_header(first, directory, name, made, parents=banks)

    def blocks() -> Iterator[RowBlock]:
        for start, stop in steps(first.rows):
            block = first.read(start, stop)
            recorded = dict(block.recorded)
            for other, place in zip(banks[1:], places, strict=True):
                numbers, back = np.unique(place[start:stop], return_inverse=True)
                for path, (ids, values) in other.read_rows(numbers).recorded.items():
                    recorded[path] = (ids[back], None if values is None else values[back])
            yield replace(block, recorded=recorded)

    return write_bank(directory, replace(header, recorded_widths=widths), first.weights, blocks())


def _matched(first: Bank, other: Bank, on: list[str]) -> Rows:
    """Number in ``other`` of each row of ``first``."""
    mine, theirs = _key_table(first, on), _key_table(other, on)
    _, ids = np.unique(np.concatenate([mine, theirs]), axis=0, return_inverse=True)
    ids = ids.reshape(-1)
    wanted, held = ids[: len(mine)], ids[len(mine) :]
    order = np.argsort(held, kind="stable")
    ordered = held[order]
    for start in np.flatnonzero(ordered[1:] == ordered[:-1])[:1].tolist():
        got = _named(on, theirs[order[start]])
        raise BankError(f"row {order[start + 1]}", f"{got} twice", "each once", other.name)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    for row in np.flatnonzero(ordered[place] != wanted)[:1].tolist():
        got = f"none with {_named(on, mine[row])}"
        raise BankError("rows", got, f"each of {first.name}", other.name)
    return order[place]


def _key_table(bank: Bank, on: list[str]) -> Rows:
    parts = []
    for start, stop in steps(bank.rows):
        keys = read_keys(bank, start, stop)
        for key in on:
            if key not in keys or key == "unit":
                known = ", ".join(name for name in keys if name != "unit")
                raise InputError("key", key, f"one of {known}", bank.name)
        parts.append(np.stack([keys[key].astype(np.int64) for key in on], axis=1))
    return np.concatenate(parts)


def _named(on: list[str], values: Rows) -> str:
    return ", ".join(f"{key} {value}" for key, value in zip(on, values.tolist(), strict=True))
