"""Where a bank made of others comes from, and what all that make one share.

The new bank's provenance has the operation, and name, digest and number of rows of each bank that
it was made of, under ``derived``, the oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .bank import Array, Bank, Header

DERIVED: Final = "derived"

Rows = npt.NDArray[np.int64]
"""Numbers of rows in a bank [n]."""


def read_keys(bank: Bank, start: int, stop: int) -> Mapping[str, Array]:
    """Return the keys of rows start..stop; no input is read."""
    return bank.read_outputs(start, stop).keys


def derived_header(
    bank: Bank,
    directory: str | Path,
    name: str | None,
    made: dict[str, Any],
    parents: Sequence[Bank] | None = None,
) -> Header:
    """Return the header of a bank made by an operation.

    Args:
        bank: the first source, of which the rest of the header is.
        directory: of the new bank, whose name is the bank's where none is given.
        name: the new bank's name.
        made: the operation and its options; the sources are added.
        parents: all sources, where there are several.
    """
    sources = parents or [bank]
    made["parents"] = [{"name": p.name, "digest": p.digest, "rows": p.rows} for p in sources]
    if parents is None:
        kept = dict(bank.provenance)
    else:
        # What is true of all of them is true of the new bank; the rest stays with its source.
        shared = [set(_frozen(parent.provenance)) for parent in parents]
        common = set.intersection(*shared)
        kept = {k: v for k, v in bank.provenance.items() if (k, repr(v)) in common}
        for entry, parent in zip(made["parents"], parents, strict=True):
            own = {k: v for k, v in parent.provenance.items() if k not in kept}
            entry.update({"provenance": own} if own else {})
    earlier = kept.pop(DERIVED, [])
    history = [*earlier, made] if isinstance(earlier, list) else [earlier, made]
    return replace(
        bank.header, name=name or Path(directory).name, provenance={**kept, DERIVED: history}
    )


def _frozen(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, repr(value)) for key, value in provenance.items()]
