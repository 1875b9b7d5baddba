"""The mechanism of a change in plain words, made from what both paths declare and what was found.

One short sentence says what was changed and what became of the expert sets; sentences of detail
follow. A path declares its arithmetic in pieces, ``latent K-split, BF16 partials; logits N-split,
FP32``; pieces that both declare are no mechanism and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..metrics.swaps import SET_CODE, SetClass
from .explanations import best_sentences

MOST_LEAD_WORDS: Final = 35
"""Words of the leading sentence; with every part changed it has 34."""

_PARTS: Final = {
    "project": "projection", "exchange": "exchange between ranks", "score": "score",
    "weight_sum": "weight sum", "normalise": "normalisation", "slot_order": "slot order",
}  # fmt: skip
_FRONT: Final = ("project", "exchange")
_SAME_SET: Final = (SetClass.IDENTICAL, SetClass.REORDERED)
_BY_WIDTH: Final = re.compile(r"up to (\d+) rows: (.*); above: (.*)", re.DOTALL)
_RESULTS: Final = "results (row x rank x width)"


@dataclass(frozen=True)
class Mechanism:
    """What a candidate computes otherwise, and what that did.

    Attributes:
        lead: one sentence of at most ``MOST_LEAD_WORDS`` words.
        details: a sentence each.
    """

    lead: str
    details: tuple[str, ...]


def mechanism(record: Mapping[str, Any]) -> Mechanism:
    """Return the sentences for the record of an audit or a gate."""
    changes = dict(_changes(record))
    details = [f"{_PARTS[part].capitalize()}: {text}." for part, text in changes.items()]
    details += [*_fit(record), *_nearness(record), *_kinds(record), *best_sentences(record)]
    return Mechanism(_lead(list(changes), record), tuple(details))


def _lead(changed: Sequence[str], record: Mapping[str, Any]) -> str:
    *most, last = [_PARTS[part] for part in changed] or [""]
    parts = f"{', '.join(most)} and {last}" if most else last
    declared = "Both paths declare the same arithmetic"
    if last:
        declared = f"The candidate changes the {parts}"
    rows, kinds = _sets(record)
    if not rows:
        return f"{declared}; no row was compared."
    if not kinds:
        return f"{declared}, and the expert set is the same in all {rows:,} {_RESULTS}."
    link = "and" if last else "but"
    worst = max(kinds, key=lambda name: SET_CODE[SetClass(name)]).replace("_", " ")
    return (
        f"{declared}, {link} {sum(kinds.values()):,} of {rows:,} {_RESULTS} have another expert "
        f"set, at worst {worst}."
    )


def _changes(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parts that are declared otherwise, and both declarations."""
    widths = [width["width"] for width in record["widths"]]
    old, new = record["baseline"]["declared"], record["candidate"]["declared"]
    # Where no latent was compared, how it would have been made is no part of the change.
    front = all("latent" in record[role]["outputs"] for role in ("baseline", "candidate"))
    for part in _PARTS:
        text = _change(old[part], new[part], widths) if front or part not in _FRONT else None
        if text is not None:
            yield part, text


def at_widths(declared: str, widths: Sequence[int]) -> str:
    """Return what a declaration says of these widths, where it tells narrow from wide launches.

    Example:
        >>> at_widths("up to 8 rows: fold; above: left to right", [9, 20])
        'left to right'
    """
    found = _BY_WIDTH.fullmatch(declared)
    if found is None or not widths:
        return declared
    most = int(found[1])
    if min(widths) > most:
        return found[3]
    return found[2] if max(widths) <= most else declared


def _change(old: str, new: str, widths: Sequence[int]) -> str | None:
    before, after = at_widths(old, widths), at_widths(new, widths)
    if before == after:
        return None
    pieces = before.split("; "), after.split("; ")
    lost = [piece for piece in pieces[0] if piece not in pieces[1]]
    gained = [piece for piece in pieces[1] if piece not in pieces[0]]
    if not lost or not gained:
        lost, gained = pieces
    return f"{', '.join(gained)}. Baseline: {', '.join(lost)}"


def _fit(record: Mapping[str, Any]) -> list[str]:
    fit = record.get("schedule")
    if fit is None or fit["fits"] is None:
        return []
    if fit["fits"]:
        return [f"The latent errors fit the declared schedules, {fit['declared']}."]
    return [
        f"The latent errors do not fit the declared schedules, {fit['declared']}.",
        f"The nearest schedules are {fit['nearest']}.",
    ]


def _nearness(record: Mapping[str, Any]) -> list[str]:
    """What the paired sign test says, where every width says the same."""
    answers: dict[str, set[str]] = {}
    for width in record["widths"]:
        for tensor, closeness in width.get("closer_to_reference", {}).items():
            answers.setdefault(tensor, set()).add(closeness["answer"])
    told = []
    for tensor, found in answers.items():
        subject = f"The candidate's {tensor} {'is' if tensor == 'latent' else 'are'}"
        if found == {"closer"}:
            told.append(f"{subject} closer to FP64.")
        elif found == {"farther"}:
            told.append(f"{subject} farther from FP64.")
        elif "closer" in found and "farther" in found:
            told.append(f"{subject} closer to FP64 at some widths and farther at others.")
    return told


def _sets(record: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Rows x ranks over all widths, and how many have another set, by class."""
    kinds: dict[str, int] = {}
    for width in record["widths"]:
        for name, count in width["counts"].items():
            if name not in _SAME_SET and count:
                kinds[name] = kinds.get(name, 0) + count
    return sum(width["rows"] for width in record["widths"]), kinds


def _kinds(record: Mapping[str, Any]) -> list[str]:
    _, kinds = _sets(record)
    if not kinds:
        return []
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in kinds.items())
    return [f"The other expert sets by class: {told}."]
