"""A bank as the rest of the package sees it: header, weights, and rows in blocks."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from .errors import InputError, check_name
from .geometry import Geometry, ScoringRule, TieContract

Array = npt.NDArray[Any]
Stage = Literal["hidden", "partials", "shards", "logits", "outputs"]

STAGES: Final = ("hidden", "partials", "shards", "logits", "outputs")
"""Where the recorded inputs start; work of earlier stages is not in the bank.

``outputs`` has no input at all: recorded outputs can be held against each other, and nothing else.
"""

NO_UNIT: Final = "none"
"""Independence unit of rows that were chosen or made to provoke something: they bound no rate."""

KEYS: Final = ("layer", "step", "row", "rank", "unit")
"""Columns of ``RowBlock.keys`` that every bank has; ``rank`` is -1 for a record per row."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Consecutive rows of a bank; inputs of stages that it does not hold are None.

    Attributes:
        start: index in the bank of the first row.
        rows: number of rows.
        keys: integer columns [row]: layer, step, row, rank, unit (the independence unit's id),
            then the bank's own, such as doc or token_ids.
        hidden: [row, hidden] BF16.
        logits: [row, expert] float32.
        latent_partials: [rank, row, latent] BF16, K-split partial sums.
        latent_shards: [rank, row, latent / ranks] BF16, N-split columns.
        logits_shards: [rank, row, expert / ranks] float32, N-split.
        recorded: outputs by path name: ids [row, slot] int32, weights [row, slot] float32 or None.
        extra: other per-row tensors by name, [row, ...], such as ``logits_recorded``.
    """

    start: int
    rows: int
    keys: dict[str, Array]
    hidden: Array | None = None
    logits: Array | None = None
    latent_partials: Array | None = None
    latent_shards: Array | None = None
    logits_shards: Array | None = None
    recorded: dict[str, tuple[Array, Array | None]] = field(default_factory=dict)
    extra: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Header:
    """What is known of a bank without reading its rows.

    Attributes:
        name: how reports call it, such as ``k3-mini/layer3``; printable text.
        rows: number of rows.
        geometry: sizes of the front.
        scoring: rule from logits to experts.
        tie_contract: whether equal keys must go to the lower id.
        independence_unit: ``row``, the key whose values are independent, such as ``doc``, or
            ``none`` where the rows were chosen and are no sample of anything.
        stage: one of ``STAGES``.
        digest: sha256 hex of ``bank.json``; for a generator, of its canonical spec.
        ranks: tensor-parallel ranks of the pieces at stage partials or shards, else None.
        recorded_widths: rows per launch of each recorded path's outputs; None where unknown.
        provenance: where the rows come from (JSON values).

    Raises:
        InputError: a name or a unit that is no printable text.
    """

    name: str
    rows: int
    geometry: Geometry
    scoring: ScoringRule
    tie_contract: TieContract
    independence_unit: str
    stage: Stage
    digest: str
    ranks: int | None = None
    recorded_widths: Mapping[str, int | None] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("name", self.name, "bank")
        check_name("independence_unit", self.independence_unit, "bank")


class Bank(ABC):
    """Recorded or generated inputs of one front. Read-only; safe to read in any order.

    Attributes:
        threads_may_read: whether several threads may read at once; a bank that keeps what it read
            last says no.
        opens_again: whether ``spec`` opens this bank in another process.
        batch_digests: whether a copy with this bank's digest needs a digest of each record batch
            in its ``bank.json``; older banks on disk have none.
    """

    threads_may_read: bool = False
    opens_again: bool = True
    batch_digests: bool = True

    def __init__(
        self, header: Header, weights: Mapping[str, Array] | Callable[[], Mapping[str, Array]]
    ) -> None:
        self.header: Final = header
        self.spec: str = header.name
        """What opens this bank again: a shipped name, the directory or URL as it was given, or a
        generator's canonical spec; for other weights (``with_weights``), that of the rows."""
        self._weights = weights

    @property
    def weights(self) -> dict[str, Array]:
        """Return tensors by name, generated when first asked for.

        router_weight [expert, hidden], correction_bias [expert] float32, latent_down_weight
        [latent, hidden], and others the bank has.
        """
        if callable(self._weights):
            self._weights = self._weights()
        return dict(self._weights)

    @property
    def name(self) -> str:
        """How reports call this bank."""
        return self.header.name

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.header.rows

    @property
    def geometry(self) -> Geometry:
        """Sizes of the front."""
        return self.header.geometry

    @property
    def scoring(self) -> ScoringRule:
        """Rule from logits to experts."""
        return self.header.scoring

    @property
    def tie_contract(self) -> TieContract:
        """Whether equal keys must go to the lower id."""
        return self.header.tie_contract

    @property
    def independence_unit(self) -> str:
        """``row``, or the key whose distinct values are independent."""
        return self.header.independence_unit

    @property
    def stage(self) -> Stage:
        """Stage whose inputs the bank holds."""
        return self.header.stage

    @property
    def ranks(self) -> int | None:
        """Ranks of the recorded pieces; None where nothing varies per rank."""
        return self.header.ranks

    @property
    def recorded_widths(self) -> Mapping[str, int | None]:
        """Rows per launch of each recorded path's outputs."""
        return self.header.recorded_widths

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the rows come from."""
        return self.header.provenance

    @property
    def rows_from(self) -> str:
        """What the rows are drawn from: two banks of one source share rows, or may."""
        return self.digest

    @property
    def digest(self) -> str:
        """Sha256 hex that names these inputs in evidence."""
        return self.header.digest

    def read(self, start: int, stop: int) -> RowBlock:
        """Return rows start..stop, the same bits whatever the chunking.

        Raises:
            InputError: the range is empty or leaves the bank.
            BankError: the bank's files are damaged.
        """
        if not 0 <= start < stop <= self.rows:
            raise InputError("rows", f"{start}:{stop}", f"a part of 0:{self.rows}", self.name)
        return self._read(start, stop)

    def read_outputs(self, start: int, stop: int) -> RowBlock:
        """Return keys and recorded outputs of rows start..stop, and no input of any stage.

        Raises:
            InputError: the range is empty or leaves the bank.
        """
        block = self.read(start, stop)
        return RowBlock(start, block.rows, block.keys, recorded=block.recorded)

    def read_rows(self, rows: npt.NDArray[np.int64]) -> RowBlock:
        """Return single rows by their ascending numbers, as one block; ``start`` is the first's.

        Raises:
            InputError: no row, or one that is not in the bank.
        """
        if not len(rows) or rows[0] < 0 or rows[-1] >= self.rows or (np.diff(rows) < 0).any():
            expected = f"ascending numbers in 0..{self.rows - 1}"
            raise InputError("rows", f"{len(rows)} numbers", expected, self.name)
        return self._read_rows(rows)

    def _read_rows(self, rows: npt.NDArray[np.int64]) -> RowBlock:
        return _joined([self._read(row, row + 1) for row in rows.tolist()])

    def forget(self, start: int, stop: int) -> None:
        """Tell that rows start..stop are done with; a mapped bank drops their pages."""
        del start, stop

    @abstractmethod
    def _read(self, start: int, stop: int) -> RowBlock:
        """Return rows start..stop; the range is checked."""

    def _repr_html_(self) -> str:
        """Show in a notebook what ``bank info`` prints."""
        rows = "".join(
            f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>"
            for label, text in self.description()
        )
        return f"<table>{rows}</table>"

    def description(self) -> list[tuple[str, str]]:
        """Return (label, text) lines for ``bank info``."""
        g = self.geometry
        groups = f", {g.top_groups} of {g.groups} groups" if g.groups > 1 else ""
        lines = [
            ("name", self.name),
            ("digest", self.digest),
            ("rows", f"{self.rows:,}"),
            ("stage", self.stage + (f", {self.ranks} ranks" if self.ranks else "")),
            (
                "geometry",
                f"{g.name}: hidden {g.hidden}, latent {g.latent}, experts {g.experts}, "
                f"top {g.top_k}{groups}",
            ),
            ("scoring", f"{self.scoring.function}, scale {self.scoring.scale:g}"),
            ("tie contract", self.tie_contract),
            ("independence unit", self.independence_unit),
        ]
        lines += [
            (f"recorded {path}", "width unknown" if width is None else f"width {width}")
            for path, width in self.recorded_widths.items()
        ]
        lines += [
            (f"weight {name}", f"{tensor.dtype} {list(tensor.shape)}")
            for name, tensor in self.weights.items()
        ]
        return lines + [(key, _short(value)) for key, value in self.provenance.items()]

    def with_weights(self, **tensors: Array) -> Bank:
        """Return this bank with weights added or replaced; the digest covers their bytes.

        It is no bank that a spec opens again: its own is its new name.
        """
        return _Reweighted(self, tensors)


class _Reweighted(Bank):
    """A bank's rows beside other weights."""

    opens_again = False

    def __init__(self, base: Bank, tensors: Mapping[str, Array]) -> None:
        digest = hashlib.sha256(base.digest.encode())
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(np.ascontiguousarray(tensor).tobytes())
        name = f"{base.name}+{'+'.join(sorted(tensors))}"
        header = replace(base.header, name=name, digest=digest.hexdigest())
        super().__init__(header, {**base.weights, **tensors})
        self._base = base

    def _read(self, start: int, stop: int) -> RowBlock:
        return self._base.read(start, stop)


def require_inputs(bank: Bank) -> None:
    """Refuse a bank of recorded outputs alone.

    Raises:
        InputError: tells what can be done with it.
    """
    if bank.stage == "outputs":
        expected = (
            "one with inputs: outputs alone can be held against each other (bank compare), "
            "or joined to a bank of the same rows (bank merge --join)"
        )
        raise InputError("stage", bank.stage, expected, bank.name)


def check_distinct(banks: Sequence[Bank]) -> None:
    """Refuse banks whose rows would be counted twice: of one name, content or source.

    Raises:
        InputError: tells both banks.
    """
    for what in ("name", "digest", "rows_from"):
        seen: dict[str, Bank] = {}
        for bank in banks:
            value = getattr(bank, what)
            if value in seen and what == "rows_from":
                expected = "rows of their own (another seed): they are one generator's same draws"
                raise InputError("banks", f"{seen[value].spec} and {bank.spec}", expected, "banks")
            if value in seen:
                raise InputError(f"bank {what}", value, "of one bank only", bank.spec)
            seen[value] = bank


def _joined(blocks: list[RowBlock]) -> RowBlock:
    """Blocks of the same columns as one, in their order."""

    def along(axis: int, parts: list[Any]) -> Any:
        return None if parts[0] is None else np.concatenate(parts, axis=axis)

    first = blocks[0]
    whole = {
        name: along(axis, [getattr(block, name) for block in blocks])
        for name, axis in (
            ("hidden", 0),
            ("logits", 0),
            ("latent_partials", 1),
            ("latent_shards", 1),
            ("logits_shards", 1),
        )
    }
    recorded = {
        name: (
            along(0, [block.recorded[name][0] for block in blocks]),
            along(0, [block.recorded[name][1] for block in blocks]),
        )
        for name in first.recorded
    }
    return RowBlock(
        first.start,
        sum(block.rows for block in blocks),
        {name: along(0, [block.keys[name] for block in blocks]) for name in first.keys},
        recorded=recorded,
        extra={name: along(0, [block.extra[name] for block in blocks]) for name in first.extra},
        **whole,
    )


def _short(value: object) -> str:
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
    text = str(text)
    return text if len(text) <= 200 else text[:197] + "..."
