"""In which order a path's exchange adds the ranks' partials, and whether all of them arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..launching import PathError
from .asked import Asked
from .attribution import GATHER, Attribution, contradiction
from .exchange import Exchange, ExchangeOrder, exchange_transport, recover_exchange
from .schedules import attribute_schedule, telling_partials
from .section import NotRun, Section
from .transport import Transport
from .tree import drawing

_TELLING_LAUNCHES: Final = 4
_MOST_LISTED: Final = 16


@dataclass(frozen=True, slots=True)
class ExchangeSection:
    """The exchange of one path, fed with probes.

    Attributes:
        role, path, declared: of the path.
        geometry: name of the geometry.
        ranks, places: of a launch's message.
        orders: every order that shows, the most frequent first.
        found: the schedule that its sums of cancelling partials show.
        contradiction: how that speaks against the declared one; empty where it does not.
        transport: whether whole numbers arrive.
    """

    role: str
    path: str
    declared: str | None
    geometry: str
    ranks: int
    places: int
    orders: tuple[ExchangeOrder, ...]
    found: Attribution
    contradiction: str
    transport: Transport

    @property
    def title(self) -> str:
        """Heading of one line."""
        return _title(self.role, self.path, self.geometry)

    @property
    def exit_status(self) -> int:
        """1 where terms are lost or the declared schedule is contradicted, else 0."""
        return 1 if self.contradiction or self.transport.wrong else 0

    def lines(self) -> list[str]:
        """Return the schedule, the orders with the first one drawn, and the transport."""
        lines = [f"fed with partials that cancel: {self.found.text()}"]
        if self.contradiction:
            lines.append(f"CONTRADICTION: {self.contradiction}")
        for group in self.found.always_equal:
            if not set(group) & set(self.found.names):
                continue
            lines.append(f"the same arithmetic for {self.ranks} ranks: {', '.join(group)}")
        for one in self.orders[:_MOST_LISTED]:
            lines.append(f"{one.where(self.ranks, self.places)}: {one.order.text()}")
        if len(self.orders) > _MOST_LISTED:
            lines.append(f"and {len(self.orders) - _MOST_LISTED:,} more orders")
        tree = self.orders[0].order.tree
        if tree is not None:
            names = {rank: f"rank {rank}" for rank in range(self.ranks)}
            lines += [f"  {line}" for line in drawing(tree, names)]
        return [*lines, self.transport.text()]

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "role": self.role,
            "path": self.path,
            "declared": self.declared,
            "geometry": self.geometry,
            "attribution": self.found.figures(),
            "contradiction": self.contradiction,
            "orders": [
                {
                    "ranks": list(one.ranks),
                    "elements": one.elements,
                    "first": one.first,
                    "last": one.last,
                    **one.order.figures(),
                }
                for one in self.orders
            ],
            "transport": self.transport.figures(),
        }


def _title(role: str, path: str, geometry: str) -> str:
    return f"Exchange of {role} {path} at {geometry} sizes"


def exchange_sections(asked: Asked) -> Iterator[Section]:
    """Yield a section a path and geometry: its exchange as a black box."""
    for geometry, bank in asked.geometries():
        for role, path in asked.paths.items():
            exchange = Exchange(path, geometry, bank.scoring, asked.ranks, asked.width)
            title = _title(role, path.name, geometry.name)
            if exchange.refusal:
                idle = path.declared.latent_schedule == GATHER or asked.ranks == 1
                yield NotRun(title, exchange.refusal, exit_status=0 if idle else 3)
                continue
            try:
                yield _section(role, exchange, geometry.name, geometry.latent)
            except PathError as error:
                yield NotRun(title, str(error))


def _section(role: str, exchange: Exchange, geometry: str, latent: int) -> ExchangeSection:
    path, declared = exchange.path, exchange.path.declared.latent_schedule
    rows = _TELLING_LAUNCHES * exchange.width
    partials = telling_partials(exchange.ranks, rows, latent)
    message = partials.reshape(exchange.ranks, _TELLING_LAUNCHES, exchange.places)
    sums = exchange.feed(message).reshape(partials.shape)
    also = [declared] if declared is not None and declared.startswith("two_level") else []
    found = attribute_schedule(partials, sums, width=exchange.width, also=also)
    return ExchangeSection(
        role=role,
        path=path.name,
        declared=declared,
        geometry=geometry,
        ranks=exchange.ranks,
        places=exchange.places,
        orders=tuple(recover_exchange(exchange)),
        found=found,
        contradiction=contradiction(declared, found),
        transport=exchange_transport(exchange),
    )
