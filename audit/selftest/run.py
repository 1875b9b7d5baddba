"""Run the self-test: every fault and every clean pair, at every width and rank count."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import resource_tracker

from ...banks.errors import InputError
from ...interrupts import shielded
from ...kernels.contract import check_width
from .catalogue import CATALOGUE
from .cells import Cell, CellResult, run_clean, run_fault
from .fault import Fault
from .score import Score

WIDTHS = (1, 9, 12, 16, 20)
RANKS = (1, 4, 8)

Progress = Callable[[int, int, str], None]


def selftest(
    *,
    widths: Sequence[int] = WIDTHS,
    ranks: Sequence[int] = RANKS,
    only: str | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Score:
    """Plant every fault of the catalogue, audit each, and score what the audits said.

    Args:
        widths: rows per launch, each in 1..20.
        ranks: tensor-parallel rank counts, each a divisor of 64 (the smallest bank's axis).
        only: name of one fault; None plants all of them.
        workers: processes. A script that asks for more than 1 must start from
            ``if __name__ == "__main__"``, as for any ``multiprocessing``.
        progress: called with (audits done, audits in all, text).

    Raises:
        InputError: a width, rank count or fault that there is not. Nothing was run.
    """
    cells = planned(_checked(widths, ranks), only)
    started = time.monotonic()
    results: dict[Cell, CellResult] = {}
    for result in _results(cells, workers):
        results[result.cell] = result
        if progress is not None:
            progress(len(results), len(cells), result.cell.fault or "clean pairs")
    return Score(
        tuple(results[cell] for cell in cells),
        tuple(widths),
        tuple(ranks),
        time.monotonic() - started,
    )


def planned(settings: Sequence[tuple[int, int]], only: str | None = None) -> list[Cell]:
    """Return the cells of a self-test: faults in the order of the catalogue, then clean pairs.

    Args:
        settings: (width, ranks).
        only: name of one fault, or None.

    Raises:
        InputError: no fault has that name.
    """
    faults = [fault for fault in CATALOGUE if only in (None, fault.name)]
    if not faults:
        names = ", ".join(fault.name for fault in CATALOGUE)
        raise InputError("fault", only, f"one of {names}", "selftest")
    scenes = dict.fromkeys(scene.name for fault in faults for scene in fault.scenes)
    planted = [
        Cell(scene.name, fault.name, width, count)
        for fault in faults
        for scene in fault.scenes
        for width, count in settings
    ]
    return [*planted, *(Cell(name, None, *setting) for name in scenes for setting in settings)]


def run_cell(cell: Cell) -> CellResult:
    """Run one audit of the self-test."""
    faults = [fault for fault in CATALOGUE if cell.fault in (None, fault.name)]
    fault, scene = next(
        (fault, scene) for fault in faults for scene in fault.scenes if scene.name == cell.scene
    )
    if cell.fault is None:
        return run_clean(scene, cell.width, cell.ranks)
    return run_fault(fault, scene, cell.width, cell.ranks)


def fault_named(name: str) -> Fault:
    """The fault of the catalogue with this name."""
    return next(fault for fault in CATALOGUE if fault.name == name)


def _checked(widths: Sequence[int], ranks: Sequence[int]) -> list[tuple[int, int]]:
    for what, values in (("widths", widths), ("ranks", ranks)):
        if not values or len(set(values)) != len(values):
            raise InputError(what, list(values), "at least one, each once", "selftest")
    for width in widths:
        check_width(width, "selftest widths")
    for count in ranks:
        if count < 1 or 64 % count:
            raise InputError("ranks", count, "a divisor of 64", "selftest")
    return [(width, count) for width in widths for count in ranks]


def _results(cells: Sequence[Cell], workers: int) -> Iterator[CellResult]:
    if workers == 1:
        yield from map(run_cell, cells)
        return
    context = multiprocessing.get_context("spawn")
    # Its own start would lift the shield.
    resource_tracker.ensure_running()
    with ProcessPoolExecutor(workers, context, _start_worker) as pool:
        try:
            with shielded():
                futures = [pool.submit(run_cell, cell) for cell in cells]
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """A worker whose parent was killed would wait for ever."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
