"""The loop: mutate an input, read it, count how it ended, keep what ended in a new way."""

from __future__ import annotations

import random
import resource
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .outcome import Outcome, read
from .readers import Files, Reader

POOL: Final = 400
"""Inputs that further ones are made from, seeds included."""
_FROM_GOOD: Final = 0.75
_SHOWN: Final = 25
_FAULTS_KEPT: Final = 40


@dataclass
class Count:
    """What came of many inputs to one reader."""

    reader: str
    inputs: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[tuple[Outcome, Files]] = field(default_factory=list)
    """The first input of each way to fail."""
    seconds: float = 0.0
    peak_mb: float = 0.0
    grown_mb: float = 0.0
    """By how much the peak grew while inputs were read."""

    def add(self, outcome: Outcome, files: Files) -> bool:
        """Count an outcome; True where it is the first of its kind."""
        key = (str(outcome.kind), outcome.detail)
        new = key not in self.outcomes
        self.outcomes[key] += 1
        self.inputs += 1
        if new and outcome.faulty and len(self.faults) < _FAULTS_KEPT:
            self.faults.append((outcome, files))
        return new

    def of(self, kind: str) -> Counter[str]:
        """Counts of one kind of outcome by its detail."""
        return Counter({d: n for (k, d), n in self.outcomes.items() if k == kind})

    def as_record(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "reader": self.reader,
            "inputs": self.inputs,
            "distinct_outcomes": len(self.outcomes),
            **{
                kind.replace(" ", "_"): self.of(kind).total()
                for kind in ("accepted", "refused", "traceback", "too long", "wrong pass")
            },
            "accepted_as": _shown(self.of("accepted")),
            "refusals": _shown(self.of("refused")),
            "faults": [f"{one.kind}: {one.detail}" for one, _ in self.faults],
            "seconds": round(self.seconds, 1),
            "peak_mb": round(self.peak_mb),
            "grown_mb": round(self.grown_mb),
        }


def _shown(counts: Counter[str]) -> dict[str, int]:
    """The commonest, and how many others there are: names of unknown keys have no end."""
    common = dict(counts.most_common(_SHOWN))
    others = counts.total() - sum(common.values())
    return common | ({"others": others} if others else {})


def fuzz(
    reader: Reader,
    inputs: int,
    *,
    seed: int = 0,
    extra: Sequence[Files] = (),
    progress: Callable[[Count], None] | None = None,
) -> Count:
    """Read so many mutated inputs, and return what came of them.

    Args:
        reader: what is fuzzed.
        inputs: how many; the seeds and ``extra`` are read beside them and must not be faulty.
        seed: of the random generator; the same one gives the same inputs.
        extra: inputs that further ones are made from too.
        progress: called after every 1,000 inputs.

    Raises:
        ValueError: a seed is refused: it is no right input, and what is made of it tests little.
    """
    rng = random.Random(f"{reader.name} {seed}")
    count = Count(reader.name)
    good: list[Files] = []
    pool: list[Files] = []
    base = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=base if base.is_dir() else None) as name:
        place = Path(name) / "input"
        seeds = reader.seeds()
        for number, files in enumerate((*seeds, *extra)):
            outcome = _read(reader, files, place)
            if number < len(seeds) and outcome.kind == "refused":
                raise ValueError(f"seed {number} of {reader.name} is {outcome}")
            count.add(outcome, files)
            (good if outcome.kind == "accepted" else pool).append(files)
        start, before = time.perf_counter(), _peak_mb()
        for number in range(inputs):
            # One change of a right input gets deepest; what is refused is a step to other refusals.
            start_from = good if rng.random() < _FROM_GOOD or not pool else pool
            files = reader.mutate(rng.choice(start_from), rng)
            outcome = _read(reader, files, place)
            kept = good if outcome.kind == "accepted" else pool
            if count.add(outcome, files) and not outcome.faulty and len(kept) < POOL:
                kept.append(files)
            if number % 1_000 == 999 or number == inputs - 1:
                count.seconds = time.perf_counter() - start
                count.peak_mb, count.grown_mb = _peak_mb(), _peak_mb() - before
                if progress is not None:
                    progress(count)
    return count


def _read(reader: Reader, files: Files, place: Path) -> Outcome:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with warnings.catch_warnings():
        # As in the tests: a warning of numpy is a value that nobody looked at.
        warnings.simplefilter("error")
        return read(lambda: reader.read(files, place))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
