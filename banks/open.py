"""From what a user writes to a bank: directory, URL, shipped name or generator spec."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from . import degenerate, resample
from .bank import Bank
from .errors import BankError, InputError
from .files import is_url
from .generate import GAUSSIAN
from .normal import NORMAL
from .planted import NEAR_TIE
from .schema import HEADER_FILE
from .spec import Generator, parse_spec
from .store import open_directory

SHIPPED: Final = {"k3-mini": tuple(f"k3-mini/layer{layer}" for layer in range(6))}
"""Shipped groups and their banks."""
SHIPPED_BANKS: Final = (*SHIPPED["k3-mini"], "k3-mini/tie-witness")


def shipped_directory(name: str) -> Path:
    """Return the directory of a shipped bank."""
    return Path(str(files("neartie.banks").joinpath("data", *name.split("/"))))


def _text(spec: str | Path) -> str:
    """A spec as text; a path object never names a shipped bank or a generator."""
    if isinstance(spec, Path):
        text = str(spec)
        return f"./{text}" if text in SHIPPED or text in SHIPPED_BANKS else text
    if not spec:
        raise InputError("bank", repr(spec), "a directory, a URL, a bank or a generator", "bank")
    return spec


def _is_directory(spec: str) -> bool:
    try:
        return Path(spec).is_dir()
    # A generator's spec may be longer than a file's name can be.
    except (OSError, ValueError):
        return False


def open_bank(spec: str | Path) -> Bank:
    """Return the bank that ``spec`` names.

    Args:
        spec: a shipped name (``k3-mini/layer3``), a directory, a URL, or a generator
            (``gaussian:geometry=k3,rows=960,seed=0``). A shipped name wins over a directory of
            the same name: write ``./k3-mini/layer3`` for that, or give a ``pathlib.Path``.

    Raises:
        BankError: nothing of the kind, or a damaged bank.
        InputError: an unknown generator, option or value.

    Example:
        >>> open_bank("k3-mini/tie-witness").rows
        20
    """
    spec = _text(spec)
    if spec in SHIPPED_BANKS:
        bank = open_directory(shipped_directory(spec))
        bank.spec = spec
        return bank
    if spec in SHIPPED:
        raise InputError("bank", spec, f"one bank, such as {SHIPPED[spec][0]}", "bank")
    if is_url(spec):
        return open_directory(spec)
    if _is_directory(spec):
        _check_no_group(spec)
        return open_directory(spec)
    name, separator, _ = spec.partition(":")
    if separator or name in GENERATORS:
        generator, parsed = parse_spec(spec, GENERATORS)
        return generator.build(parsed)
    known = f"a directory, a URL, one of {', '.join((*SHIPPED, *SHIPPED_BANKS))}, or a generator"
    raise BankError("bank", spec, f"{known} ({', '.join(GENERATORS)})", "bank")


def spec_from_anywhere(bank: Bank) -> str:
    """Return what opens a bank again from any working directory: a directory by its full path."""
    spec = bank.spec
    if spec in SHIPPED_BANKS or is_url(spec) or not _is_directory(spec):
        return spec
    return str(Path(spec).absolute())


GENERATORS: Final[dict[str, Generator]] = {
    generator.name: generator
    for generator in (
        GAUSSIAN,
        NEAR_TIE,
        degenerate.SATURATED,
        degenerate.LARGE_BIAS,
        degenerate.BF16_LOGITS,
        degenerate.SPECIAL,
        degenerate.SIGNED_ZEROS,
        degenerate.ALL_EQUAL,
        NORMAL,
        resample.generator(open_bank),
    )
}
"""Generators by name."""


def expand_banks(specs: Sequence[str | Path]) -> list[Bank]:
    """Return the banks of several specs, each of which may stand for more than one.

    A shipped group is its banks; a directory without ``bank.json`` is each bank directly in it, in
    natural order; ``resample`` of a group is one bank a layer, its rows split evenly.

    Raises:
        BankError: as ``open_bank``, or a directory with no bank in it.
        InputError: as ``open_bank``, or fewer rows than banks to split them over.
    """
    return [bank for spec in specs for bank in _expand(_text(spec))]


def _expand(spec: str) -> list[Bank]:
    if spec in SHIPPED:
        return [open_bank(name) for name in SHIPPED[spec]]
    if spec not in SHIPPED_BANKS and not is_url(spec) and _is_directory(spec):
        if not (Path(spec) / HEADER_FILE).is_file():
            return _in_directory(spec)
    elif spec.partition(":")[0] == "resample":
        return _resampled(spec)
    return [open_bank(spec)]


def _natural(path: Path) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _check_no_group(spec: str) -> None:
    """Refuse a directory that is no bank and holds some."""
    if (Path(spec) / HEADER_FILE).is_file():
        return
    names = _names_in(spec)
    if names:
        expected = f"one of them, such as {spec.rstrip('/')}/{names[0]}"
        raise BankError("bank", f"a group of {len(names)} banks", expected, spec)


def _names_in(spec: str) -> list[str]:
    """Names of the banks directly in a directory, in natural order."""
    directory = Path(spec)
    # A name with a leading dot is a bank being written, or the remains of one.
    found = [
        path
        for path in directory.iterdir()
        if (path / HEADER_FILE).is_file() and not path.name.startswith(".")
    ]
    return [path.name for path in sorted(found, key=_natural)]


def _in_directory(spec: str) -> list[Bank]:
    names = _names_in(spec)
    if not names:
        raise BankError("file", "nothing", "present", str(Path(spec) / HEADER_FILE))
    # By text: a path object would drop the ./ that tells a directory from a shipped name.
    return [open_directory(f"{spec.rstrip('/')}/{name}") for name in names]


def _resampled(spec: str) -> list[Bank]:
    _, parsed = parse_spec(spec, GENERATORS)
    group = parsed.values["bank"]
    if group not in SHIPPED:
        return [open_bank(spec)]
    names = SHIPPED[group]
    total = parsed.values["rows"]
    if total < len(names):
        raise InputError("option rows", total, f"at least {len(names)}, one a bank", spec)
    banks = []
    for index, name in enumerate(names):
        rows = total // len(names) + (index < total % len(names))
        options = {**parsed.values, "bank": name, "rows": rows}
        text = ",".join(f"{key}={value}" for key, value in options.items())
        banks.append(open_bank(f"resample:{text}"))
    return banks
