"""What a maintainer accepts: limits, where each was measured, required coverage, overrides."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_validator,
)

from ...banks.geometry import MAX_WIDTH
from .limits import LIMITS, Limits, Shown, StrictModel, once_each


def _iso_date(value: object) -> object:
    """TOML has dates of its own; the record keeps them as text."""
    return value.isoformat() if type(value) is datetime.date else value


def _is_date(text: str) -> str:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError("a date, such as 2026-01-31") from None
    return text


class Provenance(StrictModel):
    """Where a limit comes from: whoever doubts it can measure it again."""

    measured_at: Shown
    """What was run to get the figure, or who set it."""
    device: Shown | None = None
    """What it was run on."""
    date: Annotated[str, BeforeValidator(_iso_date), AfterValidator(_is_date)] | None = None
    """Day of the measurement, such as ``2026-01-31``."""
    source: Shown | None = None
    """Document, commit or link that holds it."""


class RequiredCoverage(StrictModel):
    """What an audit must have run; what is missing makes it INCONCLUSIVE.

    A gate runs one select on one rank and is no audit: it says that it does not judge this.
    """

    banks: Annotated[tuple[Shown, ...], Field(strict=False), AfterValidator(once_each)] = ()
    """Banks by the names that reports show; a shipped group (``k3-mini``) stands for each of its
    banks. Empty: the banks that the audit was given."""
    widths: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MAX_WIDTH)], ...],
        Field(strict=False),
        AfterValidator(once_each),
    ] = ()
    """Rows per launch. Empty: the widths that the audit was given."""
    ranks: Annotated[int, Field(ge=1)] | None = None
    """Tensor-parallel ranks."""
    device: Literal["cpu", "cuda"] | None = None
    """Device that the paths run on."""


def _limit(name: str) -> str:
    if name not in LIMITS:
        raise ValueError(f"a limit: {', '.join(LIMITS)}")
    return name


ProvenanceTable = dict[Annotated[str, AfterValidator(_limit)], Provenance]


class ModelLimits(Limits):
    """The limits that are another for one model; what is left out is the policy's own."""

    provenance: ProvenanceTable = Field(default_factory=dict)
    """By limit, where this model's figure comes from."""


_SIGN_OFF: Final = "the near-tie gate that the sign-off of rows 9..20 states"
_OF_SIGN_OFF: Final = {"source": "the sign-off, as the claims file route-9-20 quotes it"}
SHIPPED_PROVENANCE: Final[Mapping[str, Mapping[str, str]]] = {
    "window_ulp": {
        "measured_at": f"{_SIGN_OFF}: every set difference within 2 FP32 ULP",
        **_OF_SIGN_OFF,
    },
    "set_rate": {
        "measured_at": f"{_SIGN_OFF}: set rate at most 5e-5 over 3.2M rows",
        **_OF_SIGN_OFF,
    },
    "confidence": {"measured_at": "a convention, no measurement; the exact one-sided bound"},
    "weight_budget_ulp": {
        "measured_at": "two exact select forms, exp against tanh, reach 7 FP32 ULP over "
        "640,000 N(0, 1) rows with each of seeds 0 to 4 and 7 to 8 in the design's own runs",
        "device": "CPU arithmetic",
        "date": "2026-11-30",
        "source": "neartie gate --baseline topk_sigmoid --candidate fused --rows 640k --seed N",
    },
    "tie_contract": {
        "measured_at": "a choice, no measurement: no rule for ties is demanded unless declared"
    },
    "one_for_one": {
        "measured_at": f"{_SIGN_OFF}: every set difference is a 1-for-1 swap",
        **_OF_SIGN_OFF,
    },
    "noise_abs": {"measured_at": "a choice, no measurement: no perturbation is declared"},
    "flush_to_zero": {"measured_at": "a choice, no measurement: flushing is not declared"},
    "allowed_classes": {"measured_at": "a choice, no measurement: every class that can be signed"},
    "independence_unit": {
        "measured_at": "a choice, no measurement: what each bank declares counts"
    },
}
"""Where the shipped figures come from; a limit that a file sets has the file's provenance."""


class Policy(Limits):
    """Limits that a verdict is judged by.

    A policy file is TOML with these names as keys; an unknown key is refused.
    """

    name: Shown = "default"
    """Shown in the record beside the figures it produced."""
    coverage: RequiredCoverage = RequiredCoverage()
    """What an audit must have run."""
    provenance: ProvenanceTable = Field(default_factory=dict)
    """By limit, where its figure comes from."""
    model: dict[Shown, ModelLimits] = Field(default_factory=dict)
    """By model, the limits that are another there. A bank is of a model by its geometry's name or
    by its provenance's (the text before a colon). One audit has one set of limits: banks whose
    models ask for different ones are refused."""

    @model_validator(mode="before")
    @classmethod
    def _with_shipped_provenance(cls, data: Any) -> Any:
        """A limit that is left out is the shipped one, and so is where it comes from."""
        if not isinstance(data, dict):
            return data
        given = data.get("provenance", {})
        if not isinstance(given, dict):
            return data
        shipped = {
            name: dict(origin)
            for name, origin in SHIPPED_PROVENANCE.items()
            if name not in data and name not in given
        }
        return {**data, "provenance": {**shipped, **given}}

    @field_serializer("model", mode="wrap")
    def _only_what_is_set(
        self, model: dict[str, ModelLimits], handler: SerializerFunctionWrapHandler
    ) -> Any:
        """An override is the limits that it sets; a default must not become one by a round trip."""
        whole = handler(model)
        return {
            name: {key: whole[name][key] for key in whole[name] if key in limits.model_fields_set}
            for name, limits in model.items()
        }
