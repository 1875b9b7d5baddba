"""The format of case files as pydantic models; ``tests/data/router_cases.md`` has it in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
)

from ...banks.errors import InputError
from ..small_file import read_small

LeadingAxis = Literal["row", "rank", "step"]

_NAMED_NUMBERS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_ACCUMULATIONS = {
    **dict.fromkeys(("fp32", "float32", "f32"), "fp32"),
    **dict.fromkeys(("fp64", "float64", "f64"), "fp64"),
    **dict.fromkeys(("fp16", "float16", "f16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
}
_TYPE_NAME = re.compile(r"\[|-|^int$|^float$|^str$")
_MAX_ID = 2**63 - 1


def _number(value: object) -> object:
    if isinstance(value, str):
        if value not in _NAMED_NUMBERS:
            raise ValueError('a number, "NaN", "Infinity" or "-Infinity"')
        return _NAMED_NUMBERS[value]
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


def _accumulation(value: object) -> object:
    if not isinstance(value, str) or value not in _ACCUMULATIONS:
        raise ValueError("one of " + ", ".join(_ACCUMULATIONS))
    return _ACCUMULATIONS[value]


Number = Annotated[float, BeforeValidator(_number)]
Id = Annotated[StrictInt, Field(ge=-(2**63), le=_MAX_ID)]
Physical = Annotated[StrictInt, Field(ge=0)]
Count = Annotated[StrictInt, Field(ge=1)]
Accumulation = Annotated[Literal["fp32", "fp64", "fp16", "bf16"], BeforeValidator(_accumulation)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ScoringModel(_Part):
    """``scoring`` of a case."""

    function: Literal["sigmoid", "softmax", "identity", "sqrtsoftplus", "reduction"]
    renormalize: StrictBool = True
    epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    groups: Count | None = None
    top_groups: Count | None = None
    acc: Accumulation | None = None


class PathModel(_Part):
    """``a`` or ``b`` of a case."""

    label: str = ""
    ids: list[Id] | list[list[Id]] | None = None
    weights: Number | list[Number] | list[list[Number]] | None = None


class CaseModel(_Part):
    """One case, its fields typed and not yet held against each other."""

    id: str
    scoring: ScoringModel
    logits: list[Number] | list[list[Number]]
    a: PathModel
    b: PathModel
    leading_axis: LeadingAxis = "row"
    bias: list[Number] | None = None
    bias_b: list[Number] | None = None
    top_k: Count | None = None
    n_shared: Annotated[StrictInt, Field(ge=0)] = 0
    ranks: Count | None = None
    shards: list[list[list[Number]]] | None = None
    buffer: list[Number] | None = None
    stride: Count | None = None
    poison: Number | None = None
    map: list[Physical | list[Physical]] | dict[str, Physical | list[Physical]] | None = None
    pad_to: Count | None = None
    capacity: Count | None = None
    acc: Accumulation | None = None
    expected: dict[str, Any] = Field(default_factory=dict)


def read_cases(cases: Path | str | Mapping[str, Any] | Sequence[Any]) -> list[CaseModel]:
    """Return the cases of a file, of JSON text, or of what ``json.load`` returned.

    Args:
        cases: a path; JSON text (first character ``[`` or ``{``); a case; or a list of cases.

    Raises:
        InputError: not a file, not JSON, an empty list, or a case that breaks the format; it names
            the case and the field.
    """
    where = "cases"
    if isinstance(cases, Path) or (
        isinstance(cases, str) and not cases.lstrip().startswith(("[", "{"))
    ):
        where = str(cases)
        cases = _read(Path(cases))
    found: object = parse_cases(cases, where) if isinstance(cases, str) else cases
    found = [found] if isinstance(found, Mapping) else found
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise InputError("cases", _short(found), "a case or a list of at least one", where)
    return [_case(item, position) for position, item in enumerate(found)]


def parse_cases(text: str, where: str) -> Mapping[str, Any] | Sequence[Any]:
    """Return the object or list of JSON text, which is never taken for a file's name.

    Raises:
        InputError: nothing, no JSON, or another JSON value.
    """
    if not text.strip():
        raise InputError("cases", "", "JSON, a case or a list of cases", where)
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("content", f"not JSON ({error})", "a JSON list", where) from None
    if not isinstance(found, dict | list):
        raise InputError("cases", _short(found), "a case or a list of at least one", where)
    return found


def _read(path: Path) -> str:
    try:
        return read_small(path, "file", "readable")
    except UnicodeDecodeError:
        raise InputError("content", "bytes that are not UTF-8", "JSON text", str(path)) from None


def _case(item: object, position: int) -> CaseModel:
    if not isinstance(item, Mapping):
        raise InputError("case", _short(item), "an object", f"case {position}")
    name = item.get("id")
    where = f"case {name if isinstance(name, str) else position}"
    try:
        return CaseModel.model_validate(dict(item))
    except ValidationError as error:
        raise _input_error(error, where) from None


def _input_error(error: ValidationError, where: str) -> InputError:
    # A union reports one error per branch; the one that got deepest into the value tells most.
    first = max(error.errors(), key=lambda detail: len(detail["loc"]))
    # Parts of a path that name a type rather than a field.
    field = ".".join(str(part) for part in first["loc"] if not _TYPE_NAME.search(str(part)))
    message = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    message = "an object" if first["type"].startswith("model_") else message
    if first["type"] == "missing":
        return InputError(field, "missing", "present", where)
    return InputError(field, _short(first["input"]), message, where)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_keys(model: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a case that the format does not have, as ``scoring.rounding``."""
    for key in model.model_extra or {}:
        if prefix or key not in ("topic", "source", "note"):
            yield prefix + key
    for key, value in model:
        if isinstance(value, _Part):
            yield from unknown_keys(value, f"{prefix}{key}.")
