"""Judge stored evidence again, from its tables alone: by the recorded policy or by another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
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
from ..record import AuditRecord
from ..record_figures import bank_figures, judge_tables
from ..summary import Facts
from .load import Evidence
from .other_limits import under
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
            whose limits differ, or the policy asks for rows that are not kept.
    """
    where = evidence.name
    recorded = recorded_policy(evidence.record, where)
    facts = recorded_facts(evidence.record, where)
    stored = Stored(
        _table(evidence, "swaps"),
        _table(evidence, "histograms"),
        _table(evidence, "values") if evidence.kind == "audit" else None,
        tuple(finding.name for finding in facts.findings),
    )
    wanted, unnamed = (recorded, []) if policy is None else _of_banks(policy, evidence.record)
    found, unanswered = under(stored, recorded, wanted, where)
    unanswered = [*unnamed, *unanswered]
    if evidence.kind == "audit":
        return _audit(evidence.record, found, facts, wanted, unanswered)
    return _gate(evidence.record, found, facts, wanted, unanswered)


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
    record: Mapping[str, Any], stored: Stored, facts: Facts, policy: Policy, unanswered: list[str]
) -> AuditRecord:
    assert stored.values is not None
    histograms = Histograms(stored.histograms)
    controls = recorded_controls(record["banks"])
    verdict, figures = judge_tables(
        histograms, stored.values, facts, policy, record["gate"], unanswered, controls
    )
    banks = [
        {
            **bank,
            **bank_figures(histograms, stored.values, bank["name"], facts.widths, controls),
        }
        for bank in record["banks"]
    ]
    limits = policy.model_dump(mode="json")
    again = {**record, **figures, "policy": limits, "banks": banks}
    if limits != record["policy"]:
        # Claims were answered under the recorded policy.
        again.pop("claims", None)
    return AuditRecord(again, stored.swaps, stored.values, stored.histograms, verdict)


def _gate(
    record: Mapping[str, Any], stored: Stored, facts: Facts, policy: Policy, unanswered: list[str]
) -> GateResult:
    histograms = Histograms(stored.histograms)
    sample = record["sample"]
    verdict, figures = gate_figures(
        histograms,
        [bank["name"] for bank in record["banks"]],
        facts,
        policy,
        None if sample is None else (sample["events"], sample["trials"]),
        unanswered,
    )
    own = figures.pop("banks")
    banks = [{**bank, **found} for bank, found in zip(record["banks"], own, strict=True)]
    again = {**record, **figures, "policy": policy.model_dump(mode="json"), "banks": banks}
    return GateResult(again, stored.swaps, stored.histograms, verdict)


def _table(evidence: Evidence, name: str) -> pa.Table:
    if name not in evidence.tables:
        raise InputError("file", f"no {name}.parquet", "all tables", evidence.name)
    return evidence.tables[name]
