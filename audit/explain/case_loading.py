"""From the text of a case file to records whose shapes fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...banks.errors import InputError, printable
from ...banks.geometry import Geometry, ScoringRule
from .case_format import CaseModel, PathModel, read_cases, unknown_keys
from .cases import F32, F64, Case, PathRows, ReductionCase

MOST_ELEMENTS: Final = 1 << 18
"""Logits of one case: a few hundred rows of 896 experts. More rows belong into a bank."""
MOST_RANKS: Final = 64
"""Each rank's shard is tried in every place."""
MOST_TERMS: Final = 256
"""Partial sums that may be added in each order that is tried."""
_MOST_DIGITS: Final = 19
MOST_SUMS: Final = 128
"""Sums of one case, each of which is tried against every order."""


def load_cases(cases: Path | str | Mapping[str, Any] | Sequence[Any]) -> list[Case | ReductionCase]:
    """Return the cases of a file, of JSON text, or of what ``json.load`` returned.

    Args:
        cases: a path; JSON text (first character ``[`` or ``{``); a case; or a list of cases.

    Raises:
        InputError: not a file, not JSON, an empty list, or a case that breaks the format or whose
            shapes do not fit; it names the case and the field.
    """
    return [_record(model, f"case {model.id}") for model in read_cases(cases)]


def _record(model: CaseModel, where: str) -> Case | ReductionCase:
    logits = _rows(model.logits, "logits", where)
    for field, got, most in (
        ("logits", logits.size, MOST_ELEMENTS),
        ("buffer", len(model.buffer or ()), MOST_ELEMENTS),
        ("ranks", model.ranks or 0, MOST_RANKS),
        ("shards", len(model.shards or ()), MOST_RANKS),
    ):
        if got > most:
            raise InputError(f"{field} length", got, f"at most {most:,}", where)
    if model.scoring.function == "reduction":
        return _reduction(model, logits, where)
    experts = logits.shape[1]
    if model.top_k is None:
        raise InputError("top_k", "missing", "present", where)
    routed = model.top_k - model.n_shared
    if not 1 <= routed <= experts:
        expected = f"{1 + model.n_shared}..{experts + model.n_shared} for {experts} experts"
        raise InputError("top_k", model.top_k, expected, where)
    # Copies on n ranks are counted by the same word, and cut no axis.
    if model.leading_axis != "rank" and model.ranks is not None and experts % model.ranks:
        raise InputError("ranks", model.ranks, f"a divisor of {experts} experts", where)
    a = _path(model.a, "a", model.top_k, where)
    b = _path(model.b, "b", model.top_k, where)
    logits_a, logits_b, a, b = _fit_rows(model, logits, a, b, where)
    scoring = model.scoring
    groups = scoring.groups or 1
    try:
        top_groups = scoring.top_groups or groups
        # A case may have any name; where it is shown it stays on its line.
        geometry = Geometry(printable(model.id), 1, 0, experts, routed, groups, top_groups)
        rule = ScoringRule(
            scoring.function,  # type: ignore[arg-type]  # reduction left above
            scoring.renormalize,
            scoring.epsilon,
            scoring.scale,
        )
    except InputError as error:
        raise InputError(error.what, error.got, error.expected, where) from None
    return Case(
        id=model.id,
        leading_axis=model.leading_axis,
        logits_a=logits_a,
        logits_b=logits_b,
        bias=_vector(model.bias, "bias", experts, where),
        bias_b=_vector(model.bias_b, "bias_b", experts, where),
        geometry=geometry,
        scoring=rule,
        n_shared=model.n_shared,
        a=a,
        b=b,
        ranks=model.ranks,
        shards=_shards(model, len(logits), experts, where),
        buffer=None if model.buffer is None else _f32(model.buffer),
        stride=_stride(model, len(logits), experts, where),
        poison=model.poison,
        map=_map(model, experts, where),
        pad_to=model.pad_to,
        capacity=model.capacity,
        expected=model.expected,
        unknown_keys=tuple(unknown_keys(model)),
    )


def _f32(values: Any) -> F32:
    # A decimal beyond the float32 range is what a float32 router would hold: infinity.
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32)


def _rows(values: Any, field: str, where: str) -> F64:
    """[row, element] of a flat or nested list."""
    nested = values if values and isinstance(values[0], list) else [values]
    lengths = {len(row) for row in nested}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(f"{field} lengths", sorted(lengths), "one length of at least 1", where)
    return np.array(nested, np.float64)


def _vector(values: list[float] | None, field: str, length: int, where: str) -> F32 | None:
    if values is None:
        return None
    if len(values) != length:
        raise InputError(f"{field} length", len(values), f"{length}, one an expert", where)
    return _f32(values)


def _path(model: PathModel, name: str, top_k: int, where: str) -> PathRows:
    if not model.ids:
        raise InputError(f"{name}.ids", model.ids, f"{top_k} ids a row", where)
    nested: Any = model.ids if isinstance(model.ids[0], list) else [model.ids]
    for row in nested:
        if len(row) != top_k:
            raise InputError(f"{name}.ids length", len(row), f"top_k {top_k}", where)
    ids = np.array(nested, np.int64)
    if model.weights is None:
        return PathRows(model.label, ids, None)
    weights = model.weights if isinstance(model.weights, list) else [model.weights]
    values = _rows(weights, f"{name}.weights", where)
    if values.shape != ids.shape:
        raise InputError(f"{name}.weights shape", values.shape, f"{ids.shape} as ids", where)
    return PathRows(model.label, ids, _f32(values))


