"""Has a record the sections that its checks read, in the form that they take?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ...banks.errors import InputError
from .load import Evidence
from .problems import Code, Problem
from .rejudge import recorded_facts, recorded_policy


class _Shape(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Path(_Shape):
    name: str
    declared: dict[str, Any]
    outputs: list[str]


class _Bank(_Shape):
    name: str
    spec: str
    digest: str
    rows: int
    stage: str
    geometry: dict[str, Any]
    models: list[str] = []
    independence_unit: str


class _Sample(_Shape):
    events: int
    trials: int


class _Named(_Shape):
    name: str


class _Group(_Shape):
    first: int
    widths: list[int]


class _StartedGate(_Shape):
    banks: list[_Named]
    groups: list[_Group]


class _Record(_Shape):
    record_version: int
    command: str
    device: str
    ranks: int
    baseline: _Path
    candidate: _Path
    banks: list[_Bank]
    environment: dict[str, str | int | bool | None]


class _Audit(_Record):
    gate: _StartedGate | None


class _Gate(_Record):
    plan: dict[str, Any]
    sample: _Sample | None


def check_shape(evidence: Evidence) -> Iterator[Problem]:
    """What cannot be checked further, because a section is missing or of another form."""
    model = _Gate if evidence.kind == "gate" else _Audit
    file = f"{evidence.kind}.json"
    try:
        model.model_validate_json(json.dumps(evidence.record))
        recorded_policy(evidence.record, file)
        recorded_facts(evidence.record, file)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        text = "not there" if first["type"] == "missing" else first["msg"]
        yield Problem(Code.UNREADABLE, f"{file}: {field}", text)
    except InputError as error:
        yield Problem(Code.UNREADABLE, file, str(error))
