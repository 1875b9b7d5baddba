"""What a metric is: a named figure of evidence, with its units and the parameters it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..evidence.load import Evidence

Value = float | int | str


@dataclass(frozen=True, slots=True)
class Query:
    """What a claim asks of a metric; ``widths`` empty means every width of the evidence."""

    tensor: str = ""
    pair: str = ""
    set_class: str = ""
    path: str = ""
    geometry: str = ""
    ranks: int | None = None
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure.

    Attributes:
        where: such as ``width 9``.
        value: None where it could not be measured; ``note`` then says why.
        note: denominators and what else the figure needs to be read.
        trials: independent rows that a count is out of.
    """

    where: str
    value: Value | None
    note: str = ""
    trials: int | None = None


@dataclass(frozen=True)
class Metric:
    """A figure of recorded evidence. ``kinds``: of an audit, a gate, or both."""

    name: str
    kinds: tuple[str, ...]
    units: str
    takes: tuple[str, ...]
    summary: str
    measure: Callable[[Evidence, Query], list[Measure]]


@dataclass(frozen=True)
class LiveMetric:
    """A figure that is tried here and now, without evidence."""

    name: str
    units: str
    takes: tuple[str, ...]
    summary: str
    measure: Callable[[Query], list[Measure]]
    kinds: tuple[str, ...] = ("live",)
