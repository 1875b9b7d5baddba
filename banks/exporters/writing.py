"""What a user says of a file to write, and what each writer takes of a bank's content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bank import Array
from ..errors import BankError
from ..interchange import Column, Content, steps
from ..schema import WEIGHTS


@dataclass(frozen=True)
class Writing:
    """What a writer has to know.

    Attributes:
        path: which recorded outputs to write, where a format has place for one; None takes the
            only ones.
        model_layers: layers of the model in a dump of ids; None takes what the bank was imported
            from, else its highest layer and one more.
    """

    path: str | None = None
    model_layers: int | None = None


def header_text(content: Content) -> str:
    """Return the header as it is kept in a file: JSON in one line."""
    return json.dumps(content.header, allow_nan=False)


def bits(values: Array) -> Array:
    """Return BF16 and FP8 values as unsigned integers of their bits; others as they are."""
    if values.dtype.kind in "iuf":
        return values
    return values.view({1: np.uint8, 2: np.uint16}[values.dtype.itemsize])


def parts(column: Column) -> Iterator[Array]:
    """Yield a column's records in blocks, contiguous."""
    if not column.shape:
        yield column.whole()
        return
    for start, stop in steps(column.shape[0]):
        yield np.ascontiguousarray(column.read(start, stop))


def row_columns(content: Content) -> dict[str, Column]:
    """Return the columns that have a record a row."""
    return {name: found for name, found in content.columns.items() if name not in WEIGHTS}


def weight_columns(content: Content) -> dict[str, Column]:
    """Return the columns that are weights."""
    return {name: found for name, found in content.columns.items() if name in WEIGHTS}


def check_stage(content: Content, stages: tuple[str, ...], format_: str) -> dict[str, Any]:
    """Return the header of a bank whose stage a format can carry.

    Raises:
        BankError: another stage.
    """
    header = dict(content.header or {})
    if header.get("stage") not in stages:
        expected = f"{' or '.join(stages)}: {format_} has no place for it"
        raise BankError("stage", header.get("stage"), expected, content.where)
    return header
