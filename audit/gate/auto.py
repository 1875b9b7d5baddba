"""The gate that an audit starts by itself, where its banks are too few rows to bound a set rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ...banks.bank import Bank
from ..bank_outcome import BankOutcome
from ..counts import Histograms
from ..engine.contract import Engine
from ..engine.local import LocalEngine
from ..histograms import Line, histograms_table, logits_agree
from ..metrics.margins import predict
from ..metrics.rates import rows_needed
from ..observed import Observed
from ..pairing import Pairing
from ..policy import Policy
from ..summary import facts_of, summarise
from ..verdict import State, judge
from .auto_plan import RowsPlanned, gate_side, gate_source, rows_planned, width_groups
from .histograms import source_lines
from .outcomes import Merged, checked_text, gate_outcomes, left_out_text
from .plan import GatePlan, make_plan
from .record import pooled
from .run import run_plan
from .sides import parse_side
from .workers import Progress

PILOT_ROWS: Final = 4096
"""Rows whose margins and shifts predict a rate; they are not counted in the gate."""
ONE_PROCESS: Final = LocalEngine()
TURNED_OFF: Final = "it was turned off"
_LOGITS: Final = "the paths' logits differ or were not compared"


@dataclass(frozen=True, eq=False)
class AutoGate:
    """What the gate adds to an audit.

    Attributes:
        outcomes: one per source; none where no gate was run.
        lines: its counts beyond those of every bank, for ``histograms.parquet``.
        record: the audit's ``gate`` object without the figures that follow from counts, JSON
            values; None where no gate was run.
        reason: why no gate was run; None where one was.
        limitations: what a signature must disclose of the gate.
    """

    outcomes: Sequence[BankOutcome] = ()
    lines: Sequence[Line] = ()
    record: dict[str, Any] | None = None
    reason: str | None = None
    limitations: Sequence[str] = ()


@dataclass(frozen=True)
class _Need:
    """The gate that is to be run.

    Attributes:
        sides: selects of baseline and candidate.
        groups: widths by the first of them that one share of the rows stands for.
        sources: specs of rows like the banks'.
        skipped: (width, why) of widths that it leaves out.
        unlike: (bank, why) of banks that it has no rows like.
    """

    sides: tuple[str, str]
    groups: Mapping[int, tuple[int, ...]]
    sources: tuple[str, ...]
    skipped: tuple[tuple[int, str], ...]
    unlike: tuple[tuple[str, str], ...]

    @property
    def widths(self) -> list[int]:
        """Every width that the gate bounds, ascending."""
        return sorted(width for members in self.groups.values() for width in members)


def auto_gate(
    banks: Sequence[Bank],
    outcomes: Sequence[BankOutcome],
    pairing: Pairing,
    *,
    engine: Engine = ONE_PROCESS,
    work: str | Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> AutoGate:
    """Run the gate that bounds the set rate of widths whose own rows are too few; or say why not.

    Args:
        banks: the audit's.
        outcomes: of those banks.
        pairing: the audit's paths.
        engine: where the shards are run.
        work: keeps finished shards; None keeps nothing.
        seed: of the generated rows.
        progress: told of rows that are done.

    Raises:
        InputError: ``work`` cannot be written, or the engine is not there.
        WorkerError: a worker process failed.
    """
    histograms = Histograms(histograms_table(outcomes))
    observed = summarise(histograms, None, facts_of(outcomes, ()), pairing.policy)
    need = _need(banks, outcomes, pairing, observed)
    if isinstance(need, str):
        return AutoGate(reason=need)
    predicted, policy = _pilot(need, pairing.policy, seed), pairing.policy
    seen = max(w.differing_units for w in observed.widths if w.width in need.widths)
    many = rows_planned(policy.set_rate, policy.confidence, len(observed.widths), predicted, seen)
    plan, sources = _plan(need, many.rows, seed, policy)
    ran = run_plan(plan, engine, work, progress)
    found = gate_outcomes(
        plan, sources, ran.merged, alike=need.groups, banks_before=len(banks), not_run=ran.not_run
    )
    return AutoGate(
        outcomes=found,
        lines=source_lines([bank.name for bank in sources], ran.merged),
        record=_told(plan, sources, need, many),
        limitations=_limitations(plan, ran.merged, banks, need),
    )


def _need(
    banks: Sequence[Bank], outcomes: Sequence[BankOutcome], pairing: Pairing, observed: Observed
) -> _Need | str:
    """The gate that the audit needs, or why there is none."""
    verdict = judge(observed, pairing.policy)
    if verdict.state in (State.FAIL, State.NOT_RUN):
        codes = ", ".join(
            dict.fromkeys(r.code for r in verdict.reasons if r.state is verdict.state)
        )
        return f"the verdict is {verdict.state} without it: {codes}"
    short = [w.width for w in observed.widths if not w.certified]
    if not short:
        return "the banks' own rows bound the set rate of every width"
    widths = tuple(width for width in short if logits_agree(outcomes, width))
    if not widths:
        return f"{_LOGITS}: selects alone bound no rate"
    skipped = tuple((width, _LOGITS) for width in short if width not in widths)
    return _need_at(widths, skipped, banks, pairing)


def _need_at(
    widths: tuple[int, ...],
    skipped: tuple[tuple[int, str], ...],
    banks: Sequence[Bank],
    pairing: Pairing,
) -> _Need | str:
    """The gate of some widths, or why paths or banks have none."""
    (a, why_a), (b, why_b) = (
        gate_side(pairing.baseline, "baseline", widths),
        gate_side(pairing.candidate, "candidate", widths),
    )
    if a is None or b is None:
        return why_a or why_b
    sources = [(bank.name, *gate_source(bank)) for bank in banks]
    known = tuple(dict.fromkeys(source for _, source, _ in sources if source is not None))
    unlike = tuple((name, why) for name, source, why in sources if source is None)
    if not known:
        return f"no bank bounds a rate: {'; '.join(why for _, why in unlike)}"
    return _Need(
        sides=(a, b),
        groups=width_groups((parse_side(a, "baseline"), parse_side(b, "candidate")), widths),
        sources=known,
        skipped=skipped,
        unlike=unlike,
    )


def planned_gate(
    banks: Sequence[Bank], pairing: Pairing, seed: int = 0
) -> tuple[GatePlan, list[Bank]] | str:
    """Return the gate of an audit none of whose rows differs, before any is run; or why none is."""
    policy, widths = pairing.policy, pairing.widths
    many = rows_planned(policy.set_rate, policy.confidence, len(widths), None)
    own = sum(bank.rows for bank in banks if bank.independence_unit == "row")
    if own >= rows_needed(policy.set_rate, 1 - (1 - policy.confidence) / len(widths), 0):
        return "the banks' own rows bound the set rate of every width"
    need = _need_at(widths, (), banks, pairing)
    return need if isinstance(need, str) else _plan(need, many.rows, seed, policy)


def _plan(need: _Need, rows: int, seed: int, policy: Policy) -> tuple[GatePlan, list[Bank]]:
    """A plan with so many rows for each group of widths, whole rows for each source."""
    groups, sources = len(need.groups), len(need.sources)
    # The same number from each source for each width, so that no width falls short by a rounding.
    total = -(-rows // sources) * sources * groups
    return make_plan(
        *need.sides, need.sources, rows=total, widths=tuple(need.groups), seed=seed, policy=policy
    )


def _pilot(need: _Need, policy: Policy, seed: int) -> float | None:
    """The largest predicted rate of a group of widths, two standard errors up; None if unknown."""
    plan, _ = _plan(need, max(PILOT_ROWS, len(need.sources)), seed + 1, policy)
    ran = run_plan(plan, ONE_PROCESS)
    rates = []
    for width in plan.widths:
        margins = pooled(ran.merged, lambda key, w=width: key[1] == w).margins
        found = predict(margins, 0, margins.rows)
        if found.rate is not None and margins.below:
            rates.append(found.rate * (1 + 2 / margins.below**0.5))
    return max(rates, default=None)


def _told(
    plan: GatePlan, sources: Sequence[Bank], need: _Need, many: RowsPlanned
) -> dict[str, Any]:
    """What the audit's ``gate`` object says beside the figures that follow from its counts."""
    return {
        "plan": plan.digest,
        "seed": plan.seed,
        "baseline": plan.baseline,
        "candidate": plan.candidate,
        "rows": sum(plan.rows),
        "rows_planned": asdict(many),
        "sources": list(plan.banks),
        "banks": [
            {
                "name": bank.name,
                "spec": plan.banks[number],
                "digest": bank.digest,
                "rows": plan.rows[number],
                "margin_density": bank.provenance.get("margin_density"),
            }
            for number, bank in enumerate(sources)
        ],
        "groups": [{"first": first, "widths": list(ws)} for first, ws in need.groups.items()],
        "skipped": [{"width": width, "reason": why} for width, why in need.skipped],
        "without": [{"bank": name, "reason": why} for name, why in need.unlike],
    }


def _limitations(plan: GatePlan, merged: Merged, banks: Sequence[Bank], need: _Need) -> list[str]:
    own, more = sum(bank.rows for bank in banks), sum(plan.rows)
    mixed = sum(
        rows
        for spec, rows in zip(plan.banks, plan.rows, strict=True)
        if spec.startswith("resample:")
    )
    kinds = [
        f"{count:,} {words}"
        for count, words in ((mixed, "mixtures of recorded rows"), (more - mixed, "generated"))
        if count
    ]
    texts = [
        f"the set rate is bounded by the {own:,} rows of the banks and {more:,} rows of the gate "
        f"({', '.join(kinds)}), which run the selects alone"
    ]
    checked = checked_text(merged)
    texts += [f"on the gate's rows, {checked}"] if checked else []
    left = left_out_text(merged)
    texts += [left] if left else []
    texts += [f"no row of the gate is like those of {name}: {why}" for name, why in need.unlike]
    return texts
