"""Figures of many audits in order of their dates, against the limits they are judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ...banks.errors import InputError
from ..metrics.rates import holm
from ..metrics.trend import Trend, trend, varies
from .identity import manifest_digest
from .load import Evidence
from .manifest import MANIFEST_FILE
from .view import RecordView, TriangleView, WidthView, record_view

DRIFT_CONFIDENCE: Final = 0.95
"""Of a drift note, over all series of one history together; as the default policy's."""


@dataclass(frozen=True, slots=True)
class Run:
    """One audit of a history.

    Attributes:
        directory, digest: of the evidence.
        date: UTC, from its manifest.
        verdict, numerics_class: as its record says.
        alike: whether it ran the same rows, paths and windows as the newest one. Only such figures
            can be compared; a trend starts after the last run that is not.
    """

    directory: str
    digest: str
    date: str
    verdict: str
    numerics_class: str
    alike: bool


@dataclass(frozen=True)
class Series:
    """One figure over the runs, oldest first.

    Attributes:
        metric: what it is; larger is worse.
        width: rows per launch; None for a figure of the whole audit.
        values: one per run; None where a run has no such figure.
        limits: what the policy, or the declared schedule, allows; None where nothing does.
        trend: of the last figures of runs that are alike.
        drifts: whether its p-value holds by Holm over all series.
    """

    metric: str
    width: int | None
    values: Sequence[float | None]
    limits: Sequence[float | None]
    trend: Trend
    drifts: bool

    @property
    def used(self) -> float | None:
        """The newest figure as a share of its limit."""
        value, limit = self.values[-1], self.limits[-1]
        return None if value is None or not limit else value / limit


@dataclass(frozen=True)
class History:
    """Runs in order, and every figure over them; ``kind`` is audit or gate."""

    kind: str
    runs: Sequence[Run]
    series: Sequence[Series]
    compared: int
    """Runs at the end that are alike."""
    tested: int
    """Series that vary over them, which a drift is looked for in."""

    @property
    def fewest_runs(self) -> int:
        """Runs that a drift needs at least: of n runs, one order in n! rises all the way."""
        runs, alpha = 3, (1 - DRIFT_CONFIDENCE) / max(1, self.tested)
        while 1 / math.factorial(runs) > alpha:
            runs += 1
        return runs

    def as_dict(self) -> dict[str, Any]:
        """Return the history as JSON values."""
        document = asdict(self)
        for entry, series in zip(document["series"], self.series, strict=True):
            entry["used"] = series.used
        return document


class Figure(NamedTuple):
    """A figure over the runs before its trend is known; fields as in ``Series``."""

    metric: str
    width: int | None
    values: list[float | None]
    limits: list[float | None]


_OfWidth = Callable[[RecordView, WidthView], float | None]
# Name, figure and limit of what each width has.
_WIDTH_FIGURES: Final[Sequence[tuple[str, _OfWidth, _OfWidth]]] = (
    ("set rate, at most", lambda r, w: w.set_rate_upper, lambda r, w: r.limits.set_rate),
    ("near-tie swaps", lambda r, w: w.counts.get("near_tie", 0), lambda r, w: None),
    (
        "largest weight ULP",
        lambda r, w: w.max_weight_ulp,
        lambda r, w: r.limits.weight_budget_ulp,
    ),
)
_SIDES: Final = ("candidate_reference", "baseline_reference", "candidate_baseline")


def evidence_history(runs: Sequence[Evidence]) -> History:
    """Put the figures of audits, or of gates, in the order of their manifests' dates.

    Runs of one date stay in the order given. A series drifts where the Mann-Kendall test finds
    growth over the runs at the end that are alike, one-sided, with Holm's correction over the
    series that vary, at ``DRIFT_CONFIDENCE``. A series that does not vary has p = 1 in every order
    and could never be noted, so it is no test that must be corrected for (R. E. Tarone, "A modified
    Bonferroni method for discrete data", Biometrics 46, 1990).

    Raises:
        InputError: no run, audits and gates together, one run twice, a manifest without a date, or
            a record that cannot be read.
    """
    ordered = _ordered(runs)
    views = [record_view(evidence) for evidence in ordered]
    alike = [_alike(view) == _alike(views[-1]) for view in views]
    compared = next((n for n, same in enumerate(reversed(alike)) if not same), len(alike))
    figures = [figure for figure in _figures(views) if _known(figure.values)]
    trends = [trend(_known(figure.values[-compared:])) for figure in figures]
    tested = [varies(_known(figure.values[-compared:])) for figure in figures]
    return History(
        ordered[0].kind,
        [_run(*run) for run in zip(ordered, views, alike, strict=True)],
        [
            Series(*figure, found, drifts)
            for figure, found, drifts in zip(figures, trends, _drifts(trends, tested), strict=True)
        ],
        compared,
        sum(tested),
    )


