"""The record of a gate: plain JSON values made from the plan and the merged counts alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from ...banks.bank import Bank
from ...kernels.registry import make_path
from ..compare import BASELINE, CANDIDATE
from ..counts import Histograms
from ..environment import environment
from ..metrics.margins import EXACT_STEPS, MarginTally, check_sample, predict
from ..metrics.rates import upper_bound
from ..metrics.swaps import SetClass
from ..observed import Observed
from ..policy import Policy, model_names
from ..record import verdict_record
from ..summary import Facts, summarise
from ..verdict import Verdict, judge
from .device_texts import device_record, form_words
from .histograms import read_pooled
from .outcomes import Merged
from .plan import GatePlan
from .shard import ShardResult
from .sides import Side

RECORD_VERSION: Final = 1
TIE_CLASSES: Final = (SetClass.EXACT_TIE, SetClass.GROUP_TIE, SetClass.NEAR_TIE)


@dataclass(frozen=True, eq=False)
class GateRecord:
    """What a gate found; every figure of every report comes from here.

    Attributes:
        record: the content of ``gate.json``, plain JSON values, the same bits for the same plan.
        swaps: certificates, one row per differing row (``swaps.parquet``).
        histograms: counts per bank and width (``histograms.parquet``).
        verdict: state, reasons and class.
        reused_shards: shards taken over from an earlier run; not part of the record.
        seconds: time of this run; not part of the record.
    """

    record: Mapping[str, Any]
    swaps: pa.Table
    histograms: pa.Table
    verdict: Verdict
    reused_shards: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the record as one strict JSON document."""
        return json.dumps(self.record, indent=1, allow_nan=False)


def gate_record(
    plan: GatePlan,
    banks: Sequence[Bank],
    merged: Merged,
    observed: Observed,
    verdict: Verdict,
    policy: Policy,
    sample: tuple[int, int] | None,
    device: str,
) -> dict[str, Any]:
    """Return the content of ``gate.json``."""
    whole = pooled(merged, lambda key: True)
    return {
        "record_version": RECORD_VERSION,
        "kind": "gate",
        "command": command(plan, sample, device),
        **verdict_record(verdict),
        **{role: _side(side, plan) for role, side in _sides(plan)},
        "ranks": 1,
        "device": device,
        "device_facts": device_record(plan, banks),
        "policy": policy.model_dump(mode="json"),
        "plan": {
            "digest": plan.digest,
            "seed": plan.seed,
            "shard_rows": plan.shard_rows,
            "shards": len(plan.shards()),
            "sample_every": plan.sample_every,
            "windows": [list(line) for line in plan.windows],
            "code": plan.code,
        },
        "pooled": figures(whole, policy),
        "sample": _sample(whole, sample, policy),
        "widths": [
            {
                **asdict(summary),
                "invalid": summary.counts["invalid"],
                **figures(pooled(merged, lambda key, w=summary.width: key[1] == w), policy),
            }
            for summary in observed.widths
        ],
        "banks": [
            {
                "name": bank.name,
                "spec": plan.banks[number],
                "digest": bank.digest,
                "rows": plan.rows[number],
                "stage": bank.stage,
                "geometry": asdict(bank.geometry),
                "models": list(model_names(bank)),
                "independence_unit": bank.independence_unit,
                **figures(pooled(merged, lambda key, n=number: key[0] == n), policy),
            }
            for number, bank in enumerate(banks)
        ],
        "findings": [asdict(finding) for finding in observed.findings],
        "coverage": [asdict(item) for item in observed.coverage],
        "limitations": list(observed.limitations),
        "environment": environment(),
    }


def gate_figures(
    histograms: Histograms,
    banks: Sequence[str],
    facts: Facts,
    policy: Policy,
    sample: tuple[int, int] | None,
    unanswered: Sequence[str] = (),
) -> tuple[Verdict, dict[str, Any]]:
    """Return the verdict, and the sections of ``gate.json`` that follow from the stored counts.

    Args:
        histograms: a gate's.
        banks: their names, in order.
        facts: what no table counts.
        policy: limits to judge by.
        sample: (events, rows) of a small sample.
        unanswered: what the counts cannot say under this policy.
    """
    observed = summarise(histograms, None, facts, policy, unanswered)
    verdict = judge(observed, policy)
    whole = read_pooled(histograms, banks, [None])
    return verdict, {
        **verdict_record(verdict),
        "pooled": figures(whole, policy),
        "sample": _sample(whole, sample, policy),
        "widths": [
            {
                **asdict(summary),
                "invalid": summary.counts["invalid"],
                **figures(read_pooled(histograms, banks, [summary.width]), policy),
            }
            for summary in observed.widths
        ],
        "banks": [figures(read_pooled(histograms, [bank], [None]), policy) for bank in banks],
    }


