"""The exchange of a path as a black box: it is fed partials, and its latent is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import BFLOAT16, Bf16, FrontWeights, Launch, Path
from ..launching import refusal, run_path
from .order import Order
from .probe import NoFixedTree, Prober, SumFunction, term_format
from .recover import confirmed, joint_sizes, no_tree, tree_of
from .transport import Transport, check_placed_transport
from .tree import pairs

_FORMAT: Final = term_format("bf16")
_TRIALS: Final = 16
# One call holds all pairs: an order that is drawn anew for each call shows in calls of one pair.
_ASKED_ALONE: Final = 16
# Elements of partials in one call: 64 MiB.
_MOST_FED: Final = 1 << 25


@dataclass(frozen=True, slots=True)
class ExchangeOrder:
    """An order of a path's exchange, and where it was seen.

    Attributes:
        order: over the ranks' partials.
        ranks: on which ranks.
        elements: of the launch's message, [width * latent] on each of those ranks.
        first, last: the lowest and highest such element.
    """

    order: Order
    ranks: tuple[int, ...]
    elements: int
    first: int
    last: int

    def where(self, ranks: int, places: int) -> str:
        """Return the place in words, for a message of so many elements."""
        who = "all ranks" if len(self.ranks) == ranks else f"rank {_listed(self.ranks)}"
        if self.elements == places:
            return who
        if self.last - self.first + 1 == self.elements:
            return f"{who}, elements {self.first}..{self.last}"
        return f"{who}, {self.elements} of the elements {self.first}..{self.last}"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


class Exchange:
    """Feeds partials to a path's exchange; ``refusal`` says why it cannot, or is empty."""

    def __init__(
        self, path: Path, geometry: Geometry, scoring: ScoringRule, ranks: int, width: int
    ) -> None:
        self.path, self.ranks, self.width = path, ranks, width
        self._geometry, self._scoring = geometry, scoring
        self.places = width * geometry.latent
        self.refusal = self._refused()

    def _refused(self) -> str:
        if "latent" not in self.path.outputs:
            return f"{self.path.name} shows no latent"
        if self.path.declared.latent_schedule == "gather":
            return f"{self.path.name} declares that it copies full sums: there are no partials"
        if not self._geometry.latent:
            return "the model has no latent projection"
        if self.ranks == 1:
            return "one rank exchanges nothing"
        return refusal([self.path], self._launch(np.zeros((self.ranks, 1, self.places), BFLOAT16)))

    def feed(self, partials: Bf16) -> Bf16:
        """Return the latent [rank, launch, place] BF16 of partials of the same shape.

        Args:
            partials: one launch's message a launch: place is row of the launch times latent.

        Raises:
            PathError: the path raised.
        """
        step = max(1, _MOST_FED // (self.ranks * self.places))
        parts = [
            self._run(partials[:, first : first + step])
            for first in range(0, partials.shape[1], step)
        ]
        return np.concatenate(parts, axis=1)

    def _run(self, partials: Bf16) -> Bf16:
        latent = run_path(self.path, self._launch(partials)).latent
        assert latent is not None
        return latent.reshape(partials.shape)

    def _launch(self, partials: Bf16) -> Launch:
        geometry, rows = self._geometry, partials.shape[1] * self.width
        # Nothing is asked of the select; every expert has a score of its own.
        logits = np.linspace(-4, 4, geometry.experts, dtype=np.float32)
        return Launch(
            geometry=geometry,
            scoring=self._scoring,
            ranks=self.ranks,
            width=self.width,
            weights=FrontWeights(router=None, bias=np.zeros(geometry.experts, np.float32)),
            row_index=np.arange(rows, dtype=np.int64),
            latent_partials=np.ascontiguousarray(partials).reshape(
                self.ranks, rows, geometry.latent
            ),
            logits=np.broadcast_to(logits, (rows, geometry.experts)).copy(),
        )

    def everywhere(self, terms: npt.NDArray[Any]) -> Bf16:
        """Return the latent [rank, launch, place] where launch k has ``terms[k]`` at every place.

        Args:
            terms: [launch, rank], one term a rank.
        """
        values = terms.T.astype(BFLOAT16)[:, :, None]
        return self.feed(np.broadcast_to(values, (*values.shape[:2], self.places)))


class _Readings:
    """Sums at chosen ranks and places; one call serves all that ask for the same terms."""

    def __init__(self, exchange: Exchange, ranks: list[int], places: list[int]) -> None:
        self._exchange, self._ranks, self._places = exchange, ranks, places
        self._kept: dict[bytes, npt.NDArray[np.float64]] = {}

    def at(self, number: int) -> SumFunction:
        """Return the sum at the chosen place of that number, as a function of the ranks' terms."""

        def total(terms: npt.NDArray[Any]) -> float:
            key = terms.tobytes()
            if key not in self._kept:
                latent = self._exchange.everywhere(terms[None])[:, 0]
                self._kept[key] = latent[self._ranks, self._places].astype(np.float64)
            return float(self._kept[key][number])

        return total


def recover_exchange(exchange: Exchange) -> list[ExchangeOrder]:
    """Return the orders in which a path adds the ranks' partials, the most frequent first.

    All pairs are probed at every element of the message at once, twice; elements on which all pairs
    agree share an order, whose bits and random sums are then asked at one of them.

    Raises:
        InputError: more ranks than BF16 counts exactly.
        PathError: the path raised.
    """
    ranks = exchange.ranks
    if ranks - 2 > _FORMAT.most_units:
        expected = f"at most {_FORMAT.most_units + 2}"
        raise InputError("ranks", ranks, expected, "recover_exchange: BF16 counts exactly to 256")
    every = list(pairs(ranks))
    masks = np.full((len(every), ranks), _FORMAT.unit)
    for launch, (i, j) in enumerate(every):
        masks[launch, [i, j]] = _FORMAT.huge, -_FORMAT.huge
    first, again = exchange.everywhere(masks), exchange.everywhere(masks)
    members: dict[tuple[float, ...], list[tuple[int, npt.NDArray[np.int64]]]] = {}
    for rank in range(ranks):
        # A signalling NaN, such as poison that a path left, is no reason to warn.
        with np.errstate(invalid="ignore"):
            shown = first[rank].T.astype(np.float32)
            changes = (first[rank] != again[rank]).any(axis=0)
        # [place, pair]; -1 for what is no number, and all over a place that changes between calls.
        shown[np.isnan(shown)] = -1.0
        shown[changes] = -1.0
        kinds, group = np.unique(shown, axis=0, return_inverse=True)
        for number, kind in enumerate(kinds):
            key = tuple(map(float, kind))
            places = np.flatnonzero(group.ravel() == number)
            members.setdefault(key, []).append((rank, places))
    chosen = [(where[0][0], int(where[0][1][0])) for where in members.values()]
    readings = _Readings(exchange, [rank for rank, _ in chosen], [place for _, place in chosen])
    found = [
        _order(Prober(readings.at(number), ranks, _FORMAT), key, where)
        for number, (key, where) in enumerate(members.items())
    ]
    return sorted(found, key=lambda one: (-one.elements * len(one.ranks), one.ranks, one.first))


def _order(
    prober: Prober,
    units: tuple[float, ...],
    members: list[tuple[int, npt.NDArray[np.int64]]],
) -> ExchangeOrder:
    """The order of all places that returned ``units`` [pair], given as places by rank."""
    places = np.unique(np.concatenate([places for _, places in members]))
    return ExchangeOrder(
        _of_units(np.array(units), prober),
        tuple(rank for rank, _ in members),
        len(places),
        int(places[0]),
        int(places[-1]),
    )


def _of_units(units: npt.NDArray[np.float64], prober: Prober) -> Order:
    ranks, prober.probes = prober.count, 2 * len(units)
    if (units < 0).any():
        reason = "a sum changes between two calls with the same partials, or is no count of units"
        return no_tree(prober, reason)
    whole = ranks - units
    if (whole != np.floor(whole)).any() or whole.min() < 2 or whole.max() > ranks:
        return no_tree(prober, "a sum of units beside two opposite huge terms is no whole number")
    sizes = dict(zip(pairs(ranks), whole.astype(int).tolist(), strict=True))
    if ranks > 2 and set(sizes.values()) == {2}:
        return no_tree(prober, "no unit is swallowed: the partials are added exactly")
    try:
        tree = tree_of(lambda i, j: sizes[min(i, j), max(i, j)], ranks)
        if joint_sizes(tree) != sizes:
            raise NoFixedTree("pairs that the tree did not need are not in it")
        for pair in list(sizes)[:_ASKED_ALONE]:
            if prober.joint_size(*pair) != sizes[pair]:
                raise NoFixedTree(f"terms {pair} share another part in a call of their own")
    except NoFixedTree as broken:
        return no_tree(prober, str(broken))
    return confirmed(tree, prober, _TRIALS)


def exchange_transport(exchange: Exchange) -> Transport:
    """Return whether every rank's partial arrives once, in its place, on every rank.

    Raises:
        PathError: the path raised.
    """

    def sums(terms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(invalid="ignore"):
            return exchange.feed(terms[:, None, :])[:, 0].astype(np.float64)

    return check_placed_transport(sums, exchange.ranks, exchange.places)
