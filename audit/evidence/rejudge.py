"""Judge stored evidence again, from its tables alone: by the recorded policy or by another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from ...banks.errors import InputError
from ..closer import recorded_controls
from ..counts import Histograms
from ..gate.record import gate_figures
from ..gate.result import GateResult
from ..observed import BatchFinding, Conditions, Coverage, NotCompared, ScheduleFit
from ..policy import Policy, policy_of_models
from ..record import AuditRecord, verdict_record
from ..record_figures import bank_figures, judge_tables
from ..summary import Facts
from ..verdict import NOT_KEPT, NumericsClass, State, Verdict
from .load import Evidence
from .other_limits import OtherLimits, under
from .reclassify import Stored


@dataclass(frozen=True)
class _StoredFacts:
    """The sections of a record that ``Facts`` are read from; a gate has no values to judge."""

    coverage: list[Coverage]
    findings: list[BatchFinding]
    limitations: list[str]
    schedule: ScheduleFit | None = None
    not_compared: tuple[NotCompared, ...] = ()


_FACTS: TypeAdapter[_StoredFacts] = TypeAdapter(_StoredFacts)
_FACT_NAMES = ("coverage", "findings", "limitations", "schedule", "not_compared")


def recorded_policy(record: Mapping[str, Any], where: str) -> Policy:
    """Return the policy that a record was judged by.

    Raises:
        InputError: the record has none that could be.
    """
    try:
        return Policy.model_validate(record.get("policy"))
    except ValidationError as error:
        raise _unreadable(error, "policy", where) from error


def recorded_facts(record: Mapping[str, Any], where: str) -> Facts:
    """Return what a record tells beside its tables.

    Raises:
        InputError: a section is missing or of another form.
    """
    sections = {name: record[name] for name in _FACT_NAMES if name in record}
    try:
        found = _FACTS.validate_json(json.dumps(sections), strict=True)
    except ValidationError as error:
        raise _unreadable(error, "record", where) from error
    conditions = None
    if record.get("kind") != "gate":
        conditions = Conditions(record["ranks"], record["device"])
    return Facts(
        found.coverage,
        found.findings,
        found.schedule,
        found.limitations,
        found.not_compared,
        conditions,
    )


def _unreadable(error: ValidationError, what: str, where: str) -> InputError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or what
    return InputError(
        field, first.get("input"), first["msg"].removeprefix("Input should be "), where
    )


def rejudge(evidence: Evidence, policy: Policy | None = None) -> AuditRecord | GateResult:
    """Return the record that the tables give under a policy; what no table holds stays as it is.

    With the recorded policy it is the recorded one, figure by figure. With another one, its limits
    for the banks' model hold, as in an audit; swaps get the class that their gaps have there, and
    what the tables cannot answer is a reason INCONCLUSIVE.

    Args:
        evidence: what ``load_evidence`` read.
        policy: as its file holds it, overrides and all; None takes the recorded one.

    Raises:
        InputError: a part of the record cannot be read, a table is missing, the banks are of models
            whose limits differ, or differing rows have no certificate.
    """
    where = evidence.name
    recorded = recorded_policy(evidence.record, where)
    facts = recorded_facts(evidence.record, where)
    stored = Stored(
        _table(evidence, "swaps"),
        _table(evidence, "histograms"),
        _table(evidence, "values") if evidence.kind == "audit" else None,
        tuple(facts.findings),
    )
    wanted, unnamed = (recorded, []) if policy is None else _of_banks(policy, evidence.record)
    found = under(stored, recorded, wanted, where)
    if unnamed:
        # Other limits than these may be the bank's: they say nothing for certain.
        found = replace(found, unanswered=[*unnamed, *found.unanswered], undecided=True)
    facts = replace(facts, findings=found.stored.findings)
    judged = _audit if evidence.kind == "audit" else _gate
    return judged(_record_under(evidence.record, found), found, facts, wanted)


def _record_under(record: Mapping[str, Any], found: OtherLimits) -> Mapping[str, Any]:
    """The record without the findings that may not hold, and what explained the failing rows."""
    if not found.other_rows:
        return record
    findings = [asdict(finding) for finding in found.stored.findings]
    explained: dict[str, Any] = {"explanations": []} if "explanations" in record else {}
    return {**record, "findings": findings, **explained}


def _of_banks(policy: Policy, record: Mapping[str, Any]) -> tuple[Policy, list[str]]:
    """The policy with the overrides of the recorded banks' models, and what is not known of those.

    Older evidence names no models: a bank's may be called by its geometry or otherwise.
    """
    banks, unnamed = [], []
    for bank in record["banks"]:
        geometry = bank["geometry"]["name"]
        banks.append((bank["name"], bank.get("models", [geometry])))
        others = sorted(set(policy.model) - {geometry})
        if "models" not in bank and others:
            unnamed.append(
                f"the record does not name the model of {bank['name']}, and the policy's limits "
                f"for {', '.join(others)} may be meant for it: a new audit is needed to tell"
            )
    return policy_of_models(policy, banks), unnamed


def _audit(
    record: Mapping[str, Any], found: OtherLimits, facts: Facts, policy: Policy
) -> AuditRecord:
    stored = found.stored
    assert stored.values is not None
    histograms = Histograms(stored.histograms)
    controls = recorded_controls(record["banks"])
    verdict, figures = judge_tables(
        histograms, stored.values, facts, policy, record["gate"], found.unanswered, controls
    )
    verdict = _told(verdict, found)
    banks = [
        {
            **bank,
            **bank_figures(histograms, stored.values, bank["name"], facts.widths, controls),
        }
        for bank in record["banks"]
    ]
    limits = policy.model_dump(mode="json")
    again = {**record, **figures, **verdict_record(verdict), "policy": limits, "banks": banks}
    if limits != record["policy"]:
        # Claims were answered under the recorded policy.
        again.pop("claims", None)
    return AuditRecord(again, stored.swaps, stored.values, stored.histograms, verdict)


def _gate(
    record: Mapping[str, Any], found: OtherLimits, facts: Facts, policy: Policy
) -> GateResult:
    histograms = Histograms(found.stored.histograms)
    sample = record["sample"]
    verdict, figures = gate_figures(
        histograms,
        [bank["name"] for bank in record["banks"]],
        facts,
        policy,
        None if sample is None else (sample["events"], sample["trials"]),
        found.unanswered,
    )
    verdict = _told(verdict, found)
    own = figures.pop("banks")
    banks = [{**bank, **mine} for bank, mine in zip(record["banks"], own, strict=True)]
    limits = policy.model_dump(mode="json")
    again = {**record, **figures, **verdict_record(verdict), "policy": limits, "banks": banks}
    return GateResult(again, found.stored.swaps, found.stored.histograms, verdict)


def _told(verdict: Verdict, found: OtherLimits) -> Verdict:
    """The verdict; where not even a failure can be told, the open questions alone."""
    if not found.undecided:
        return verdict
    reasons = tuple(reason for reason in verdict.reasons if reason.code == NOT_KEPT)
    unknown = NumericsClass.UNKNOWN
    return Verdict(State.INCONCLUSIVE, reasons, unknown, unknown, None)


def _table(evidence: Evidence, name: str) -> pa.Table:
    if name not in evidence.tables:
        raise InputError("file", f"no {name}.parquet", "all tables", evidence.name)
    return evidence.tables[name]
