"""What a maintainer accepts: windows, limits, budgets, coverage."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from ..banks.errors import InputError
from ..banks.geometry import TieContract

Probability = Annotated[float, Field(gt=0.0, lt=1.0)]
# A distance in FP32 ULP: the whole line of FP32 values is twice as long.
Steps = Annotated[int, Field(ge=0, le=2**31)]


def _shown(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("printable text")
    return name


class Policy(BaseModel):
    """Limits that a verdict is judged by. Defaults are the figures of the design.

    A policy file is TOML with these names as keys; an unknown key is refused.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: Annotated[str, AfterValidator(_shown)] = "default"
    """Shown in the record beside the figures it produced."""
    window_ulp: Steps = 2
    """Widest gap of a near tie, in FP32 ULP of the reference's biased scores."""
    set_rate: Annotated[Probability, Field(ge=1e-12)] = 5e-5
    """Largest rate of rows whose selected set differs."""
    confidence: Probability = 0.95
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
    """Whether subnormal results may be flushed to zero."""


def load_policy(path: str | Path | None) -> Policy:
    """Read a policy file; None gives the defaults.

    Raises:
        InputError: the file cannot be read, is no TOML, or has a key or value that is refused.
    """
    if path is None:
        return Policy()
    where = str(path)
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("policy", where, "a readable file", error.strerror or "open") from error
    # TOML and UTF-8 errors are ValueErrors, and so is a number of too many digits.
    except (ValueError, RecursionError) as error:
        raise InputError("policy", where, "a TOML file", str(error)) from error
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(field, first.get("input"), _expected(first), where) from error


def _expected(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return f"a known key: {', '.join(Policy.model_fields)}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return message[:1].lower() + message[1:]
