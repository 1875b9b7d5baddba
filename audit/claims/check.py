"""Answer claims from evidence: supported, refuted, or unsupported with what is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ..evidence.load import Evidence
from ..number_words import number_of
from .measure import LiveMetric, Measure, Metric
from .metrics import metric_of, query_of
from .model import Claim, ClaimsFile
from .relation import expected_text, holds
from .scope import lacking, out_of_scope, scope_text


class Answer(StrEnum):
    """What the evidence says of a claim."""

    SUPPORTED = "SUPPORTED"
    REFUTED = "REFUTED"
    UNSUPPORTED = "UNSUPPORTED"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure; ``holds`` is None where it decides nothing."""

    evidence: str
    where: str
    value: float | int | str | None
    holds: bool | None
    note: str


@dataclass(frozen=True)
class Answered:
    """A claim with its answer.

    Attributes:
        id, text, source: of the claim.
        answer: SUPPORTED where it holds in all evidence in scope and one of it is enough; REFUTED
            where a figure in scope is against it; UNSUPPORTED otherwise.
        code: why it is unsupported: ``not_measured``, ``not_run``, ``not_enough`` or
            ``other_rows``; empty for the other answers.
        reason: one sentence.
        expected: what the figure should be.
        figures: what was measured.
        needed: what to run for an answer; empty where there is one.
        note: what a reader should know beside it.
    """

    id: str
    text: str
    source: str
    answer: Answer
    code: str
    reason: str
    expected: str
    figures: tuple[Figure, ...]
    needed: str
    note: str


@dataclass(frozen=True)
class ClaimsResult:
    """All answers of a claims file."""

    name: str
    answers: tuple[Answered, ...]
    evidence: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 a claim is refuted, 3 one is unsupported, 0 all are supported."""
        seen = {one.answer for one in self.answers}
        if Answer.REFUTED in seen:
            return 1
        return 3 if Answer.UNSUPPORTED in seen else 0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        counts = {str(a): sum(one.answer is a for one in self.answers) for a in Answer}
        answers = [asdict(one) | {"answer": str(one.answer)} for one in self.answers]
        return {
            "name": self.name,
            "evidence": list(self.evidence),
            "counts": counts,
            "claims": answers,
        }


def check_claims(claims: ClaimsFile, evidence: Sequence[Evidence]) -> ClaimsResult:
    """Return the answer to each claim.

    Raises:
        InputError: a metric is unknown, or does not take what its claim asks.
    """
    answers = tuple(check_claim(claim, evidence, claims.name) for claim in claims.claim)
    return ClaimsResult(claims.name, answers, tuple(one.name for one in evidence))


def check_claim(claim: Claim, evidence: Sequence[Evidence], where: str) -> Answered:
    """Return the answer to one claim."""
    if claim.kind == "none":
        return _unsupported(claim, "not_measured", str(claim.reason), "", ())
    metric = metric_of(claim, where)
    expected = expected_text(claim, metric.units)
    if isinstance(metric, LiveMetric):
        figures = tuple(_figures(claim, "tried here", metric.measure(query_of(claim))))
        return _answered(claim, expected, figures, [])
    return _from_evidence(claim, metric, expected, evidence)


def _from_evidence(
    claim: Claim, metric: Metric, expected: str, evidence: Sequence[Evidence]
) -> Answered:
    of_kind = [e for e in evidence if claim.kind in ("any", e.kind)]
    inside = [e for e in of_kind if out_of_scope(claim.scope, e) is None]
    if not inside:
        kind = "evidence" if claim.kind == "any" else claim.kind
        others = sorted({str(out_of_scope(claim.scope, e)) for e in of_kind})
        missing = ", ".join(others) or scope_text(claim.scope)
        reason = f"no {kind} in scope ({missing})"
        return _unsupported(claim, "not_run", reason, expected, ())
    figures: list[Figure] = []
    lacks: list[str] = []
    enough = False
    for one in inside:
        name = one.name
        mine = list(_figures(claim, name, metric.measure(one, query_of(claim))))
        lack = list(lacking(claim, one))
        lack += [f"{f.where}: {f.note}" for f in mine if f.value is None]
        figures += mine
        lacks += [f"{name}: {text}" for text in lack]
        enough |= not lack
    return _answered(claim, expected, tuple(figures), [] if enough else lacks)


def _figures(claim: Claim, name: str, measures: Sequence[Measure]) -> Iterator[Figure]:
    for measure in measures:
        held, test = holds(claim, measure)
        note = "; ".join(dict.fromkeys(text for text in (measure.note, test) if text))
        yield Figure(name, measure.where, measure.value, held, note)


def _answered(
    claim: Claim, expected: str, figures: tuple[Figure, ...], lacks: Sequence[str]
) -> Answered:
    against = [figure for figure in figures if figure.holds is False]
    if against:
        reason = f"{len(against)} of {number_of(len(figures), 'figure')} against it"
        return _as(claim, Answer.REFUTED, "", reason, expected, figures, "")
    if lacks:
        return _unsupported(claim, "not_enough", "; ".join(lacks), expected, figures)
    open_ones = [f for f in figures if f.holds is None and f.value is not None]
    if open_ones:
        reason = f"{open_ones[0].value:,} {open_ones[0].note}"
        return _unsupported(claim, "other_rows", reason, expected, figures)
    if not any(figure.holds for figure in figures):
        return _unsupported(claim, "not_enough", "no figure was measured", expected, figures)
    decided = sum(figure.holds is True for figure in figures)
    reason = f"{decided} of {number_of(len(figures), 'figure')} as claimed"
    return _as(claim, Answer.SUPPORTED, "", reason, expected, figures, "")


def _unsupported(
    claim: Claim, code: str, reason: str, expected: str, figures: tuple[Figure, ...]
) -> Answered:
    needed = claim.needed or f"{claim.kind} evidence: {scope_text(claim.scope)}{_amount(claim)}"
    return _as(claim, Answer.UNSUPPORTED, code, reason, expected, figures, needed)


def _amount(claim: Claim) -> str:
    widths = ", ".join(map(str, claim.scope.widths))
    several = "s" if len(claim.scope.widths) > 1 else ""
    parts = [f"; width{several} {widths}"] if widths else []
    parts += [f"; {number_of(claim.needs.banks, 'bank')}"] if claim.needs.banks > 1 else []
    parts += [f"; {number_of(claim.needs.rows, 'row')}"] if claim.needs.rows else []
    return "".join(parts)


def _as(
    claim: Claim,
    answer: Answer,
    code: str,
    reason: str,
    expected: str,
    figures: tuple[Figure, ...],
    needed: str,
) -> Answered:
    return Answered(
        claim.id, claim.text, claim.source, answer, code, reason, expected, figures, needed,
        claim.note or "",
    )  # fmt: skip
