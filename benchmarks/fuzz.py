"""Fuzz the readers: ``fuzz.py READER... --inputs 100000``; figures go to results/fuzz.json.

READER is bank, case, policy, claims, safetensors, spec, evidence, or all. Each input is a known one
with its structure or its bytes changed; how it ended (accepted, refused by which message) guides
what is changed next. The address space is limited, so what asks for memory without bound ends in a
MemoryError, which counts as a traceback. Inputs that a reader fails on are kept with --keep.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from fuzzing import corpus, loop
from fuzzing.readers import READERS

RESULTS = Path(__file__).parent / "results" / "fuzz.json"
HEADROOM = 3 << 30
"""Bytes of address space that reading inputs may add to what the process has when it starts."""


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + HEADROOM
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _show(record: dict[str, Any]) -> None:
    print(
        f"{record['reader']}: {record['inputs']:,} inputs, {record['distinct_outcomes']} distinct "
        f"outcomes, {record['accepted']:,} accepted, {record['refused']:,} refused, "
        f"{record['traceback']:,} tracebacks, {record['too_long']:,} too long, "
        f"{record['wrong_pass']:,} wrong passes; {record['seconds']:,.0f} s, peak "
        f"{record['peak_mb']:,} MB ({record['grown_mb']:,} MB grown)"
    )
    for words in ("accepted_as", "refusals"):
        shown = [f"{name} {count:,}" for name, count in list(record[words].items())[:12]]
        print(f"  {words.replace('_', ' ')}: {', '.join(shown)}")
    for fault in record["faults"]:
        print(f"  FAULT {fault}")


def _store(record: dict[str, Any]) -> None:
    RESULTS.touch()
    with RESULTS.open("r+") as file:
        # Several readers may be fuzzed at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        known = json.loads(file.read() or "{}")
        known[record["reader"]] = record
        file.seek(0)
        file.write(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
        file.truncate()


def main() -> int:
    """Fuzz, print, store; exit status 1 where a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="+", choices=[*READERS, "all"])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory for inputs that a reader fails on")
    parser.add_argument("--store", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    faulty = False
    for name in READERS if "all" in given.readers else given.readers:
        reader = READERS[name]()
        extra = [files for _, files in corpus.load(reader)]
        # Libraries that a reader loads when it is first called are no part of the growth.
        loop.fuzz(reader, 50, seed=given.seed + 1, extra=extra)
        _limit_memory()

        def tell(count: loop.Count) -> None:
            print(f"\r{count.reader}: {count.inputs:,}", end="", file=sys.stderr)
            # An interrupted run leaves what it has done.
            if given.store:
                _store(count.as_record() | {"seed": given.seed})

        count = loop.fuzz(reader, given.inputs, seed=given.seed, extra=extra, progress=tell)
        print(file=sys.stderr)
        record = count.as_record() | {"seed": given.seed}
        _show(record)
        if given.store:
            _store(record)
        for number, (outcome, files) in enumerate(count.faults):
            faulty = True
            if given.keep is not None:
                label = outcome.kind.replace(" ", "-")
                corpus.save(reader, f"{label}-{given.seed}-{number}", files, given.keep)
    return int(faulty)


if __name__ == "__main__":
    sys.exit(main())