def pooled(merged: Merged, wanted: Any) -> ShardResult:
    """The results whose (bank, width) is wanted, merged; certificates are left out."""
    total = ShardResult()
    for key, result in merged.items():
        if wanted(key):
            total.merge(result)
    total.certificates = []
    return total


def figures(result: ShardResult, policy: Policy) -> dict[str, Any]:
    """Rates, swaps, weights, margins and prediction of some rows."""
    tally, margins = result.tally, result.margins
    differing, units = tally.events, tally.units
    near = margins.within(min(policy.window_ulp, EXACT_STEPS))
    swaps = {str(c): tally.counts[c] for c in SetClass if _is_swap(c) and tally.counts[c]}
    ties = sum(tally.counts[c] for c in TIE_CLASSES)
    return {
        "swaps": swaps,
        "violations": sum(swaps.values()) - ties,
        "observed": {
            "differing": differing,
            "units": units,
            "rate": differing / units if units else None,
            "upper": upper_bound(differing, units, policy.confidence),
        },
        "weight_ulp_histogram": {str(k): tally.weight_ulp[k] for k in sorted(tally.weight_ulp)},
        "worst_weight": asdict(tally.worst_weight) if tally.worst_weight else None,
        "weight_classes": dict(tally.weight_classes),
        "input_flags": dict(tally.input_flags),
        "near_tie_rows": near if margins.rows else None,
        "near_tie_rate": near / margins.rows if margins.rows else None,
        "swaps_per_near_tie_row": sum(swaps.values()) / near if near else None,
        "margins": _margins(margins),
        "prediction": asdict(predict(margins, differing, units)),
        "reference": {
            "sampled": result.sampled,
            "boundary": dict(result.boundary),
            **{role: dict(result.reference[role]) for role in (BASELINE, CANDIDATE)},
        },
        "plain_rows": result.plain_rows,
        "selected_twice": result.selected_twice,
        "certificates_left_out": result.left_out,
    }


def _is_swap(kind: SetClass) -> bool:
    return kind not in (SetClass.IDENTICAL, SetClass.REORDERED, SetClass.INVALID)


def _margins(margins: MarginTally) -> dict[str, Any]:
    exponents: Counter[str] = margins.exponents
    order = sorted(exponents, key=lambda e: -10_000 if e == "zero" else int(e))
    return {
        "rows": margins.rows,
        "undefined": margins.undefined,
        "steps": {str(k): margins.steps[k] for k in sorted(margins.steps)},
        "exponents": {key: exponents[key] for key in order},
        "shifts": margins.shifts,
        "beyond": margins.beyond,
    }


def _sample(
    whole: ShardResult, sample: tuple[int, int] | None, policy: Policy
) -> dict[str, Any] | None:
    if sample is None or not whole.tally.units:
        return None
    differing, units = whole.tally.events, whole.tally.units
    return asdict(check_sample(*sample, differing, units, policy.confidence))


def _sides(plan: GatePlan) -> Any:
    return zip((BASELINE, CANDIDATE), plan.sides(), strict=True)


def _side(side: Side, plan: GatePlan) -> dict[str, Any]:
    path = make_path(side.path)
    declared = asdict(path.declared)
    if plan.device != "cpu":
        declared |= {
            "score": form_words(side, plan.widths),
            "device": plan.device,
            "machine_dependent": True,
        }
    return {
        "name": path.name if plan.device == "cpu" else side.spec,
        "declared": declared,
        "outputs": ["ids", "weights"],
        "spec": side.spec,
    }


def command(plan: GatePlan, sample: tuple[int, int] | None, device: str) -> str:
    """The command that gives this record, without what cannot change it."""
    words = ["neartie gate", *(repr(b) if " " in b else b for b in plan.banks)]
    words += [f"--baseline {plan.baseline}", f"--candidate {plan.candidate}"]
    words += [f"--rows {sum(plan.rows)}", f"--widths {','.join(map(str, plan.widths))}"]
    words += [f"--seed {plan.seed}"]
    if sample is not None:
        words.append(f"--sample {sample[0]}/{sample[1]}")
    if device != "cpu":
        words.append(f"--device {device}")
    return " ".join(words)
