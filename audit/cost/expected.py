"""What a run is expected to take, as a record, and as text."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

_HEAD: Final = (
    "", "rows", "shards", "read", "made", "files", "time", "worker", "driver",
)  # fmt: skip
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_YEAR, _DAY, _HOUR, _MINUTE = 31_557_600, 86400, 3600, 60


@dataclass(frozen=True)
class Expected:
    """Figures of one run.

    Attributes:
        rows: launched rows; an audit's count at each width.
        shards: parts that engines hand out, each a file in ``--work``; 1 where nothing is cut.
        read_bytes: of stored banks, the columns that are read.
        made_bytes: of generated rows, made in memory by the workers and never stored.
        work_bytes: files of finished shards, without certificates.
        seconds: from the command to the verdict.
        worker_bytes: memory of each worker process, pages that processes share counted in each.
        driver_bytes: of the process that merges; at most, with every certificate that it may keep.
        workers: processes or tasks at a time.
    """

    rows: int
    shards: int
    read_bytes: int
    made_bytes: int
    work_bytes: int
    seconds: float
    worker_bytes: int
    driver_bytes: int
    workers: int


@dataclass(frozen=True)
class CostPlan:
    """The expected cost of what was asked, and of larger runs of the same kind.

    Attributes:
        kind: ``gate`` or ``audit``.
        engine: ``local`` or ``ray``.
        asked: what the command would run.
        larger: the same with so many rows.
        gate: of an audit, the gate that it would start if its own rows do not differ; None without.
        notes: what the figures assume.
    """

    kind: str
    engine: str
    asked: Expected
    larger: Sequence[Expected] = ()
    gate: Expected | None = None
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def text(self) -> str:
        """A table and what it assumes."""
        lines: list[tuple[str, ...]] = [_HEAD, _line("this run", self.asked)]
        if self.gate is not None:
            lines.append(_line("its gate", self.gate))
        lines += [_line(f"{found.rows:.0e} rows".replace("+", ""), found) for found in self.larger]
        widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
        table = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
        head = f"{self.kind}, engine {self.engine}, {self.asked.workers} at a time; nothing was run"
        return "\n".join([head, *table, *(f"- {note}" for note in self.notes)])


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Time until parts taken in order by whoever is free are done."""
    free = [0.0] * workers
    for cost in seconds:
        heapq.heappush(free, heapq.heappop(free) + cost)
    return max(free)


def _line(name: str, found: Expected) -> tuple[str, ...]:
    sizes = (found.read_bytes, found.made_bytes, found.work_bytes)
    memory = (found.worker_bytes, found.driver_bytes)
    return (
        name,
        f"{found.rows:,}",
        f"{found.shards:,}",
        *(_size(n) for n in sizes),
        _time(found.seconds),
        *(_size(n) for n in memory),
    )


def _size(size: int) -> str:
    for scale, unit in _UNITS:
        if size >= scale:
            return (
                f"{size / scale:,.3g} {unit}"
                if size < 1000 * scale
                else f"{size / scale:,.0f} {unit}"
            )
    return f"{size} B"


def _time(seconds: float) -> str:
    for scale, unit in ((_YEAR, "years"), (_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * scale:
            return f"{seconds / scale:,.1f} {unit}"
    return f"{seconds:.1f} s"
