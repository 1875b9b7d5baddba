"""Parts as Ray tasks: on this machine or on a cluster, GPUs asked for where the work needs them.

The driver writes the documents, so workers share no file system with it. It holds no more of them
than are in flight. A part whose worker or node is lost is run again by Ray, on another one; it is
the same part, so it ends with the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...banks.errors import InputError
from .contract import Part, RunPart, Work, WorkerError, write_whole
from .ray_cluster import connected, require_ray, starts_cluster

LOST_AT_MOST: Final = 3
"""Times that a part's worker may be lost, for each part."""
QUEUED_PER_SLOT: Final = 2
"""Parts handed to Ray for each that can run: one runs, one waits, so that no worker idles."""


@dataclass(frozen=True)
class RayEngine:
    """Tasks on a Ray cluster.

    Attributes:
        workers: parts that run at a time; None takes all that the cluster has room for.
        address: of a cluster that runs; None starts one here, see ``connected``.
    """

    workers: int | None = None
    address: str | None = None
    name = "ray"

    def __post_init__(self) -> None:
        require_ray()

    def slots(self, work: Work) -> int:
        """How many parts would run at a time, see ``Engine.slots``; starts no cluster."""
        if self.address is None and starts_cluster():
            return self.workers or os.cpu_count() or 1
        with connected(self.address, self.workers):
            room = _checked_room(work)
        return room if self.workers is None else min(room, self.workers)

    def run(self, work: Work, parts: Sequence[Part], done: Callable[[Part], None]) -> None:
        """Run all parts, see ``Engine.run``."""
        if not parts:
            return
        with connected(self.address, self.workers):
            import ray

            _checked_room(work)
            task = ray.remote(_run_part).options(
                num_cpus=1,
                num_gpus=work.gpus,
                max_retries=LOST_AT_MOST,
                # Over the nodes evenly; the default fills one node first.
                scheduling_strategy="SPREAD",
            )
            shared = ray.put(work)
            flight = _Flight(lambda part: task.remote(shared, part.number))
            try:
                for part, document in flight.documents(parts, lambda: self._in_flight(work)):
                    write_whole(part.path, document)
                    done(part)
            finally:
                flight.cancel()

    def _in_flight(self, work: Work) -> int:
        """How many parts Ray holds at a time, by what the cluster has now."""
        # One part waits where every node is lost for a while.
        room = max(1, _room(work))
        if self.workers is not None and self.workers < room:
            return self.workers
        return room * QUEUED_PER_SLOT


def _room(work: Work) -> int:
    """How many parts the cluster can run at a time, now."""
    import ray

    have: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(have.get("GPU", 0)) // work.gpus if work.gpus else int(have.get("CPU", 0))


def _checked_room(work: Work) -> int:
    room = _room(work)
    if room < 1:
        kind = "GPUs" if work.gpus else "CPUs"
        expected = f"at least the {max(1, work.gpus)} of one worker"
        raise InputError(f"{kind} of the cluster", "fewer", expected, "--engine ray")
    return room


class _Flight:
    """Tasks that were handed to Ray and have not come back."""

    def __init__(self, start: Callable[[Part], Any]) -> None:
        self._start = start
        self._parts: dict[Any, Part] = {}

    def documents(
        self, parts: Sequence[Part], most: Callable[[], int]
    ) -> Iterator[tuple[Part, bytes]]:
        """Yield documents as they come: a slow part holds up no other."""
        import ray

        todo = iter(parts)
        waiting = next(todo, None)
        while waiting is not None or self._parts:
            room = most() - len(self._parts)
            while waiting is not None and room > 0:
                self._parts[self._start(waiting)] = waiting
                waiting, room = next(todo, None), room - 1
            ready, _ = ray.wait(list(self._parts), num_returns=1)
            for reference in ready:
                part = self._parts.pop(reference)
                yield part, _document(reference, part)

    def cancel(self) -> None:
        """Stop what still runs: after an error or an interrupt nobody waits for it."""
        import ray

        for reference in self._parts:
            ray.cancel(reference, force=True)
        self._parts.clear()


def _document(reference: Any, part: Part) -> bytes:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        document = ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, InputError):
            raise cause from None
        text = f"part {part.number} failed by {type(cause).__name__}: {cause}"
        raise WorkerError(" ".join(text.split())) from error
    except RayError as error:
        text = f"part {part.number} lost its worker {LOST_AT_MOST + 1} times"
        raise WorkerError(f"{text} ({type(error).__name__})") from error
    assert isinstance(document, bytes)
    return document


_opened: dict[str, RunPart] = {}
"""In a worker process: the work that it runs, opened once."""


def _run_part(work: Work, number: int) -> bytes:
    if work.key not in _opened:
        _opened.clear()
        _opened[work.key] = work.open()
    return _opened[work.key](number)
