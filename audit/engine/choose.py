"""From the words of a command line to an engine."""

from __future__ import annotations

from ...banks.errors import InputError
from .contract import ENGINES, Engine
from .local import LocalEngine
from .ray_engine import RayEngine


def make_engine(
    name: str = "local", workers: int | None = None, address: str | None = None
) -> Engine:
    """Return an engine; nothing is started.

    Args:
        name: ``local`` or ``ray``.
        workers: parts that run at a time; None takes one process here, or all of a Ray cluster.
        address: of a Ray cluster that runs; None starts one on this machine (or takes the one that
            ``RAY_ADDRESS`` names).

    Raises:
        InputError: an unknown engine, fewer than one worker, an address without Ray, or Ray is not
            installed.
    """
    if name not in ENGINES:
        raise InputError("engine", name, " or ".join(ENGINES), "--engine")
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1", "--workers")
    if name == "ray":
        return RayEngine(workers, address)
    if address is not None:
        raise InputError("address", address, "left out without --engine ray", "--address")
    return LocalEngine(1 if workers is None else workers)
