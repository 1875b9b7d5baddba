"""What a claims file holds: the sentences of a sign-off, and the check that answers each."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from ...banks.geometry import MAX_WIDTH
from ..metrics.swaps import SET_CLASSES
from ..policy.limits import Shown, StrictModel, once_each

Kind = Literal["audit", "gate", "any", "live", "none"]
Relation = Literal["<=", "<", ">=", ">", "==", "within", "is", "count"]
Tensor = Literal["latent", "logits", "weights"]
PairName = Literal["candidate_reference", "baseline_reference", "candidate_baseline"]
# A width that no launch is prepared for may be claimed to be refused.
Width = Annotated[int, Field(ge=1, le=2 * MAX_WIDTH)]
PARAMETERS: Final = ("tensor", "pair", "set_class", "path")
"""What a metric may ask for besides the evidence."""


def _finite(value: object) -> object:
    """TOML numbers as they are read: whole ones, and others as decimals with their digits."""
    if type(value) is int or (isinstance(value, Decimal) and value.is_finite()):
        return value
    raise ValueError("a finite number")


def _finite_or_word(value: object) -> object:
    if isinstance(value, str) and value.isprintable() and value.strip():
        return value
    try:
        return _finite(value)
    except ValueError:
        raise ValueError("a finite number or a word") from None


def _size(value: object) -> object:
    number = _finite(value)
    if isinstance(number, int | Decimal) and number < 0:
        raise ValueError("at least 0")
    return number


Size = Annotated[int | Decimal, PlainValidator(_size)]


def _known_class(name: str) -> str:
    if name not in SET_CLASSES:
        raise ValueError(f"one of {', '.join(SET_CLASSES)}")
    return name


def _short_name(name: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) is None:
        raise ValueError("lower-case letters, digits and hyphens, such as gate-rows")
    return name


class Tolerance(StrictModel):
    """How far a figure may be from the claimed number, and why that far."""

    relative: Size | None = None
    """A share of the number."""
    absolute: Size | None = None
    """In the metric's units."""
    meaning: Shown
    """Where the tolerance comes from."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Tolerance:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("either relative or absolute")
        return self


class Scope(StrictModel):
    """Which evidence may answer a claim; what is left out is open."""

    geometry: Shown | None = None
    """Name of the geometry that every bank of the evidence has."""
    baseline: Shown | None = None
    """Name of the baseline path without its options."""
    candidate: Shown | None = None
    """Name of the candidate path without its options."""
    options: dict[str, str] = Field(default_factory=dict)
    """Options that the candidate has, such as ``transport = "pull"``."""
    device: Literal["cpu", "cuda"] | None = None
    """Device that the paths ran on."""
    ranks: Annotated[int, Field(ge=1)] | None = None
    """Tensor-parallel ranks."""
    widths: Annotated[
        tuple[Width, ...], Field(strict=False, min_length=1), AfterValidator(once_each)
    ] = ()
    """Rows per launch that must all have been run; left out: every width of the evidence."""


class Needs(StrictModel):
    """How much evidence it takes to support a claim; less can still refute it."""

    banks: Annotated[int, Field(ge=1)] = 1
    """Banks in one evidence."""
    rows: Annotated[int, Field(ge=0)] = 0
    """Distinct rows: at each width of an audit, which runs all rows at every width; over the
    widths of a gate, which has rows of its own for each."""


class Claim(StrictModel):
    """One statement, and what would make it false."""

    id: Annotated[str, AfterValidator(_short_name)]
    """Short name, unique in the file."""
    text: Shown
    """The statement, as the sign-off words it."""
    source: Shown
    """Where it is stated."""
    kind: Kind
    """Evidence that answers it: ``audit``, ``gate``, ``any`` of the two, ``live`` (tried here and
    now), or ``none`` (nothing that neartie runs measures it)."""
    metric: str | None = None
    """Name of the figure; ``neartie claims metrics`` lists them."""
    tensor: Tensor | None = None
    """For metrics of values."""
    pair: PairName | None = None
    """For metrics of values: which two are apart."""
    set_class: Annotated[str, AfterValidator(_known_class)] | None = None
    """For metrics that count one class of set difference."""
    path: Shown | None = None
    """For live metrics: the path that is tried."""
    relation: Relation | None = None
    """How the figure must stand to ``number``. ``within``: no further than the tolerance. ``is``:
    the same word. ``count``: an exact test does not tell the two shares apart."""
    number: Annotated[int | Decimal | str, PlainValidator(_finite_or_word)] | None = None
    """The claimed figure, with the digits that the source quotes."""
    of_rows: Annotated[int, Field(ge=1)] | None = None
    """For ``count``: the independent rows that ``number`` was counted among."""
    tolerance: Tolerance | None = None
    """For ``within``; left out, half a unit of the last digit of ``number``."""
    scope: Scope = Scope()
    """Which evidence may answer."""
    needs: Needs = Needs()
    """How much evidence supports it."""
    reason: Shown | None = None
    """For kind ``none``: why nothing here measures it."""
    needed: Shown | None = None
    """What to run for an answer."""
    note: Shown | None = None
    """What a reader should know beside the answer."""

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if self.kind == "none":
            wanted, refused = {"reason", "needed"}, {"metric", "relation", "number", "tolerance"}
        else:
            wanted, refused = {"metric", "relation", "number"}, {"reason"}
        for name in sorted(wanted - given):
            raise ValueError(f"claim {self.id} with {name}: kind {self.kind} needs it")
        for name in sorted(refused & given):
            raise ValueError(f"claim {self.id} without {name}: kind {self.kind} takes none")
        self._check_relation()
        return self

    def _check_relation(self) -> None:
        words = isinstance(self.number, str)
        if self.relation is not None and words != (self.relation == "is"):
            expected = "a word" if self.relation == "is" else "a number"
            raise ValueError(f"claim {self.id} with number = {expected}: relation {self.relation}")
        if (self.relation == "count") != (self.of_rows is not None):
            raise ValueError(f"claim {self.id} with of_rows and relation = 'count' together")
        whole = isinstance(self.number, int) and 0 <= self.number <= (self.of_rows or 0)
        if self.relation == "count" and not whole:
            raise ValueError(f"claim {self.id} with number a count out of of_rows")
        if self.tolerance is not None and self.relation != "within":
            raise ValueError(f"claim {self.id} without tolerance: relation {self.relation}")


class ClaimsFile(StrictModel):
    """A claims file."""

    name: Shown
    """Shown above the answers."""
    claim: Annotated[tuple[Claim, ...], Field(strict=False, min_length=1)]
    """The claims, in the order of the source."""

    @model_validator(mode="after")
    def _ids_once(self) -> ClaimsFile:
        ids = [claim.id for claim in self.claim]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"each id once, and {twice} is there twice")
        return self
