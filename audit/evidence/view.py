"""What signing, comparing and history read of ``audit.json`` and ``gate.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...banks.errors import InputError
from ..verdict import NumericsClass, State
from .load import Evidence

# JSON has no enums: their names are read as text.
StateName = Annotated[State, Field(strict=False)]
ClassName = Annotated[NumericsClass, Field(strict=False)]


class _View(BaseModel):
    """Fields of the record by their own names; what is not named here is not looked at."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class ReasonView(_View):
    """One reason of the verdict; ``width`` and ``bank`` say what it is about, None: all."""

    state: StateName
    code: str
    text: str
    width: int | None = None
    bank: str | None = None


class VerdictView(_View):
    """State and reasons."""

    state: StateName
    reasons: Sequence[ReasonView]


class PathView(_View):
    """A path, by name."""

    name: str


class CoverageView(_View):
    """Whether one (bank, width) was run."""

    bank: str
    width: int
    ran: bool
    reason: str


class BankView(_View):
    """A bank, identified by its digest."""

    name: str
    digest: str
    rows: int
    independence_unit: str


class FindingView(_View):
    """A finding about a batch."""

    name: str
    path: str
    bank: str
    width: int
    text: str
    fails: bool


class ScheduleView(_View):
    """The fit of the latent triangle; gates have none."""

    declared: str
    distance: float | None
    tolerance: float | None
    fits: bool | None
    nearest: str | None


class PooledView(_View):
    """Counts of a gate over all its rows; audits have none."""

    certificates_left_out: int


class TriangleView(_View):
    """Relative RMS of one tensor at one width."""

    candidate_reference: float | None
    baseline_reference: float | None
    candidate_baseline: float | None


class WidthView(_View):
    """Counts of one width over row x rank; ``units`` are the independent samples."""

    width: int
    rows: int
    units: int
    differing_units: int
    counts: Mapping[str, int]
    set_rate: float | None
    set_rate_upper: float
    confidence: float
    certified: bool
    max_weight_ulp: int | None
    triangle: Mapping[str, TriangleView] = {}


class LimitsView(_View):
    """The limits of the policy that figures are compared with."""

    window_ulp: int
    set_rate: float
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)]
    weight_budget_ulp: int
    noise_abs: float


class RecordView(_View):
    """The fields that are compared between two audits, or two gates, and signed."""

    record_version: int
    verdict: VerdictView
    numerics_class: ClassName
    provisional_class: ClassName
    structural_tag: str | None
    command: str
    baseline: PathView
    candidate: PathView
    ranks: int
    device: str
    policy: Mapping[str, Any]
    widths: Sequence[WidthView]
    coverage: Sequence[CoverageView]
    banks: Sequence[BankView]
    findings: Sequence[FindingView]
    environment: Mapping[str, Any]
    schedule: ScheduleView | None = None
    pooled: PooledView | None = None

    @property
    def limits(self) -> LimitsView:
        """The policy's limits; ``record_view`` has checked that they can be read."""
        return LimitsView.model_validate(self.policy)

    @property
    def class_text(self) -> str:
        """The class as it is signed, such as ``LIGHT, BF16-structural``."""
        # A tag belongs to LIGHT: under UNKNOWN it tells of rows that were not enough.
        tagged = self.numerics_class is NumericsClass.LIGHT and self.structural_tag
        return f"{self.numerics_class}, {self.structural_tag}" if tagged else self.numerics_class


def record_view(evidence: Evidence) -> RecordView:
    """Read the record of an evidence directory.

    Raises:
        InputError: a field is missing or of another type; the message names it.
    """
    try:
        view = RecordView.model_validate(evidence.record)
        LimitsView.model_validate(view.policy)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "record"
        where = f"{evidence.name}/{evidence.kind}.json"
        got = "nothing" if first["type"] == "missing" else repr(first["input"])[:60]
        raise InputError(field, got, first["msg"].lower(), where) from error
    return view
