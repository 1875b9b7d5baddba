"""Which declared reduction schedule an unnamed latent output was made by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...kernels.contract import BFLOAT16, F64, Bf16
from ...kernels.reduce import SCHEDULES, run_schedule
from ...kernels.rounding import narrow, to_fp64
from ..metrics.values import log_ratio
from .attribution import GATHER, Attribution, ScheduleMatch, full_name
from .schedule_inputs import check_inputs
from .schedule_trees import schedule_arithmetic

STANDARD_ERRORS: Final = 4
"""A triangle fits when no side is off by more standard errors of a relative RMS, 1 / sqrt(2 n)."""


def candidates(ranks: int) -> list[str]:
    """Return the schedules that run here for a number of ranks.

    ``two_level`` with one island, or with one rank in each, is ``one_shot_fp32`` by another name,
    and left out but for two ranks.
    """
    names = [name for name, one in SCHEDULES.items() if one.unavailable is None]
    names.remove("two_level")
    proper = [k for k in range(2, ranks // 2 + 1) if ranks % k == 0]
    islands = [2] if ranks == 2 else proper
    return [*names, *(f"two_level:{k}" for k in islands)]


def telling_partials(ranks: int, rows: int, latent: int, seed: int = 0) -> Bf16:
    """Return partials [rank, row, latent] BF16 on which orders and roundings show.

    Sizes are spread over 2^24, and in each sum the partials of two ranks, drawn for it, cancel:
    what was rounded away beside them stays lost. Sums of BF16 partials of one size are exact in
    FP32.
    """
    random = np.random.default_rng(seed)
    shape = (ranks, rows, latent)
    values = random.standard_normal(shape) * np.exp2(random.integers(-12, 13, shape))
    if ranks > 2:
        first = random.integers(0, ranks, shape[1:])
        second = (first + random.integers(1, ranks, shape[1:])) % ranks
        large = random.standard_normal(shape[1:]) * 2.0**14
        row, column = np.indices(shape[1:])
        values[first, row, column], values[second, row, column] = large, -large
    return values.astype(BFLOAT16)


def attribute_schedule(
    partials: Bf16,
    observed: Bf16,
    *,
    reference: F64 | None = None,
    width: int | None = None,
    seen: Sequence[int] | None = None,
    also: Sequence[str] = (),
    rows: int | None = None,
) -> Attribution:
    """Return which schedule made ``observed`` of ``partials``, with nothing else known of it.

    Every schedule is run on the partials. Agreement is counted bit for bit, and as a triangle:
    distances of the result from the reference and from the reference rounded once, no law of the
    partials assumed.

    Args:
        partials: [rank, row, latent] BF16 of all ranks.
        observed: [seen rank, row, latent] BF16, each rank's latent after the exchange.
        reference: [row, latent] FP64, the exact latent; None takes the FP64 sum of the partials.
        width: rows per launch, which ``ring_bf16`` needs; rows are whole launches then.
        seen: the ranks that ``observed`` is of; None: all of them.
        also: further schedules to try, such as a declared ``two_level:8``.
        rows: count only so many first rows (the others fill up a launch).

    Raises:
        InputError: types or shapes that do not fit, a number out of range, a schedule that is not
            known or cannot run.
    """
    given = check_inputs(partials, observed, reference, width, seen, also, rows)
    ranks, places, kept = given.ranks, given.seen, slice(0, given.counted)
    exact = to_fp64(partials).sum(axis=0) if reference is None else reference
    names = [*candidates(ranks)]
    further = dict.fromkeys(full_name(name) for name in also)
    names += [name for name in further if name not in {*names, GATHER}]
    notes = []
    if width is None and ranks > 2:
        names.remove("ring_bf16")
        notes.append(
            "ring_bf16 was not tried: it cuts the message of a launch, whose width is unknown"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        once = narrow(exact.astype(np.float32))
    results = {name: run_schedule(name, partials, width or 1)[list(places)] for name in names}
    if reference is not None or GATHER in also:
        results[GATHER] = np.broadcast_to(once, (len(places), *once.shape))
    return _judged(
        {name: result[:, kept] for name, result in results.items()},
        observed[:, kept],
        (exact[kept], once[kept]),
        ranks,
        places,
        notes,
    )


def _judged(
    results: dict[str, Bf16],
    observed: Bf16,
    corners: tuple[F64, Bf16],
    ranks: int,
    seen: tuple[int, ...],
    notes: list[str],
) -> Attribution:
    tolerance = STANDARD_ERRORS / math.sqrt(2 * observed[0].size)
    shown = _sides(observed, *corners)
    matches = [
        _match(name, result, observed, corners, shown, tolerance)
        for name, result in results.items()
    ]
    # The first of equals is the plainest: the sort is stable.
    matches.sort(key=lambda m: (-m.equal, math.inf if m.apart is None else m.apart))
    same = tuple(m.schedule for m in matches if m.equal == observed.size)
    always, here = _groups(results, ranks)
    return Attribution(
        answer="none fits" if not same else "identified" if len(same) == 1 else "one of",
        names=same,
        nearest=matches[0].schedule,
        always_equal=always,
        equal_here=here,
        notes=(*notes, *_advice(same, here, seen, ranks)),
        ranks=ranks,
        seen=seen,
        rows=observed.shape[1],
        elements=observed.size,
        observed=shown,
        tolerance=tolerance,
        matches=tuple(matches),
    )


def _match(
    name: str,
    result: Bf16,
    observed: Bf16,
    corners: tuple[F64, Bf16],
    shown: tuple[float, float],
    tolerance: float,
) -> ScheduleMatch:
    equal = result.view(np.uint16) == observed.view(np.uint16)
    predicted = _sides(result, *corners)
    off = max(log_ratio(a, b) for a, b in zip(shown, predicted, strict=True))
    norm = _norm(np.broadcast_to(corners[0], observed.shape))
    apart = _norm(to_fp64(observed) - to_fp64(result)) / norm if norm else math.nan
    return ScheduleMatch(
        schedule=name,
        equal=int(np.count_nonzero(equal)),
        equal_rows=int(np.count_nonzero(equal.all(axis=(0, 2)))),
        apart=apart if math.isfinite(apart) else None,
        predicted=predicted,
        off=off if math.isfinite(off) else None,
        fits=off <= tolerance,
    )


def _sides(result: Bf16, exact: F64, once: Bf16) -> tuple[float, float]:
    """Relative RMS of a result from the reference, and from the reference rounded once."""
    norm = _norm(np.broadcast_to(exact, result.shape))
    wide = to_fp64(result)
    if not norm:
        return math.nan, math.nan
    return _norm(wide - exact) / norm, _norm(wide - to_fp64(once)) / norm


def _groups(
    results: dict[str, Bf16], ranks: int
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Groups of the same arithmetic, and groups whose results merely have the same bits here."""
    arithmetic: dict[Any, list[str]] = {}
    bits: dict[bytes, list[str]] = {}
    for name, result in results.items():
        key = name if name == GATHER else schedule_arithmetic(name, ranks)
        arithmetic.setdefault(key, []).append(name)
        bits.setdefault(np.ascontiguousarray(result).tobytes(), []).append(name)
    always = tuple(tuple(group) for group in arithmetic.values() if len(group) > 1)
    here = tuple(
        tuple(group)
        for group in bits.values()
        if len(group) > 1 and not any(set(group) <= set(known) for known in always)
    )
    return always, here


def _advice(
    same: tuple[str, ...], here: tuple[tuple[str, ...], ...], seen: tuple[int, ...], ranks: int
) -> Iterator[str]:
    if ranks == 1:
        yield "one rank adds nothing: every schedule copies its partial"
        return
    group = next((set(g) for g in here if len({*g} & {*same}) > 1), set())
    orders = {"one_shot_fp32", "own_rank_first_fp32"}
    if orders <= group:
        if seen == (0,):
            yield (
                "rank 0 adds in rank order in both one_shot_fp32 and own_rank_first_fp32: the "
                "outputs of another rank are needed to tell them apart"
            )
        else:
            yield (
                "FP32 holds sums of BF16 partials of like size exactly, in any order: partials "
                "that cancel, or differ by 2^16 in size, tell FP32 orders apart"
            )
    elif group:
        yield "more rows, or partials of very different sizes, tell these apart"


def _norm(values: npt.NDArray[Any]) -> float:
    """Euclidean norm; numpy sums a row pairwise in one fixed order, fsum the rows exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(values).sum(axis=-1).ravel().tolist()
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
