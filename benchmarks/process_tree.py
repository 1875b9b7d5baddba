"""Memory of a process and its descendants, sampled from /proc."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

_KB = 1024


def descendants(root: int) -> list[int]:
    """The process and all below it that exist now."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                todo += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
    return found


def memory(pid: int) -> dict[str, int]:
    """Bytes of RSS and PSS of one process; nothing where it has ended.

    PSS counts a page that n processes share as 1/n of one, so a sum over processes is what they
    take together; a sum of RSS counts it n times.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {w[0][:-1].lower(): int(w[1]) * _KB for w in words if w[0] in ("Rss:", "Pss:")}


class Sampler:
    """Calls ``sample`` again and again while the ``with`` block runs."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self.sample()

    def sample(self) -> None:
        """Look once."""
        raise NotImplementedError


class TreeMemory(Sampler):
    """Samples a process tree; peaks are of sums over the tree."""

    def __init__(self, root: int, every: float = 0.1) -> None:
        super().__init__(every)
        self.peak = {"rss": 0, "pss": 0}
        self.processes = 0
        self.samples = 0
        self._root = root

    def sample(self) -> None:
        """Sum over the processes that exist now."""
        found = [memory(pid) for pid in descendants(self._root)]
        self.samples += 1
        self.processes = max(self.processes, sum(bool(one) for one in found))
        for kind in self.peak:
            total = sum(one.get(kind, 0) for one in found)
            self.peak[kind] = max(self.peak[kind], total)