def _ordered(runs: Sequence[Evidence]) -> list[Evidence]:
    """The runs by date; refused where they are no one history."""
    if not runs:
        raise InputError("DIR", "none", "at least one evidence directory", "history")
    kinds = sorted({evidence.kind for evidence in runs})
    if len(kinds) > 1:
        raise InputError("kind", " and ".join(kinds), "runs of one kind", "history")
    seen = set()
    for evidence in runs:
        digest = manifest_digest(evidence)
        if digest in seen:
            got = f"{evidence.name}, given twice"
            raise InputError("evidence", got, "each run once", "history")
        seen.add(digest)
    return sorted(runs, key=_date)


def _run(evidence: Evidence, view: RecordView, alike: bool) -> Run:
    return Run(
        evidence.name,
        manifest_digest(evidence),
        _date(evidence).isoformat(),
        str(view.verdict.state),
        view.class_text,
        alike,
    )


def _date(evidence: Evidence) -> datetime:
    text = evidence.manifest.get("date")
    try:
        date = datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        where = f"{evidence.name}/{MANIFEST_FILE}"
        raise InputError("date", text, "a date of ISO 8601", where) from None
    return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)


def _alike(view: RecordView) -> tuple[object, ...]:
    """What must be equal for two figures to be of one series."""
    limits = view.limits
    return (
        sorted((bank.digest, bank.rows) for bank in view.banks),
        view.record_version,
        view.baseline.name,
        view.candidate.name,
        view.ranks,
        view.device,
        limits.window_ulp,
        limits.noise_abs,
        limits.confidence,
    )


def _figures(views: Sequence[RecordView]) -> Iterator[Figure]:
    """Every figure, with its limits; one that no run has comes too."""
    fits = [view.schedule for view in views]
    yield Figure(
        "distance from schedule",
        None,
        [fit.distance if fit else None for fit in fits],
        [fit.tolerance if fit else None for fit in fits],
    )
    for width in sorted({w.width for view in views for w in view.widths}):
        found = [next((w for w in view.widths if w.width == width), None) for view in views]
        for metric, figure, limit in _WIDTH_FIGURES:
            values = [_of(figure, *pair) for pair in zip(views, found, strict=True)]
            limits = [_of(limit, *pair) for pair in zip(views, found, strict=True)]
            yield Figure(metric, width, values, limits)
        for tensor in dict.fromkeys(t for w in found if w for t in w.triangle):
            triangles = [w.triangle.get(tensor) if w else None for w in found]
            for side in _SIDES:
                values = [_side(triangle, side) for triangle in triangles]
                name = f"{tensor} {side.replace('_', '-')} RMS"
                yield Figure(name, width, values, [None] * len(views))


def _of(figure: _OfWidth, record: RecordView, width: WidthView | None) -> float | None:
    return None if width is None else figure(record, width)


def _side(triangle: TriangleView | None, side: str) -> float | None:
    return None if triangle is None else getattr(triangle, side)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _drifts(trends: Sequence[Trend], tested: Sequence[bool]) -> list[bool]:
    """Whether each trend holds by Holm; those that were not tested do not count among the tests."""
    p_values = {n: t.p_value for n, t in enumerate(trends) if tested[n] and t.p_value is not None}
    held = holm(list(p_values.values()), 1 - DRIFT_CONFIDENCE) if p_values else []
    growing = {n for n, rejected in zip(p_values, held, strict=True) if rejected}
    return [n in growing for n in range(len(trends))]
