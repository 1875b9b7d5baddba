"""The limits that a verdict is judged by, each with its unit and its shipped figure."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ...banks.geometry import TieContract

Probability = Annotated[float, Field(gt=0.0, lt=1.0)]
# A distance in FP32 ULP: the whole line of FP32 values is twice as long.
Steps = Annotated[int, Field(ge=0, le=2**31)]
SignedClass = Literal["BITWISE", "REORDER", "LIGHT", "VISIBLE"]
"""The classes that can be signed, the strictest first; BEHAVIOURAL and UNKNOWN never can."""
SIGNED_CLASSES: Final[tuple[SignedClass, ...]] = ("BITWISE", "REORDER", "LIGHT", "VISIBLE")


def shown(name: str) -> str:
    """Refuse a text that a terminal would not show."""
    if not name.strip() or not name.isprintable():
        raise ValueError("printable text")
    return name


Shown = Annotated[str, AfterValidator(shown)]


class StrictModel(BaseModel):
    """Frozen, no unknown keys, no conversions, finite numbers."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def once_each(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a list with a value twice."""
    if len(set(values)) != len(values):
        raise ValueError("each value once")
    return values


class Limits(StrictModel):
    """Limits that may differ from model to model; the defaults are the figures of the design."""

    window_ulp: Steps = 2
    """Widest gap of a near tie, in FP32 ULP of the reference's biased scores."""
    set_rate: Annotated[Probability, Field(ge=1e-12)] = 5e-5
    """Largest rate of rows whose selected set differs."""
    # Within these ends 1 - confidence, and its share of each width, are no 0 and no 1 in FP64.
    confidence: Annotated[Probability, Field(ge=1e-12, le=1.0 - 1e-12)] = 0.95
    """Confidence of the one-sided bound that must lie under ``set_rate``."""
    weight_budget_ulp: Steps = 8
    """Largest difference of one expert's weight, in FP32 ULP, on rows with equal sets."""
    tie_contract: TieContract = "unspecified"
    """``lower_id``: an exact tie must go to the lower id, so every exact-tie swap fails."""
    one_for_one: bool = True
    """Only 1-for-1 swaps may be ties; a group of tied experts swapped m-for-m fails."""
    noise_abs: float = Field(default=0.0, ge=0.0)
    """Declared absolute perturbation of the biased scores; a gap within it is a noise swap."""
    flush_to_zero: bool = False
    """Whether subnormal results may be flushed to zero: they then count as zero, and it is said."""
    allowed_classes: Annotated[
        tuple[SignedClass, ...], Field(strict=False, min_length=1), AfterValidator(once_each)
    ] = SIGNED_CLASSES
    """Numerics classes that may be signed; another class fails (``class_not_allowed``)."""
    independence_unit: Shown | None = None
    """Unit that a bank must declare for its rows to bound a rate, such as ``row`` or ``doc``;
    left out, every unit that a bank declares counts."""


LIMITS: Final = tuple(Limits.model_fields)
