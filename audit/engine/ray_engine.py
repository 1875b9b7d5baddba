"""Calls of several parts as Ray tasks: here or on a cluster, with GPUs where the work needs them.

The driver writes the documents, so workers share no file system with it. It holds no more of them
than are in flight. The parts of a call whose worker or node is lost are handed out again; they are
the same parts, so they end with the same bits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from ...banks.errors import InputError
from ..launching import told
from .calls import CALL_SECONDS, Call, Handout
from .contract import Part, RunPart, Work, WorkerError, write_whole
from .ray_cluster import connected, require_ray, starts_cluster

LOST_AT_MOST: Final = 3
"""Times that a part's worker may be lost, for each part."""
QUEUED_PER_SLOT: Final = 2
"""Calls handed to Ray for each that can run: one runs, one waits, so that no worker idles."""
ROOM_SECONDS: Final = 1.0
"""The cluster's room is asked for no more often; it changes with its nodes."""
WAIT_SECONDS: Final = 0.25
"""How often the driver looks for late calls and new nodes while no call comes back."""
END_SECONDS: Final = 1.0
"""How long a worker may take to end a call that nobody needs when all is done."""


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
            task = ray.remote(_run_parts).options(
                num_cpus=1,
                num_gpus=work.gpus,
                # What is lost is handed out again here, where it is counted by part.
                max_retries=0,
                # Over the nodes evenly; the default fills one node first.
                scheduling_strategy="SPREAD",
            )
            shared = ray.put(work)
            slots = _Slots(work, self.workers)
            flight = _Flight(slots, lambda numbers: task.remote(shared, numbers))
            try:
                for part, document in flight.documents(parts):
                    write_whole(part.path, document)
                    done(part)
            finally:
                flight.end()


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


class _Slots:
    """How many calls run at a time, and how many Ray holds, by what the cluster has now."""

    def __init__(self, work: Work, workers: int | None) -> None:
        self._work, self._workers = work, workers
        self._room = 0
        self._asked = float("-inf")

    def running(self, now: float) -> int:
        """Calls that run at a time; at least one, which waits where every node is lost."""
        if now - self._asked > ROOM_SECONDS:
            self._room, self._asked = _room(self._work), now
        return max(1, self._room if self._workers is None else min(self._room, self._workers))

    def held(self, now: float) -> int:
        """Calls that Ray holds: where it has more room than we may take, those that run."""
        running = self.running(now)
        return running if running < self._room else running * QUEUED_PER_SLOT


class _Flight:
    """Calls that were handed to Ray and have not come back."""

    def __init__(self, slots: _Slots, start: Callable[[tuple[int, ...]], Any]) -> None:
        self._slots, self._start = slots, start
        self._calls: dict[Any, Call] = {}
        """By reference, in the order in which they were handed over: Ray runs them in it."""
        self._needless: list[Any] = []

    def documents(self, parts: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
        """Yield documents as they come, each part's once: a slow call holds up no other."""
        import ray

        handout = Handout(parts)
        while handout:
            self._hand_over(handout)
            ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=WAIT_SECONDS)
            for reference in ready:
                yield from self._come_back(handout, reference)
            self._drop(handout)

    def _come_back(self, handout: Handout, reference: Any) -> Iterator[tuple[Part, bytes]]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        call = self._calls.pop(reference)
        made: list[bytes]
        try:
            made, seconds = ray.get(reference)
        except RayTaskError as error:
            raise _own_error(error) from None
        except RayError as error:
            times = handout.lost(call)
            if times > LOST_AT_MOST:
                numbers = ", ".join(str(part.number) for part in call.parts)
                text = f"part {numbers} lost its worker {times} times"
                raise WorkerError(f"{text} ({type(error).__name__})") from error
            return
        documents = dict(zip((part.number for part in call.parts), made, strict=False))
        for part in handout.returned(call, len(made), seconds):
            yield part, documents[part.number]

    def _hand_over(self, handout: Handout) -> None:
        now = time.monotonic()
        running, held = self._slots.running(now), self._slots.held(now)
        # Those that were handed over first run, the others wait for them.
        for call in islice(self._calls.values(), running):
            call.began = now if call.began is None else call.began
        if not handout.waits and len(self._calls) < running:
            for call in self._calls.values():
                handout.hand_out_again(call, now)
        while handout.waits and len(self._calls) < held:
            call = handout.take(held)
            self._calls[self._start(tuple(part.number for part in call.parts))] = call

    def _drop(self, handout: Handout) -> None:
        """Put aside the calls whose parts others have finished.

        They are not cancelled: the interrupt may come while the worker is in its next call, and
        there become an error of the code that it meets.
        """
        for reference in [r for r, call in self._calls.items() if handout.is_over(call)]:
            del self._calls[reference]
            self._needless.append(reference)

    def end(self) -> None:
        """Stop what still runs: after an error or an interrupt nobody waits for it.

        A worker that still has a needless call is ended: it would keep its slot.
        """
        import ray

        busy: list[Any] = []
        if self._needless:
            count = len(self._needless)
            _, busy = ray.wait(self._needless, num_returns=count, timeout=END_SECONDS)
        for reference in [*busy, *self._calls]:
            ray.cancel(reference, force=True)
        self._calls.clear()


def _own_error(error: Any) -> Exception:
    """What a part refused or failed by, of Ray's error about its call."""
    cause: object = error.cause
    if isinstance(cause, PartError):
        if isinstance(cause.cause, InputError):
            return cause.cause
        text = f"part {cause.number} failed by {cause.text}"
    elif isinstance(cause, InputError):
        return cause
    else:
        text = f"a call failed by {type(cause).__name__}: {cause}"
    return WorkerError(" ".join(text.split()))


class PartError(Exception):
    """In a worker: which part of a call failed, by what, and that with its place in the code."""

    def __init__(self, number: int, cause: Exception, text: str) -> None:
        super().__init__(number, cause, text)
        self.number, self.cause, self.text = number, cause, text


_opened: dict[str, RunPart] = {}
"""In a worker process: the work that it runs, opened once."""


def _run_parts(work: Work, numbers: tuple[int, ...]) -> tuple[list[bytes], float]:
    """Run parts for ``CALL_SECONDS``, at least one; their documents and what they took."""
    try:
        if work.key not in _opened:
            _opened.clear()
            _opened[work.key] = work.open()
        run_part = _opened[work.key]
        began = time.perf_counter()
        documents: list[bytes] = []
        seconds = 0.0
        for number in numbers:
            documents.append(_run_part(run_part, number))
            seconds = time.perf_counter() - began
            if seconds > CALL_SECONDS:
                break
    except BaseException:
        # What was opened may be half changed.
        _opened.clear()
        raise
    return documents, seconds


def _run_part(run_part: RunPart, number: int) -> bytes:
    try:
        return run_part(number)
    except Exception as error:
        raise PartError(number, error, told(error)) from error
