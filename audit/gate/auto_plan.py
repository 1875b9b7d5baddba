"""What gate an audit needs: the selects of its paths, rows like those of its banks, how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scipy.stats import binom

from ...banks.bank import NO_UNIT, Bank
from ...banks.errors import BankError, InputError
from ...banks.generate import GeneratedBank
from ...banks.open import open_bank
from ...banks.resample import ResampledBank
from ...kernels.contract import Path
from ...kernels.options import parse_spec
from ...kernels.paths import FrontPath
from ..metrics.rates import rows_needed
from .plan import DEFAULT_ROWS
from .sides import Side

NEW_ROWS: Final = 1 << 20
"""Added to the seed of a generated bank, so that no row of the gate is one of the audit's own."""
ASSUMED_SHARE: Final = 0.1
"""A rate of at least this share of the limit is planned for, however small the predicted one."""
# Generators whose rows are samples of a law, and the one that draws that law for the gate.
_SAME_LAW: Final = {"gaussian": "normal", "normal": "normal", "resample": "resample"}
_NOT_CARRIED: Final = ("rows", "seed", "stage")


def gate_side(path: Path, role: str, widths: Sequence[int]) -> tuple[str | None, str]:
    """Return the gate's side that selects as the path does at these widths, or None and why.

    ``general:select=X,...`` gives the select X with its options, ``route[:fused_rows=N]`` gives
    ``auto``; ``auto`` with a select's options gives the one select that all the widths take.
    """
    if type(path) is not FrontPath:
        why = "is no built-in path whose select the gate of an audit runs"
        return None, f"the {role} {path.name} {why} (neartie gate takes it as a side)"
    kind, options = parse_spec(path.name)
    if "router_weight" in options:
        return None, f"the {role} {path.name} uses another router weight than resampled rows"
    name = options.get("select", "topk_sigmoid" if kind == "general" else "auto")
    changes = {key: value for key, value in options.items() if key in _SELECT_OPTIONS}
    if name == "auto":
        most = int(options.get("fused_rows", "8"))
        if not changes:
            return ("auto" if most == 8 else f"auto:fused_rows={most}"), ""
        if min(widths) <= most < max(widths):
            return None, f"the {role} {path.name} takes two selects with options at these widths"
        name = "fused" if max(widths) <= most else "standalone"
    shown = ",".join(f"{key}={value}" for key, value in changes.items())
    return (f"{name}:{shown}" if shown else name), ""


_SELECT_OPTIONS: Final = ("logits", "bias", "sum", "score", "normalise")


def gate_source(bank: Bank) -> tuple[str | None, str]:
    """Return the spec of more rows like a bank's, without their number; or None and why."""
    if bank.independence_unit == NO_UNIT:
        return None, f"{bank.name} was chosen or made to provoke something: it bounds no rate"
    if isinstance(bank, GeneratedBank | ResampledBank):
        name, _, options = bank.spec.partition(":")
        if name not in _SAME_LAW:
            return None, f"{bank.name} is of no law that the gate draws from"
        return _more_rows(_SAME_LAW[name], options), ""
    if bank.stage != "hidden" or bank.rows < 2:
        return None, f"{bank.name} has no hidden rows that could be mixed"
    if not _opens_again(bank):
        return None, f"{bank.name} is no bank that its name or directory opens again"
    return f"resample:bank={bank.spec}", ""


def _more_rows(generator: str, options: str) -> str:
    given = [part.partition("=")[::2] for part in options.split(",") if part]
    seed = next((int(value) for key, value in given if key == "seed"), 0)
    kept = [f"{key}={value}" for key, value in given if key not in _NOT_CARRIED]
    return f"{generator}:{','.join([*kept, f'seed={seed + NEW_ROWS}'])}"


def _opens_again(bank: Bank) -> bool:
    """Whether the bank's spec opens the same inputs inside a generator's spec."""
    try:
        return "," not in bank.spec and open_bank(bank.spec).digest == bank.digest
    except (BankError, InputError):
        return False


def width_groups(sides: tuple[Side, Side], widths: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return widths by the first of them at which both selects are the same arithmetic.

    A select does not depend on the width, so the rows of one width stand for all of its group, as
    the audit's own rows do. Holm's procedure holds however its hypotheses depend on each other.
    """
    groups: dict[object, list[int]] = {}
    for width in widths:
        groups.setdefault((sides[0].rule(width), sides[1].rule(width)), []).append(width)
    return {members[0]: tuple(members) for members in groups.values()}


@dataclass(frozen=True, slots=True)
class RowsPlanned:
    """How many rows a width gets, and from what.

    Attributes:
        rows: of one width.
        assumed_rate: the rate that is planned for.
        spare_events: differing rows of the gate that the limit bears; no more are seen with the
            policy's confidence if the assumed rate is right.
        seen_events: differing rows of the banks' own, which the limit bears besides.
        capped: whether the rule asks for more rows than a gate runs.
    """

    rows: int
    assumed_rate: float
    spare_events: int
    seen_events: int
    capped: bool


def rows_planned(
    limit: float, confidence: float, widths: int, predicted: float | None, seen: int = 0
) -> RowsPlanned:
    """Return the rows of one width that certify ``limit`` by Holm over ``widths`` widths.

    The least n with n >= rows_needed(limit, 1 - (1 - confidence) / widths, k + seen), where k is
    the ``confidence`` quantile of the differing rows among n at the assumed rate (the predicted
    one, but at least a tenth of the limit), and ``seen`` rows of the audit's own differ. Where the
    assumed rate reaches the limit, no number of rows would certify it: k = 0, enough rows to show
    what differs. At most ``DEFAULT_ROWS``.
    """
    assumed = max(limit * ASSUMED_SHARE, predicted or 0.0)
    held = 1 - (1 - confidence) / widths
    rows, spare = rows_needed(limit, held, seen), 0
    while assumed < limit and rows < DEFAULT_ROWS:
        more = int(binom.ppf(confidence, rows, assumed))
        if more <= spare:
            break
        spare, rows = more, rows_needed(limit, held, more + seen)
    return RowsPlanned(min(rows, DEFAULT_ROWS), assumed, spare, seen, rows > DEFAULT_ROWS)
