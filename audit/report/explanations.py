"""The table of hypotheses for failing rows, from a record or from one pasted case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .figures import Table

_SHOWN: Final = 4
"""Hypotheses of one path in one bank that a report shows; the record has more."""

Row = tuple[str, ...]


def explanation_table(record: Mapping[str, Any]) -> Table:
    """Return, for each failing path, the hypotheses that give its rows, the best first.

    Records of before this table have none.
    """
    columns = (
        "path", "bank", "hypothesis", "bit for bit", "ids only", "failing rows tried", "with",
    )  # fmt: skip
    rows = [
        (explanation["path"], explanation["bank"], *row)
        for explanation in record.get("explanations", [])
        for row in hypothesis_rows(explanation)
    ]
    return Table("Hypotheses for failing rows", columns, rows)


def hypothesis_rows(explanation: Mapping[str, Any]) -> Iterator[Row]:
    """Yield name, rows bit for bit, rows by ids only, rows tried, and what it took."""
    tried = f"{explanation['tried']:,}"
    if explanation.get("failing", explanation["tried"]) != explanation["tried"]:
        tried += f" of {explanation['failing']:,}"
    if not explanation["hypotheses"]:
        also = ", one by one and two at once" if explanation["pairs"] else ""
        number = explanation["hypotheses_tried"]
        yield f"none of {number} explains a row{also}", "0", "0", tried, "-"
    for one in explanation["hypotheses"][:_SHOWN]:
        exact = f"{one['bits']:,}" if explanation["weights"] else "-"
        yield one["name"], exact, f"{one['ids'] - one['bits']:,}", tried, _notes(one, explanation)


def _notes(one: Mapping[str, Any], explanation: Mapping[str, Any]) -> str:
    notes = [one["arithmetic"]] if one["arithmetic"] else []
    if not explanation["weights"]:
        notes.append("the path has no weights")
    if one["close"] > one["bits"]:
        more = one["close"] - one["bits"]
        notes.append(f"weights of {more:,} more within the budget")
    if one["logits"] == "reference":
        notes.append("from the reference's logits")
    if one["reference"] == explanation["tried"]:
        notes.append("cannot be told from the reference on these rows")
    elif one["reference"]:
        notes.append(f"gives the reference's answer on {one['reference']:,}")
    return "; ".join(notes) or "-"


def best_sentences(record: Mapping[str, Any]) -> list[str]:
    """Return what explains the failing rows of each path, where something does in every bank."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for explanation in record.get("explanations", []):
        found.setdefault(explanation["path"], []).append(explanation)
    told = []
    for path, mine in found.items():
        names = {explanation["best"] for explanation in mine}
        if len(names) != 1 or None in names:
            continue
        (name,) = names
        named = [explanation["named"][0] for explanation in mine]
        rows, tried = sum(n["rows"] for n in named), sum(e["tried"] for e in mine)
        how = " bit for bit" if all(n["bits"] for n in named) else ""
        told.append(
            f"The hypothesis {name} gives {rows:,} of {tried:,} failing rows of the {path}{how}."
        )
    return told
