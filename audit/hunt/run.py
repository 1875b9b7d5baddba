"""Look for rows whose difference the policy fails: the call behind ``neartie hunt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ...banks.bank import Bank
from ...banks.errors import EnvelopeError, InputError
from ...banks.open import open_bank
from ...interrupts import heard
from ...kernels.contract import Path, check_width
from ...kernels.registry import as_path
from ..environment import environment
from ..gate.shard import at_logits, logits_of
from ..policy import Policy, effective_policy
from .arena import Arena, prepared
from .minimise import as_found, minimise
from .record import HuntResult
from .scene import Scene
from .search import Budget, Progress, Search
from .space import Space
from .strategies import STRATEGIES
from .strategies.base import Strategy
from .witness import Witness, make_witness

DEFAULT_BANK: Final = "k3-mini/layer0"
DEFAULT_SECONDS: Final = 60.0
DEFAULT_WIDTH: Final = 12
SOURCE_ROWS: Final = 1024
"""Rows of the bank that strategies start from."""
THOROUGH: Final = 4
"""Findings that are made as small as can be; one fault shows in several, and these tell it."""
_SCENE_ROWS: Final = 384


def hunt(
    baseline: str | Path = "general",
    candidate: str | Path = "route",
    bank: str | Bank | None = None,
    *,
    geometry: str | None = None,
    seconds: float | None = None,
    rows: int | None = None,
    seed: int = 0,
    width: int = DEFAULT_WIDTH,
    ranks: int = 1,
    policy: Policy | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    keep_going: bool = False,
    progress: Progress | None = None,
    command: str = "neartie.hunt(...)",
) -> HuntResult:
    """Look for rows on which two paths differ as the policy does not allow.

    Rows start at the logits: what a path does before them is not searched. An interrupt ends the
    search and returns what was found so far.

    Args:
        baseline: the path that exists: a spec, ``module:Class``, or an object.
        candidate: the path that would replace it.
        bank: where real rows come from; None: ``k3-mini/layer0``, or generated ones of
            ``geometry``.
        geometry: preset or HxLxExK of generated rows instead of a bank.
        seconds: of the search, without making witnesses smaller; None: 60, or no limit where
            ``rows`` is given.
        rows: that are run; a hunt of so many rows repeats exactly.
        seed: of the strategies' random numbers.
        width: rows per launch, 1..20.
        ranks: tensor-parallel ranks; with more than 1 the paths gather shards where they can.
        policy: limits; None: the defaults.
        only: names of the strategies to use; none: all.
        skip: names of strategies to leave out.
        keep_going: spend the whole budget; else stop after the round that found something.
        progress: called with (done, in all, text).
        command: kept in the result.

    Raises:
        InputError: a bank, path, width, rank count, strategy or budget that is refused.
    """
    check_width(width, "hunt")
    budget = _budget(rows, seconds, keep_going)
    strategies = _chosen(only, skip)
    opened = _bank(bank, geometry)
    if opened.geometry.experts < 2:
        raise InputError("experts", opened.geometry.experts, "at least 2", opened.name)
    opened.geometry.check_ranks(ranks)
    limits = effective_policy(policy or Policy(), [opened])
    paths = as_path(baseline, "baseline"), as_path(candidate, "candidate")
    names = [
        given if isinstance(given, str) else path.name
        for given, path in zip((baseline, candidate), paths, strict=True)
    ]
    empty = HuntResult(
        names[0], names[1], source=opened.name, geometry=opened.geometry.name, seed=seed,
        width=width, ranks=ranks, stage="logits", policy=limits, command=command,
        environment=environment(),
    )  # fmt: skip
    source = logits_of(at_logits(opened, opened.read(0, min(opened.rows, SOURCE_ROWS))))
    bias = opened.weights.get("correction_bias", np.zeros(opened.geometry.experts, np.float32))
    first = Scene(source[: min(width, len(source))], bias, width, ranks)
    try:
        arena = prepared(*paths, opened.geometry, opened.scoring, limits, first)
    except EnvelopeError as error:
        return replace(empty, not_run=str(error.got))
    search = Search(arena, budget, seed, progress)
    interrupted = False
    try:
        search.run(
            lambda probe: Space(
                opened.geometry, opened.scoring, source, bias, width, ranks,
                -(-_SCENE_ROWS // width) * width, probe,
            ),
            strategies,
        )  # fmt: skip
    except KeyboardInterrupt:
        heard()
        interrupted = True
    found, stopped = _witnesses(arena, search, command, thorough=not interrupted)
    return replace(
        empty,
        stage="shards" if arena.sharded else "logits",
        rows=search.rows,
        seconds=search.seconds,
        tried=search.tried,
        found=found,
        interrupted=interrupted or stopped,
    )


def _witnesses(
    arena: Arena, search: Search, command: str, *, thorough: bool
) -> tuple[tuple[Witness, ...], bool]:
    """Witnesses of all findings, and whether an interrupt left some as they were found."""
    witnesses, stopped = [], False
    for number, (signature, one) in enumerate(search.found.items()):
        smallest = as_found(one)
        try:
            if not stopped:
                smallest = minimise(arena, one, thorough=thorough and number < THOROUGH)
        except KeyboardInterrupt:
            heard()
            stopped = True
        count = search.counts[signature]
        witnesses.append(make_witness(arena, one, smallest, count, command))
    return tuple(witnesses), stopped


def _budget(rows: int | None, seconds: float | None, keep_going: bool) -> Budget:
    if rows is not None and rows < 1:
        raise InputError("rows", rows, "at least 1", "hunt")
    if seconds is not None and not 0.0 < seconds < float("inf"):
        raise InputError("seconds", seconds, "a number above 0", "hunt")
    if rows is None and seconds is None:
        seconds = DEFAULT_SECONDS
    return Budget(rows, seconds, keep_going)


def _chosen(only: Sequence[str], skip: Sequence[str]) -> list[Strategy]:
    for what, names in (("only", only), ("skip", skip)):
        for name in names:
            if name not in STRATEGIES:
                raise InputError(what, name, f"one of {', '.join(STRATEGIES)}", "hunt")
    chosen = [s for name, s in STRATEGIES.items() if (not only or name in only)]
    chosen = [s for s in chosen if s.name not in skip]
    if not chosen:
        raise InputError("strategies", "none", "at least one", "hunt")
    return chosen


def _bank(bank: str | Bank | None, geometry: str | None) -> Bank:
    if bank is not None and geometry is not None:
        raise InputError("geometry", geometry, "left out where a bank is given", "hunt")
    if isinstance(bank, Bank):
        return bank
    if geometry is not None:
        return open_bank(f"gaussian:geometry={geometry},stage=logits,rows={SOURCE_ROWS}")
    return open_bank(DEFAULT_BANK if bank is None else bank)
