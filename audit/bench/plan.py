"""What a bench times: which arms at which widths, and what cannot be timed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...banks.errors import InputError
from ...banks.geometry import PRESETS
from ...kernels.contract import check_width
from ...kernels.ranks.group import why_not
from ...kernels.ranks.spec import BACKENDS, parse_rank_spec
from ...kernels.timing import LEAST_BLOCKS, LEAST_REPLAYS

DEFAULT_WIDTHS: Final = (1, 8, 9, 12, 16, 20)
DEFAULT_STEPS: Final = 8
_MOST_STEPS: Final = 64
SELECT: Final = "select"
"""The kind of an arm that is a top-k alone, such as ``select:topk_sigmoid``."""


@dataclass(frozen=True)
class Case:
    """Two arms at one width, or why they are not timed.

    ``baseline`` and ``candidate`` are path specs on real ranks, or ``select:NAME``.
    """

    width: int
    baseline: str
    candidate: str
    reason: str | None = None


@dataclass(frozen=True)
class BenchPlan:
    """A bench, the same on every rank.

    Attributes:
        geometry: a preset's name.
        ranks: processes.
        device: ``cuda``, or ``cpu`` to try the method out.
        cases: what to time.
        replays, blocks: runs in a block, and blocks of each arm.
        steps: steps in one run; a run's time is divided by it.
        seed: of the inputs.
    """

    geometry: str
    ranks: int
    device: str
    cases: tuple[Case, ...]
    replays: int
    blocks: int
    steps: int
    seed: int = 0


def make_bench(
    *,
    geometry: str = "k3",
    ranks: int = 2,
    device: str = "cuda",
    widths: Sequence[int] = DEFAULT_WIDTHS,
    transports: Sequence[str] | None = None,
    row_blocks: Sequence[int] = (1, 2),
    replays: int = LEAST_REPLAYS,
    blocks: int = LEAST_BLOCKS,
    steps: int = DEFAULT_STEPS,
) -> BenchPlan:
    """Return the plan: the general path against the route path in each transport, at each width.

    Raises:
        InputError: a value that is refused; fewer replays or blocks than the method asks for.
    """
    if device not in BACKENDS:
        raise InputError("device", device, f"one of {', '.join(BACKENDS)}", "bench")
    if geometry not in PRESETS:
        raise InputError("geometry", geometry, f"one of {', '.join(PRESETS)}", "bench")
    shape = PRESETS[geometry][0]
    if not shape.latent:
        raise InputError("geometry", geometry, "one with a latent projection", "bench")
    shape.check_ranks(ranks)
    if not widths or len(set(widths)) != len(widths):
        raise InputError("rows", list(widths), "each width once", "bench")
    for width in widths:
        check_width(width, "bench")
    for what, value, least in (
        ("replays", replays, LEAST_REPLAYS),
        ("blocks", blocks, LEAST_BLOCKS),
        ("steps", steps, 2),
    ):
        if value < least:
            raise InputError(what, value, f"at least {least}", "bench")
    if steps > _MOST_STEPS:
        raise InputError("steps", steps, f"at most {_MOST_STEPS}", "bench")
    library = BACKENDS[device]
    carried = transports or (("push", "pull", library) if device == "cuda" else (library,))
    routes = _routes(carried, row_blocks, device)
    reason = why_not(device, ranks)
    cases = [case for width in widths for case in _cases(width, routes, reason, ranks, device)]
    return BenchPlan(geometry, ranks, device, tuple(cases), replays, blocks, steps)


def _routes(transports: Sequence[str], row_blocks: Sequence[int], device: str) -> list[str]:
    """Canonical specs; row blocks are no matter of a library's all-gather."""
    specs = []
    for transport in transports:
        library = transport in BACKENDS.values()
        for number in (1,) if library else row_blocks:
            blocks = "" if library else f",row_blocks={number}"
            specs.append(parse_rank_spec(f"route:transport={transport}{blocks}", device).name)
    return list(dict.fromkeys(specs))


def _cases(
    width: int, routes: Sequence[str], reason: str | None, ranks: int, device: str
) -> list[Case]:
    general = parse_rank_spec("general", device)
    route = parse_rank_spec(routes[0], device)
    selects = [f"{SELECT}:{spec.rule(width).name}" for spec in (general, route)]
    alone = "one rank has nobody to exchange with: an exchange needs 2 GPUs" if ranks < 2 else None
    return [
        *(Case(width, general.name, name, reason or alone) for name in routes),
        Case(width, selects[0], selects[1], reason),
    ]
