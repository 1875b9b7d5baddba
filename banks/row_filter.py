"""Conditions on the keys of rows: ``layer == 3 and step < 10`` without evaluating any code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .bank import Array
from .errors import InputError

_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MAX_TEXT: Final = 2000
_MAX_NUMBER: Final = 1 << 62
_MAX_RESULT: Final = 2.0**62
"""Whole numbers below it are int64, and their float64 is within a part in 2^53."""


class Condition:
    """A condition over integer key columns: comparisons joined by ``and``, ``or`` and ``not``.

    Args:
        text: such as ``layer in (1, 2) and row % 10 == 0``; names are keys, numbers are whole.
        where: the option, for messages.

    Raises:
        InputError: anything else.
    """

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        if len(text) > _MAX_TEXT:
            raise InputError("condition", f"{len(text)} characters", f"at most {_MAX_TEXT}", where)
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._wrong(text) from None

    def __call__(self, keys: Mapping[str, Array]) -> npt.NDArray[np.bool_]:
        """Return which rows meet it.

        Raises:
            InputError: a name that is no key, or a part that is no condition.
        """
        rows = len(next(iter(keys.values())))
        return np.broadcast_to(self._truth(self._tree, keys), rows)

    def _wrong(self, part: object) -> InputError:
        expected = "a comparison of keys, such as layer == 3 and step < 10"
        return InputError("condition", part, expected, self._where)

    def _truth(self, node: ast.expr, keys: Mapping[str, Array]) -> Any:
        if isinstance(node, ast.BoolOp):
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return join.reduce([self._truth(part, keys) for part in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return np.logical_not(self._truth(node.operand, keys))
        if isinstance(node, ast.Compare):
            return self._comparison(node, keys)
        raise self._wrong(ast.unparse(node))

    def _comparison(self, node: ast.Compare, keys: Mapping[str, Array]) -> Any:
        rows = len(next(iter(keys.values())))
        truth = np.ones(rows, np.bool_)
        left = self._number(node.left, keys)
        for kind, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(kind, ast.In | ast.NotIn):
                if not isinstance(right, ast.Tuple | ast.List):
                    raise self._wrong(ast.unparse(node))
                among = [self._number(part, keys) == left for part in right.elts]
                found = np.logical_or.reduce([np.broadcast_to(one, rows) for one in among])
                truth &= ~found if isinstance(kind, ast.NotIn) else found
                continue
            if type(kind) not in _COMPARE:
                raise self._wrong(ast.unparse(node))
            other = self._number(right, keys)
            truth &= _COMPARE[type(kind)](left, other)
            left = other
        return truth

    def _number(self, node: ast.expr, keys: Mapping[str, Array]) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            if abs(node.value) >= _MAX_NUMBER:
                raise self._wrong(node.value)
            return np.int64(node.value)
        if isinstance(node, ast.Name):
            if node.id not in keys:
                raise InputError("key", node.id, f"one of {', '.join(keys)}", self._where)
            return keys[node.id].astype(np.int64)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand, keys)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self._number(node.left, keys), self._number(node.right, keys)
            if isinstance(node.op, ast.FloorDiv | ast.Mod) and np.any(right == 0):
                raise self._wrong(f"{ast.unparse(node)}, a division by 0")
            made = _ARITHMETIC[type(node.op)]
            # As floats they do not wrap around.
            if np.max(np.abs(made(np.float64(left), np.float64(right)))) >= _MAX_RESULT:
                raise self._wrong(f"{ast.unparse(node)}, which is too large")
            return made(left, right)
        raise self._wrong(ast.unparse(node))


def parse_ranges(text: str, what: str) -> list[tuple[int, int]]:
    """Return the inclusive ranges of a list such as ``0-3,7``.

    Raises:
        InputError: not such a list.

    Example:
        >>> parse_ranges("0-3,7", "--layers")
        [(0, 3), (7, 7)]
    """
    ranges = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(part) > 40:
            raise InputError(what, text, "numbers and ranges, such as 0-3,7", "option")
        ranges.append((int(low), int(high) if dash else int(low)))
        if ranges[-1][0] > ranges[-1][1]:
            raise InputError(what, part, "the lower number first", "option")
    return ranges


def within(values: Array, ranges: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return which values lie in any of the ranges."""
    found = np.zeros(len(values), np.bool_)
    for low, high in ranges:
        found |= (values >= low) & (values <= high)
    return found
