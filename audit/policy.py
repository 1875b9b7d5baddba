"""What a maintainer accepts: windows, limits, budgets, coverage."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..banks.errors import InputError
from ..banks.geometry import TieContract

Probability = Annotated[float, Field(gt=0.0, lt=1.0)]


class Policy(BaseModel):
    """Limits that a verdict is judged by. Defaults are the figures of the design.

    A policy file is TOML with these names as keys; an unknown key is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = "default"
    """Shown in the record beside the figures it produced."""
    window_ulp: int = Field(default=2, ge=0)
    """Widest gap of a near tie, in FP32 ULP of the reference's biased scores."""
    set_rate: Probability = 5e-5
    """Largest rate of rows whose selected set differs."""
    confidence: Probability = 0.95
    """Confidence of the one-sided bound that must lie under ``set_rate``."""
    weight_budget_ulp: int = Field(default=8, ge=0)
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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("policy", where, "a TOML file", str(error)) from error
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(field, first.get("input"), first["msg"].lower(), where) from error
