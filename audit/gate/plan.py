"""What a gate will do, decided before anything runs: banks, widths, shards, sample, windows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ...banks.bank import Bank, check_distinct, require_inputs
from ...banks.errors import InputError
from ...banks.open import GENERATORS, SHIPPED, SHIPPED_BANKS, expand_banks, open_bank
from ...kernels.contract import check_width
from ...kernels.device_select import device_select
from ..environment import code_digest
from ..launching import front_weights
from ..policy import Policy, effective_policy
from .device_plan import DevicePlan, make_device_plan
from .path_sides import declared_of
from .sides import Side, parse_side, proven_window

SHARD_ROWS: Final = 16384
SAMPLE_EVERY: Final = 512
MOST_SHARDS: Final = 4096
"""Where more rows are asked for, shards grow: each costs a file and a merge."""
MOST_SAMPLED: Final = 1 << 17
"""Where more rows are asked for, the reference checks a smaller share: some 20 us a row."""
SAMPLE_EVERY_RECORDED: Final = 4096
"""Fewer where the logits of a sampled row must be fetched."""
DEFAULT_SOURCE: Final = "normal:geometry=k3"
DEFAULT_ROWS: Final = 3_200_000
DEFAULT_WIDTHS: Final = (9, 12, 16, 20)


@dataclass(frozen=True)
class Shard:
    """Rows start..stop of one bank, counted at one width."""

    number: int
    bank: int
    width: int
    start: int
    stop: int


@dataclass(frozen=True)
class GatePlan:
    """All that decides the result.

    Rows are split evenly over the banks, and a bank's rows evenly over the widths, in order: each
    width has rows of its own, as the sign-offs count them. A select does not depend on the width
    (``auto`` chooses by it), so a width names its share of the rows.

    Attributes:
        banks: specs or directories.
        digests: of the banks.
        rows: of each bank.
        sample_every: one row in so many is checked by the reference in full, chosen by the seed.
        windows: by bank and width, the proven margin window; None where nothing is proven.
        code: digest of the package's sources; shards of other code are never taken over.
        device: ``cpu`` or ``cuda``.
        device_plan: the device and its proven bounds; None on the CPU, or without a device.
        declared: what the sides that are paths declare; None for selects.
    """

    banks: tuple[str, ...]
    digests: tuple[str, ...]
    rows: tuple[int, ...]
    baseline: str
    candidate: str
    widths: tuple[int, ...]
    seed: int
    policy: dict[str, Any]
    shard_rows: int
    sample_every: int
    windows: tuple[tuple[float | None, ...], ...]
    code: str
    device: str = "cpu"
    device_plan: DevicePlan | None = None
    declared: tuple[str | None, ...] = (None, None)

    @property
    def digest(self) -> str:
        """Sha256 hex of the plan: shards made under it may be taken over."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def sides(self) -> tuple[Side, Side]:
        """Baseline and candidate."""
        return (
            parse_side(self.baseline, "baseline", self.device),
            parse_side(self.candidate, "candidate", self.device),
        )

    def shards(self) -> list[Shard]:
        """Every shard in the order in which results are merged."""
        made: list[Shard] = []
        for bank, rows in enumerate(self.rows):
            cuts = [rows * n // len(self.widths) for n in range(len(self.widths) + 1)]
            for width, (first, last) in zip(self.widths, pairwise(cuts), strict=True):
                for start in range(first, last, self.shard_rows):
                    stop = min(start + self.shard_rows, last)
                    made.append(Shard(len(made), bank, width, start, stop))
        return made

    @staticmethod
    def from_json(text: str) -> GatePlan:
        """The plan of ``json.dumps(asdict(plan))``."""
        values = json.loads(text)
        for name in ("banks", "digests", "rows", "widths", "declared"):
            values[name] = tuple(values[name])
        values["windows"] = tuple(tuple(line) for line in values["windows"])
        if values["device_plan"] is not None:
            values["device_plan"] = DevicePlan(**values["device_plan"])
        return GatePlan(**values)


def make_plan(
    baseline: str,
    candidate: str,
    source: str | Sequence[str],
    *,
    rows: int | None,
    widths: Sequence[int],
    seed: int,
    policy: Policy,
    shard_rows: int | None = None,
    sample_every: int | None = None,
    device: str = "cpu",
    on_device: bool = False,
) -> tuple[GatePlan, list[Bank]]:
    """Return the plan and its opened banks; no row is run.

    With ``on_device`` the device is there: the forms' bounds are proven, if need be now.

    Raises:
        InputError: a source, select, width or count that is refused.
        EnvelopeError: a geometry or scoring rule that the device does not compute.
    """
    for width in widths:
        check_width(width, "widths")
    if not widths or len(set(widths)) != len(widths):
        raise InputError("widths", list(widths), "each width once, at least one", "gate")
    for what, value in (("rows", rows), ("shard_rows", shard_rows), ("sample_every", sample_every)):
        if value is not None and value < 1:
            raise InputError(what, value, "at least 1", "gate")
    sides = (
        parse_side(baseline, "baseline", device),
        parse_side(candidate, "candidate", device),
    )
    specs = _bank_specs([source] if isinstance(source, str) else list(source), rows, seed)
    banks = [open_bank(spec) for spec in specs]
    check_distinct(banks)
    for bank in banks:
        require_inputs(bank)
    shares = _shares(banks, rows)
    if sides[0].recorded is not None or sides[1].recorded is not None:
        widths = recorded_widths(banks, sides, widths)
        sample_every = sample_every or _sample_every(SAMPLE_EVERY_RECORDED, sum(shares))
    plan = GatePlan(
        banks=tuple(specs),
        digests=tuple(bank.digest for bank in banks),
        rows=shares,
        baseline=baseline,
        candidate=candidate,
        widths=tuple(widths),
        seed=seed,
        policy=effective_policy(policy, banks).model_dump(mode="json"),
        shard_rows=shard_rows or _shard_rows(sum(shares)),
        sample_every=sample_every or _sample_every(SAMPLE_EVERY, sum(shares)),
        windows=tuple(_windows(bank, sides, widths, device) for bank in banks),
        code=code_digest(),
        device=device,
        device_plan=make_device_plan(_device_forms(banks, sides, widths)) if on_device else None,
        declared=declared_of(sides),
    )
    return plan, banks


def with_rows(plan: GatePlan, rows: int) -> GatePlan:
    """Return the plan's figures for another number of rows, as its banks share theirs.

    To reckon with, not to run: the banks stay as they are, and may hold fewer rows.
    """
    total = sum(plan.rows)
    usual = SAMPLE_EVERY
    if plan.sides()[0].recorded is not None:
        usual = SAMPLE_EVERY_RECORDED
    return replace(
        plan,
        rows=tuple(rows * share // total for share in plan.rows),
        shard_rows=_shard_rows(rows),
        sample_every=_sample_every(usual, rows),
    )


def _bank_specs(sources: Sequence[str], rows: int | None, seed: int) -> list[str]:
    """One spec per bank; generators without rows or seed take the gate's."""
    expanded: list[str] = []
    for source in sources:
        if source in SHIPPED:
            expanded += [f"resample:bank={name}" for name in SHIPPED[source]]
        elif source.partition(":")[0] == "resample" and "bank=" not in source:
            options = source.partition(":")[2]
            tail = f",{options}" if options else ""
            expanded += [f"resample:bank={name}{tail}" for name in SHIPPED["k3-mini"]]
        elif source in SHIPPED_BANKS or source.partition(":")[0] in GENERATORS:
            expanded.append(source)
        else:
            expanded += _directories(source)
    if not expanded:
        raise InputError("source", "none", "at least one", "gate")
    total = DEFAULT_ROWS if rows is None else rows
    shares = _split(total, len(expanded))
    return [_completed(spec, n, seed) for spec, n in zip(expanded, shares, strict=True)]


def _directories(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir() and not (path / "bank.json").is_file():
        expand_banks([source])
        return [str(part) for part in sorted(path.iterdir()) if (part / "bank.json").is_file()]
    return [source]


def _completed(spec: str, rows: int, seed: int) -> str:
    name, _, options = spec.partition(":")
    if name not in GENERATORS or spec in SHIPPED_BANKS:
        return spec
    given = [part for part in options.split(",") if part]
    keys = {part.partition("=")[0] for part in given}
    given += [
        f"{key}={value}" for key, value in (("rows", rows), ("seed", seed)) if key not in keys
    ]
    return f"{name}:{','.join(given)}"


def _split(total: int, parts: int) -> list[int]:
    if total < parts:
        raise InputError("rows", total, f"at least {parts}, one a bank", "gate")
    return [total // parts + (n < total % parts) for n in range(parts)]


def _shares(banks: Sequence[Bank], rows: int | None) -> tuple[int, ...]:
    """Rows of each bank: its share, or all it has where that is less or no number was asked."""
    if rows is None:
        return tuple(bank.rows for bank in banks)
    shares = _split(rows, len(banks))
    return tuple(min(share, bank.rows) for share, bank in zip(shares, banks, strict=True))


def recorded_widths(
    banks: Sequence[Bank], sides: tuple[Side, Side], widths: Sequence[int]
) -> Sequence[int]:
    """Return the width that the outputs were recorded at; the given ones where it is unknown.

    Raises:
        InputError: a side is a select, or a bank lacks the outputs, their weights, or one width.
    """
    known: set[int] = set()
    for side in sides:
        if side.recorded is None:
            raise InputError("select", side.spec, "recorded, as the other side", "gate")
        for bank in banks:
            if side.recorded not in bank.recorded_widths:
                have = ", ".join(sorted(bank.recorded_widths)) or "none"
                raise InputError("recorded", side.recorded, f"one of {have}", bank.name)
            if bank.read_outputs(0, 1).recorded[side.recorded][1] is None:
                raise InputError("weights", "nothing", "recorded with the ids", bank.name)
            width = bank.recorded_widths[side.recorded]
            known |= set() if width is None else {width}
    if len(known) > 1:
        raise InputError("width", sorted(known), "one recorded width", "gate")
    return tuple(known) or tuple(widths)


def _shard_rows(rows: int) -> int:
    """``SHARD_ROWS``, or so many times that as keep to ``MOST_SHARDS`` in each bank and width."""
    return SHARD_ROWS * max(1, -(-rows // (SHARD_ROWS * MOST_SHARDS)))


def _sample_every(usual: int, rows: int) -> int:
    """The usual one row in so many, or fewer where they would pass ``MOST_SAMPLED``."""
    return max(usual, -(-rows // MOST_SAMPLED))


def _device_forms(
    banks: Sequence[Bank], sides: tuple[Side, Side], widths: Sequence[int]
) -> set[str]:
    """The forms that the sides run, each side checked against every bank's geometry."""
    return {
        device_select(*side.on_device(width), bank.geometry, bank.scoring).form
        for bank in banks
        for side in sides
        for width in widths
    }


def _windows(
    bank: Bank, sides: tuple[Side, Side], widths: Sequence[int], device: str
) -> tuple[float | None, ...]:
    """By width: the window of CPU selects; the device proves its rows by its own bounds."""
    if device != "cpu" or any(side.recorded is not None or side.runs for side in sides):
        return tuple(None for _ in widths)
    bias = front_weights(bank).bias
    rules = [(sides[0].rule(width), sides[1].rule(width)) for width in widths]
    return tuple(proven_window(a, b, bias, bank.scoring) for a, b in rules)
