"""What ``record`` and ``mark`` are told, checked before a row is recorded.

Whatever would be refused where the banks are made must be refused here: at the end of a recording
its rows are lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import TypeAdapter, ValidationError

from ..bank import KEYS, NO_UNIT
from ..errors import InputError, check_name
from ..schema import WEIGHTS, Name, PathName, ProvenanceModel
from .spec import TENSORS, GateSpec

ROW: Final = "row"
_WHERE: Final = "record"
_TAKEN: Final = frozenset(
    (*KEYS, NO_UNIT, *TENSORS, *WEIGHTS, "latent", "latent_partials", "latent_shards",
     "logits_shards", "logits_recorded", "hidden_recorded", "latent_down_weight_recorded")
)  # fmt: skip
"""Names of columns that a bank of a recording may have without a mark."""


def check_types(**given: tuple[Any, tuple[type, ...], str]) -> None:
    """Refuse options of a wrong type: by name the value, the types that it may have, their words.

    A boolean is no number here.

    Raises:
        InputError: the first that is of none.
    """
    for name, (value, types, expected) in given.items():
        number = int in types and bool not in types and isinstance(value, bool)
        if number or not isinstance(value, types):
            raise InputError(name, f"{type(value).__name__} {value!r:.60}", expected, _WHERE)


def check_target_name(out: str | Path) -> Path:
    """Return the directory of a recording.

    Raises:
        InputError: no path, or one without a name that another directory can take, such as ``.``.
    """
    check_types(out=(out, (str, Path), "the path of a directory"))
    target = Path(out)
    if target.name in ("", "..") or "\0" in str(target):
        raise InputError("out", repr(str(out)), "a directory called by its own name", _WHERE)
    return target


def check_names(name: str, path: str, unit: str) -> None:
    """Refuse what no bank may be called, no path, and no unit.

    Raises:
        InputError: a name of a wrong type or form.
    """
    check_types(
        name=(name, (str,), "text"), path=(path, (str,), "text"), unit=(unit, (str,), "text")
    )
    check_name("name", name, _WHERE)
    if not _fits(PathName, path):
        expected = "letters, digits, - and _, with no digit or - first"
        raise InputError("path", repr(path), expected, _WHERE)
    if unit not in (ROW, NO_UNIT, *KEYS[:4]):
        try:
            check_key(unit)
        except InputError:
            expected = f"row, step, {NO_UNIT}, or a key that mark gives, such as doc"
            raise InputError("unit", repr(unit), expected, _WHERE) from None


def check_key(name: str) -> None:
    """Refuse a key that no bank may have.

    Raises:
        InputError: a taken name, or characters that no column's name has.
    """
    if name in _TAKEN or re.match(r"recorded\.", name):
        raise InputError("key", name, "another name: this one is taken", "mark")
    if not _fits(Name, name):
        expected = "letters, digits, -, . and _, with a letter or _ first"
        raise InputError("key", repr(name), expected, "mark")


def check_unit_marked(unit: str, keys: Collection[str], layer: int) -> None:
    """Refuse a call whose rows have no key of the unit's name.

    Raises:
        InputError: it is so.
    """
    if unit not in (ROW, NO_UNIT, *KEYS[:4], *keys):
        given = ", ".join(keys) or "no key"
        expected = f"the key {unit} in a mark before the first call: it is the unit"
        raise InputError("mark", given, expected, f"layer {layer}")


def check_same_keys(given: Mapping[str, Any], first: Mapping[str, Any], layer: int) -> None:
    """Refuse a call whose mark has other keys than that of the first rows recorded.

    Args:
        given: the dtype of each key of this call's mark.
        first: the same of the first recorded call.
        layer: for the message.

    Raises:
        InputError: it is so; names the keys that are new, missing, or of another dtype.
    """
    told = [f"the new key {name}" for name in sorted(given.keys() - first.keys())]
    told += [f"no key {name}" for name in sorted(first.keys() - given.keys())]
    told += [
        f"key {name} of {given[name]} after {first[name]}"
        for name in sorted(given.keys() & first.keys())
        if given[name] != first[name]
    ]
    if told:
        known = ", ".join(first) or "none"
        expected = f"the same keys for every call of a recording (so far: {known})"
        raise InputError("mark", ", ".join(told), expected, f"layer {layer}")


def check_layers(layers: Collection[int] | None) -> None:
    """Refuse layers that are no collection of whole numbers.

    Raises:
        InputError: it is so.
    """
    expected = "layer numbers, such as [3, 4], or None for all"
    # A text is a collection too.
    wrong = isinstance(layers, str | bytes) or not isinstance(layers, Collection)
    whole = not wrong and all(
        isinstance(one, Integral) and not isinstance(one, bool) for one in layers or ()
    )
    if layers is not None and not whole:
        raise InputError("layers", repr(layers)[:60], expected, _WHERE)
    if layers is not None and not layers:
        raise InputError("layers", "none", expected, _WHERE)


def check_model(model: torch.nn.Module, specs: Sequence[GateSpec]) -> None:
    """Refuse what is no torch module, and specs that are none.

    Raises:
        InputError: it is so.
    """
    check_types(model=(model, (torch.nn.Module,), "a torch.nn.Module"))
    known = isinstance(specs, Sequence) and all(isinstance(spec, GateSpec) for spec in specs)
    if not known or not specs:
        raise InputError("specs", repr(specs)[:60], "a list of GateSpec, at least one", _WHERE)


def checked_provenance(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's part of the provenance as JSON will give it back.

    Raises:
        InputError: no mapping, a value that JSON does not hold, or a known field of another type.
    """
    if given is None:
        return {}
    expected = "a mapping of JSON values"
    check_types(provenance=(given, (Mapping,), expected))
    for key in given:
        if not isinstance(key, str):
            raise InputError("provenance", repr(key)[:60], "names that are text", _WHERE)
    try:
        held: dict[str, Any] = json.loads(json.dumps(dict(given), allow_nan=False))
        ProvenanceModel.model_validate_json(json.dumps(held))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(("provenance", *(str(part) for part in first["loc"])))
        raise InputError(field, str(first["input"])[:60], first["msg"], _WHERE) from None
    except (TypeError, ValueError) as error:
        raise InputError("provenance", error, expected, _WHERE) from None
    return held


def _fits(kind: Any, text: str) -> bool:
    try:
        TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return False
    return True
