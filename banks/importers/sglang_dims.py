"""The ``dims`` text of SGLang's dumper, such as ``t h[tp]``: how a tensor lies over ranks.

The grammar is that of ``srt/debug_utils/comparator/dims_spec`` in SGLang 0.5.23: axes separated by
spaces, each with modifiers ``axis[:qualifier[+qualifier]]`` in brackets; ``1`` is an axis of length
one; what follows ``#`` declares groups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from ..errors import BankError

_AXIS: Final = re.compile(r"(?P<name>1|[A-Za-z_]\w*|\([^)]+\))(?:\[(?P<modifiers>[^\]]+)\])?")
_TOKENS: Final = "t"
_SHARDED: Final = ("", "sharded", "natural")


@dataclass(frozen=True)
class Dims:
    """Axes of a dumped tensor.

    Attributes:
        names: of all axes.
        layout: ``replicated``; ``column`` where the last axis is sharded over ranks; ``partial``
            where ranks hold addends of a sum.
    """

    names: tuple[str, ...]
    layout: Literal["replicated", "column", "partial"]


def parse_dims(text: str, where: str) -> Dims:
    """Return the axes that the text names.

    Raises:
        BankError: not of the grammar, tokens that are not the first axis or lie on several ranks,
            or another axis than the last that does.

    Example:
        >>> parse_dims("t h[tp]", "x").layout
        'column'
    """
    names: list[str] = []
    layout: Literal["replicated", "column", "partial"] = "replicated"
    parts = text.partition("#")[0].split()
    for place, part in enumerate(parts):
        found = _AXIS.fullmatch(part)
        if found is None:
            raise BankError("dims", repr(text), "axes such as 't h[tp]'", where)
        names.append(found["name"])
        for modifier in (found["modifiers"] or "").split(","):
            _, _, qualifiers = modifier.strip().partition(":")
            words = qualifiers.split("+")
            if not modifier.strip():
                continue
            if "partial" in words:
                layout = "partial"
            elif any(word.strip() not in _SHARDED for word in words):
                raise BankError("dims", repr(text), "sharded in natural order, or partial", where)
            elif place != len(parts) - 1 or place == 0:
                expected = "only its last axis sharded over ranks (tokens on every rank)"
                raise BankError("dims", repr(text), expected, where)
            else:
                layout = "column"
    if not names:
        raise BankError("dims", repr(text), "axes such as 't h[tp]'", where)
    if _TOKENS in names and names[0] != _TOKENS:
        raise BankError("dims", repr(text), "tokens (t) as the first axis", where)
    return Dims(tuple(names), layout)
