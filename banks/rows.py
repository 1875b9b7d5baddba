"""Banks made of some rows of another: select, sample and split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from .atomic import new_directory
from .bank import Bank, Header, RowBlock
from .derived import Rows, derived_header, read_keys
from .errors import BankError, InputError
from .interchange import STEP, steps
from .row_filter import Condition, within
from .write import write_bank

_ENTIRE: Final = (0, 1 << 62)


@dataclass(frozen=True)
class Selection:
    """Which rows are taken; every condition that is given must hold.

    Attributes:
        rows: inclusive ranges of row numbers in the bank, from 0.
        layers, steps, ranks: inclusive ranges of these keys.
        where: a ``row_filter.Condition`` over any keys.
        drop: recorded outputs (``recorded.NAME``) and other tensors to leave out.
    """

    rows: list[tuple[int, int]] | None = None
    layers: list[tuple[int, int]] | None = None
    steps: list[tuple[int, int]] | None = None
    ranks: list[tuple[int, int]] | None = None
    where: str | None = None
    drop: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return what was asked for as JSON values."""
        given = {
            "rows": self.rows,
            "layers": self.layers,
            "steps": self.steps,
            "ranks": self.ranks,
            "where": self.where,
            "drop": list(self.drop) or None,
        }
        return {
            name: [list(part) if isinstance(part, tuple) else part for part in value]
            if isinstance(value, list)
            else value
            for name, value in given.items()
            if value is not None
        }


def select_rows(
    bank: Bank, directory: str | Path, selection: Selection, name: str | None = None
) -> str:
    """Write the rows that a selection takes, in their order, and return the new bank's digest.

    Args:
        bank: the source.
        directory: a new or empty directory.
        selection: which rows.
        name: the new bank's; None takes the directory's.

    Raises:
        BankError: no row is left, or the directory is taken. Nothing is left behind.
        InputError: a row that the bank has not, a condition that is none, or ranks of a bank whose
            tensors are pieces of all.
    """
    if selection.ranks is not None and bank.ranks is not None:
        expected = f"absent: the pieces of all {bank.ranks} ranks belong together"
        raise InputError("ranks", "given", expected, bank.name)
    for low, high in selection.rows or ():
        if high >= bank.rows:
            got = str(low) if low == high else f"{low}-{high}"
            raise InputError("rows", got, f"0..{bank.rows - 1}", bank.name)
    numbers = _selected(bank, selection)
    made = {"operation": "select", **selection.as_dict()}
    header = derived_header(bank, directory, name, made)
    header, dropped = _without(header, bank, selection.drop)
    weights = {n: values for n, values in bank.weights.items() if n not in dropped}
    return write_bank(directory, header, weights, _blocks(bank, numbers, dropped))


def _without(header: Header, bank: Bank, drop: Sequence[str]) -> tuple[Header, set[str]]:
    """The header without dropped paths, and the names of dropped tensors and paths."""
    block = bank.read(0, 1)
    held = {*block.extra, *bank.weights, *(f"recorded.{path}" for path in block.recorded)}
    for tensor in drop:
        if tensor not in held:
            expected = f"one of {', '.join(sorted(held))}"
            raise InputError("drop", tensor, expected, bank.name)
    widths = {p: w for p, w in header.recorded_widths.items() if f"recorded.{p}" not in drop}
    return replace(header, recorded_widths=widths), set(drop)


def _selected(bank: Bank, selection: Selection) -> Rows:
    condition = None if selection.where is None else Condition(selection.where, bank.name)
    found = []
    for start, stop in steps(bank.rows):
        keys = read_keys(bank, start, stop)
        taken = within(np.arange(start, stop), selection.rows or [_ENTIRE])
        for key, ranges in (
            ("layer", selection.layers),
            ("step", selection.steps),
            ("rank", selection.ranks),
        ):
            if ranges is not None:
                taken &= within(keys[key], ranges)
        if condition is not None:
            taken &= condition(keys)
        found.append(np.flatnonzero(taken) + start)
    numbers = np.concatenate(found)
    if not len(numbers):
        raise BankError("rows", 0, "at least 1 that the selection takes", bank.name)
    return numbers


