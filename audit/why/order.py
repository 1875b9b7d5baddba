"""What is known of the order in which a sum adds its terms, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .tree import MOST_BITS, Tree, drawing, inner_nodes, one_line

State = Literal["tree", "exact", "unconfirmed", "none"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is known of the order of a sum.

    Attributes:
        terms: how many.
        dtype: of the terms.
        state: ``tree``: the tree below gives the same bits on random terms; ``exact``: the sum of
            all terms is rounded once, so it has no order; ``unconfirmed``: a tree, but random terms
            do not give its bits, or its additions keep bits of no format; ``none``: no fixed tree
            of additions rounded to nearest gives these sums, or the probes do not fit them.
        reason: for ``unconfirmed`` and ``none``: what speaks against a tree.
        tree: with the bits that each sum keeps; None for ``exact`` and ``none``.
        names: named orders with the same additions, plainest first.
        probes: sums that were asked for.
        reproduced, trials: random sums that the tree gives bit for bit, and all of them.
    """

    terms: int
    dtype: str
    state: State
    reason: str
    tree: Tree | None
    names: tuple[str, ...]
    probes: int
    reproduced: int
    trials: int

    def text(self) -> str:
        """Return the answer in one line."""
        if self.state == "exact":
            return f"no order: the {self.terms} terms are added exactly and rounded once"
        if self.state == "none" or self.tree is None:
            return f"no tree recovered: {self.reason}"
        name = self.names[0] if self.names else "an order without a name"
        doubt = f"; not confirmed: {self.reason}" if self.state == "unconfirmed" else ""
        return f"{name}{_bits_text(self.tree)}{doubt}"

    def lines(self) -> list[str]:
        """Return the answer and the drawing of the tree."""
        return [self.text(), *([] if self.tree is None else drawing(self.tree))]

    def figures(self) -> dict[str, Any]:
        """Return JSON values; ``tree`` as brackets."""
        return {
            "terms": self.terms,
            "dtype": self.dtype,
            "state": self.state,
            "reason": self.reason,
            "tree": None if self.tree is None else one_line(self.tree),
            "bits": None if self.tree is None else bits_of(self.tree),
            "names": list(self.names),
            "probes": self.probes,
            "reproduced": self.reproduced,
            "trials": self.trials,
        }


def bits_of(tree: Tree) -> list[int | None]:
    """Return the bits of each sum, those of a part before those of the whole."""
    return [one.bits for one in inner_nodes(tree)]


def _bits_text(tree: Tree) -> str:
    kept = bits_of(tree)
    if not kept:
        return ""
    inner = sorted({_kept_text(bits) for bits in kept[:-1]}, key=lambda text: (len(text), text))
    last = _kept_text(kept[-1])
    if not inner or inner == [last]:
        return f", {last} bits kept by each sum"
    return f", {' or '.join(inner)} bits kept inside, {last} by the whole"


def _kept_text(bits: int | None) -> str:
    return "all" if bits is not None and bits >= MOST_BITS else str(bits)
