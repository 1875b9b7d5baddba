"""Mutations of bytes, of JSON documents, and of texts, each driven by one random generator."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

Value = TypeVar("Value")

DEEP: Final = 3_000
"""Levels of a nested value: beyond Python's recursion limit."""

NUMBERS: Final = (
    0, 1, -1, 2, 7, 8, 20, 21, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, -(2**31) - 1, 2**32,
    2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**12, 10**18, 10**30, 10**400, 0.0, -0.0,
    0.5, -1.5, 1e-45, 1e-320, 3.5e38, 1e308, 1e309, math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS: Final = (
    "", " ", "NaN", "Infinity", "-Infinity", "null", "true", "0", "-1", "1e999", "..", "../x",
    "/etc/x", "C:\\x", "a\nb", "\x00", "\ud800", "\u202e", "\U0001f600", "a" * 300, "9" * 5_000,
    "row", "none", "float32", "bfloat16", "rows.arrow", "[", "{", "'", '"', "%s", "{0}",
)  # fmt: skip


def values(rng: random.Random) -> Any:
    """A value that a careless reader does not expect."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return rng.choice(([], {}, [[]], [None], {"": None}, [0] * 9, [1.5] * 300, [[0, 1], [2]]))
    return rng.choice(_MONSTERS)


_MONSTERS: Final = tuple(f"@{what}@" for what in ("lists", "objects", "digits", "long"))
"""Stand for values that Python itself cannot hold or print; ``to_json`` writes them."""
_WRITTEN: Final = (
    "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "0" + "}" * DEEP, "9" * 5_000,
    "[" + "1," * 100_000 + "1]",
)  # fmt: skip


def places(document: Any, most: int = 20_000) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document, without recursion."""
    found: list[tuple[Any, Any]] = []
    open_ = [document]
    while open_ and len(found) < most:
        one = open_.pop()
        keys = range(len(one)) if isinstance(one, list) else list(one)
        for key in keys:
            found.append((one, key))
            if isinstance(one[key], dict | list):
                open_.append(one[key])
    return found


def mutate_document(document: Any, rng: random.Random) -> Any:
    """A document with one place of it changed; ``document`` itself is changed too."""
    known = places(document) if isinstance(document, dict | list) else []
    if not known or rng.random() < 0.01:
        return values(rng)
    container, key = rng.choice(known)
    kind = rng.randrange(9)
    if kind < 3:
        container[key] = values(rng)
    elif kind == 3:
        del container[key]
    elif kind == 4 and isinstance(container, dict):
        container[str(rng.choice((*TEXTS, f"{key}x", str(key).upper())))] = container.pop(key)
    elif kind == 4:
        container.insert(key, copy.deepcopy(container[key]))
    elif kind == 5:
        other, at = rng.choice(known)
        container[key] = copy.deepcopy(other[at])
    elif kind == 6:
        container[key] = near(container[key], rng)
    elif kind == 7 and isinstance(container, dict):
        container[rng.choice(("unknown", "id", "rows", "shape", "name"))] = values(rng)
    elif kind == 7:
        container.extend([copy.deepcopy(container[key])] * rng.choice((1, 7, 100)))
    else:
        container[key] = other_type(container[key])
    return document


def near(value: Any, rng: random.Random) -> Any:
    """A value close to one, which is the likeliest to slip through."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1, 2, -2, 1 << rng.randrange(40)))
    if isinstance(value, float):
        return rng.choice((-value, value * 2, math.nextafter(value, math.inf), value + 1, -0.0))
    if isinstance(value, str):
        return mutate_text(value, rng) if value else "x"
    if isinstance(value, list):
        return value[::-1] if rng.random() < 0.5 else value[: len(value) // 2]
    return value


def other_type(value: Any) -> Any:
    """The same value as another type would hold it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return str(value) if not isinstance(value, int) else float(min(value, 2**60))
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return {str(number): item for number, item in enumerate(value)}
    if isinstance(value, dict):
        return list(value.items())
    return value


def to_json(document: Any) -> bytes:
    """A document as bytes; numbers that JSON lacks are written as Python does."""
    text = json.dumps(document)
    for monster, written in zip(_MONSTERS, _WRITTEN, strict=True):
        text = text.replace(f'"{monster}"', written)
    return text.encode("utf-8", "surrogatepass")


_TOKEN: Final = re.compile(r"[A-Za-z_]\w*|-?\d[\d_.eE+-]*|\"[^\"\n]*\"|\s+|.", re.DOTALL)
_SNIPPETS: Final = (
    "[", "]", "{", "}", "[[", "]]", "=", ",", ":", "\n", "\r", "\x00", "#", "'" * 3, '"' * 3,
    "\\u", "\u00e9", "1979-05-27T07:32:00Z", "07:32:00", "0x10", "inf", "nan", "-", "+1", "1e400",
    "9" * 5000, "k", "G", "true", "{a={a={a={}}}}", "[" * 2000, "a." * 2000 + "a=1\n", "e", "::",
    "=,", ",,", "../", "%",
)  # fmt: skip


def mutate_text(text: str, rng: random.Random) -> str:
    """A text with a token or a line of it changed."""
    kind = rng.randrange(7) if text.count("\n") > 1 else rng.randrange(4)
    if kind < 4:
        tokens = _TOKEN.findall(text) or [""]
        at = rng.randrange(len(tokens))
        if kind == 0:
            tokens[at] = _other_token(tokens[at], rng)
        elif kind == 1:
            tokens[at] = rng.choice(tokens)
        elif kind == 2:
            del tokens[at]
        else:
            tokens.insert(at, rng.choice(_SNIPPETS))
        return "".join(tokens)
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    if kind == 4:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif kind == 5:
        del lines[at]
    else:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    return "".join(lines)


def _other_token(token: str, rng: random.Random) -> str:
    """A token in place of another: of its own kind mostly, so that the reader gets past it."""
    number = re.fullmatch(r"-?\d[\d_.eE+-]*", token) is not None
    if number and rng.random() < 0.8:
        return repr(rng.choice(NUMBERS))[:6000]
    if token.startswith('"') and rng.random() < 0.8:
        return f'"{rng.choice(TEXTS)}"'
    return str(rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS))))[:6000]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them changed, moved, lost or added."""
    if not data:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
    buffer = bytearray(data)
    at = rng.randrange(len(buffer))
    kind = rng.randrange(8)
    if kind < 2:
        buffer[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        buffer[at] = rng.choice((0, 1, 127, 128, 255))
    elif kind == 3:
        size = rng.choice((2, 4, 8))
        at -= at % size
        number = int(rng.choice([n for n in NUMBERS if isinstance(n, int)])) % (1 << 8 * size)
        buffer[at : at + size] = number.to_bytes(size, "little")
    elif kind == 4:
        del buffer[at:]
    elif kind == 5:
        del buffer[at : at + rng.choice((1, 2, 8, 64))]
    elif kind == 6:
        part = buffer[at : at + rng.choice((1, 4, 64, 256))]
        buffer[at:at] = part * rng.choice((1, 2, 50))
    else:
        other = rng.randrange(len(buffer))
        size = rng.choice((1, 8, 32))
        buffer[at : at + size] = buffer[other : other + size]
    return bytes(buffer)


def several(
    value: Value, change: Callable[[Value, random.Random], Value], rng: random.Random, most: int = 4
) -> Value:
    """A value changed one to ``most`` times, once mostly."""
    for _ in range(rng.choice((1, 1, 1, 2, most))):
        value = change(value, rng)
    return value


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """JSON bytes with the document changed, or now and then the bytes."""
    if rng.random() < 0.15:
        return several(data, mutate_bytes, rng)
    if rng.random() < 0.1:
        return mutate_text(data.decode("utf-8", "replace"), rng).encode("utf-8", "surrogatepass")
    try:
        document = json.loads(data)
        return to_json(several(document, mutate_document, rng))
    # An earlier mutation made it what Python cannot read or copy.
    except (ValueError, RecursionError):
        return several(data, mutate_bytes, rng)


def mutate_toml(data: bytes, rng: random.Random) -> bytes:
    """TOML bytes with tokens and lines changed, or now and then the bytes."""
    if rng.random() < 0.15:
        return several(data, mutate_bytes, rng)
    text = data.decode("utf-8", "replace")
    return several(text, mutate_text, rng).encode("utf-8", "surrogatepass")