def sample_rows(
    bank: Bank, directory: str | Path, rows: int, seed: int, name: str | None = None
) -> str:
    """Write distinct rows drawn at random, each as likely as any, in their order.

    A row's draw is the next 64 bits of Philox (numpy's stream of raw bits, which does not change);
    the rows with the smallest are taken.

    Args:
        bank: the source.
        directory: a new or empty directory.
        rows: how many.
        seed: at least 0; kept in the provenance.
        name: the new bank's; None takes the directory's.

    Raises:
        BankError: the directory is taken.
        InputError: a negative seed, or more rows than the bank has.
    """
    if not 1 <= rows <= bank.rows:
        raise InputError("rows", rows, f"1..{bank.rows}", bank.name)
    if not 0 <= seed < 1 << 63:
        raise InputError("seed", seed, "0..2^63-1", "sample")
    bits = np.random.Philox(key=seed).random_raw(bank.rows)
    numbers = np.sort(np.argsort(bits, kind="stable")[:rows])
    header = derived_header(
        bank, directory, name, {"operation": "sample", "rows": rows, "seed": seed}
    )
    return write_bank(directory, header, bank.weights, _blocks(bank, numbers, set()))


def split_rows(
    bank: Bank, directory: str | Path, *, by: str | None = None, rows: int | None = None
) -> dict[str, str]:
    """Write a directory of banks, each a part of the rows, and return their digests by name.

    Args:
        bank: the source.
        directory: a new or empty directory; ``expand_banks`` opens its banks together.
        by: a key: one bank for each of its values.
        rows: or so many rows a bank, in their order.

    Raises:
        BankError: the directory is taken; nothing is left behind.
        InputError: both ways or neither, a key that the bank has not, or fewer rows than one.
    """
    if (by is None) == (rows is None):
        raise InputError("by and rows", "both or neither", "one of them", "split")
    parts = _by_key(bank, by) if by is not None else _by_count(bank, rows or 0)
    target = Path(directory)
    digests = {}
    with new_directory(target, "directory of banks") as partial:
        for part, numbers in parts.items():
            made = {"operation": "split", "by": by or "rows", "part": part}
            header = derived_header(bank, target, f"{target.name}/{part}", made)
            digests[part] = write_bank(
                partial / part, header, bank.weights, _blocks(bank, numbers, set())
            )
    return digests


def _by_key(bank: Bank, key: str) -> dict[str, Rows]:
    known = [name for name in read_keys(bank, 0, 1) if name != "unit"]
    if key not in known:
        raise InputError("by", key, f"one of {', '.join(known)}", bank.name)
    values = np.concatenate([read_keys(bank, start, stop)[key] for start, stop in steps(bank.rows)])
    return {
        f"{key}{value}": np.flatnonzero(values == value) for value in np.unique(values).tolist()
    }


def _by_count(bank: Bank, rows: int) -> dict[str, Rows]:
    if rows < 1:
        raise InputError("rows", rows, "at least 1", "split")
    return {
        f"part{number}": np.arange(start, stop)
        for number, (start, stop) in enumerate(steps(bank.rows, rows))
    }


def _blocks(bank: Bank, numbers: Rows, dropped: set[str]) -> Iterator[RowBlock]:
    for start in range(0, len(numbers), STEP):
        part = numbers[start : start + STEP]
        first, last = int(part[0]), int(part[-1])
        together = last - first + 1 == len(part)
        block = bank.read(first, last + 1) if together else bank.read_rows(part)
        if dropped:
            block = replace(
                block,
                extra={n: v for n, v in block.extra.items() if n not in dropped},
                recorded={
                    p: v for p, v in block.recorded.items() if f"recorded.{p}" not in dropped
                },
            )
        yield block
