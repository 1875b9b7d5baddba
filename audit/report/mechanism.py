"""The mechanism of a change in one sentence, made from what both paths declare and what was found.

A path declares its arithmetic in pieces, ``latent K-split, BF16 partials; logits N-split, FP32``;
pieces that both declare are no mechanism and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .explanations import best_sentence

_WORDS: Final = {
    "project": "", "exchange": "", "score": "score ", "weight_sum": "weight sum ",
    "normalise": "normalise ", "slot_order": "slot order ",
}  # fmt: skip
_FRONT: Final = ("project", "exchange")
_BY_WIDTH: Final = re.compile(r"up to (\d+) rows: (.*); above: (.*)", re.DOTALL)


def mechanism(record: Mapping[str, Any]) -> str:
    """Return one sentence: what the candidate computes otherwise, and what that did to errors."""
    widths = [width["width"] for width in record["widths"]]
    old, new = record["baseline"]["declared"], record["candidate"]["declared"]
    # Where no latent was compared, how it would have been made is no part of the change.
    front = all("latent" in record[role]["outputs"] for role in ("baseline", "candidate"))
    changes = [
        change
        for word, prefix in _WORDS.items()
        if (front or word not in _FRONT)
        and (change := _change(prefix, old[word], new[word], widths))
    ]
    parts = ["; ".join(changes) or "both paths declare the same arithmetic"]
    facts = (_fit(record), _nearness(record), _sets(record), best_sentence(record))
    parts += [text for text in facts if text]
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."


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


def _change(prefix: str, old: str, new: str, widths: Sequence[int]) -> str | None:
    before, after = at_widths(old, widths), at_widths(new, widths)
    if before == after:
        return None
    pieces = before.split("; "), after.split("; ")
    lost = [piece for piece in pieces[0] if piece not in pieces[1]]
    gained = [piece for piece in pieces[1] if piece not in pieces[0]]
    if not lost or not gained:
        lost, gained = pieces
    return f"{prefix}{', '.join(gained)} instead of {', '.join(lost)}"


def _fit(record: Mapping[str, Any]) -> str | None:
    fit = record.get("schedule")
    if fit is None or fit["fits"] is None:
        return None
    if fit["fits"]:
        return f"latent errors fit the declared {fit['declared']}"
    return f"latent errors do not fit the declared {fit['declared']}, nearest is {fit['nearest']}"


def _nearness(record: Mapping[str, Any]) -> str | None:
    """What the paired sign test says, where every width says the same."""
    answers: dict[str, set[str]] = {}
    for width in record["widths"]:
        for tensor, closeness in width.get("closer_to_reference", {}).items():
            answers.setdefault(tensor, set()).add(closeness["answer"])
    told = []
    for tensor, found in answers.items():
        if found == {"closer"}:
            told.append(f"{tensor} closer to FP64")
        elif found == {"farther"}:
            told.append(f"{tensor} farther from FP64")
        elif "closer" in found and "farther" in found:
            told.append(f"{tensor} closer to FP64 at some widths and farther at others")
    return ", ".join(told) if told else None


def _sets(record: Mapping[str, Any]) -> str | None:
    """The classes of the sets that differ, over all widths."""
    counts: dict[str, int] = {}
    rows = 0
    for width in record["widths"]:
        rows += width["rows"]
        for name, count in width["counts"].items():
            if name not in ("identical", "reordered") and count:
                counts[name] = counts.get(name, 0) + count
    if not rows:
        return None
    if not counts:
        return f"expert sets the same on all {rows:,} rows x ranks x widths"
    kinds = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
    return f"of {rows:,} rows x ranks x widths: {kinds}"