def _repeat(path: PathRows, rows: int) -> PathRows:
    weights = None if path.weights is None else np.repeat(path.weights, rows, axis=0)
    return PathRows(path.label, np.repeat(path.ids, rows, axis=0), weights)


def _fit_rows(
    model: CaseModel, logits: F64, a: PathRows, b: PathRows, where: str
) -> tuple[F32, F32, PathRows, PathRows]:
    """Give logits and both paths one row count, by the rules of the leading axis."""
    values = _f32(logits)
    rows, rows_a, rows_b = len(values), len(a.ids), len(b.ids)
    copies = model.leading_axis != "row"
    if copies and rows_a == rows_b == 1:
        return values[:1], values[-1:], a, b
    most = max(rows, rows_a, rows_b)
    if copies:
        if rows == 1:
            values = np.repeat(values, most, axis=0)
        a = _repeat(a, most) if rows_a == 1 else a
        b = _repeat(b, most) if rows_b == 1 else b
    for field, count in (("a.ids rows", len(a.ids)), ("b.ids rows", len(b.ids))):
        if count != len(values):
            raise InputError(field, count, f"{len(values)}, one for each row of logits", where)
    return values, values, a, b


def _shards(model: CaseModel, rows: int, experts: int, where: str) -> F32 | None:
    if model.shards is None:
        return None
    ranks = len(model.shards)
    if ranks == 0 or experts % ranks or (model.ranks or ranks) != ranks:
        expected = model.ranks or f"a divisor of {experts} experts"
        raise InputError("shards ranks", ranks, expected, where)
    width = experts // ranks
    for rank, piece in enumerate(model.shards):
        shape = (len(piece), sorted({len(row) for row in piece}))
        if shape != (rows, [width]):
            raise InputError(f"shards.{rank} shape", shape, f"({rows}, [{width}])", where)
    return _f32(model.shards)


def _stride(model: CaseModel, rows: int, experts: int, where: str) -> int | None:
    if model.buffer is None:
        return model.stride
    stride = model.stride or max(model.pad_to or 0, experts)
    if stride < experts:
        raise InputError("stride", stride, f"at least {experts} experts", where)
    least = (rows - 1) * stride + experts
    if len(model.buffer) < least:
        expected = f"at least {least} for {rows} rows of stride {stride}"
        raise InputError("buffer length", len(model.buffer), expected, where)
    return stride


def _map(model: CaseModel, experts: int, where: str) -> dict[int, tuple[int, ...]] | None:
    """Physical ids of each logical id, from a list by position or an object by id."""
    if model.map is None:
        return None
    if isinstance(model.map, list):
        named: list[tuple[int, int | list[int]]] = list(enumerate(model.map))
        if len(named) < experts:
            raise InputError("map length", len(named), f"{experts}, one an expert", where)
    else:
        wrong = [key for key in model.map if not (key.isdecimal() and len(key) < _MOST_DIGITS)]
        if wrong:
            raise InputError("map", wrong[0], "ids as keys", where)
        named = [(int(key), value) for key, value in model.map.items()]
    return {k: tuple(v) if isinstance(v, list) else (v,) for k, v in named}


def _reduction(model: CaseModel, partials: F64, where: str) -> ReductionCase:
    accumulate = model.acc or model.scoring.acc or "fp32"
    if accumulate != "fp64":
        partials = _f32(partials).astype(np.float64)
    sums = []
    for name, path in (("a", model.a), ("b", model.b)):
        values = [path.weights] if isinstance(path.weights, float) else path.weights
        if not values:
            raise InputError(f"{name}.weights", path.weights, "the path's sums", where)
        sums.append(_rows(values, f"{name}.weights", where).ravel())
    rows, terms = partials.shape
    if rows > 1 and {len(s) for s in sums} == {terms} and terms != rows:
        # One partial vector a rank: the sums run over the leading axis.
        partials, rows = np.ascontiguousarray(partials.T), terms
    most = max(rows, *(len(s) for s in sums))
    if rows == 1:
        partials = np.repeat(partials, most, axis=0)
    for position, name in enumerate("ab"):
        if len(sums[position]) == 1:
            sums[position] = np.repeat(sums[position], len(partials))
        if len(sums[position]) != len(partials):
            got = len(sums[position])
            raise InputError(f"{name}.weights", f"{got} sums", f"{len(partials)}", where)
    for field, got, limit in (
        ("logits length", partials.shape[1], MOST_TERMS), ("sums", len(partials), MOST_SUMS),
    ):  # fmt: skip
        if got > limit:
            raise InputError(field, got, f"at most {limit}", where)
    return ReductionCase(
        id=model.id,
        leading_axis=model.leading_axis,
        partials=partials,
        accumulate=accumulate,
        labels=(model.a.label, model.b.label),
        sums_a=sums[0],
        sums_b=sums[1],
        expected=model.expected,
        unknown_keys=tuple(unknown_keys(model)),
    )
