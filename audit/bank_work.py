"""An audit's banks as work for an engine: a shard is rows of a bank, at every width and rank.

Widths and ranks of the same rows stay together: they share the reference, the largest part of a
row's cost, and are compared with each other. Outcomes merge as a tree, in row order: a worker
merges the chunks of its shard, and whoever started the run the shards. They have the same bits as
from one process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ..banks.bank import Bank
from ..banks.errors import BankError, InputError
from ..banks.open import open_bank
from ..kernels.paths import FrontPath
from ..kernels.reduce import LIBRARY_ORDERS
from ..kernels.registry import as_path
from .bank_outcome import BankOutcome, ShardOutcome
from .bank_run import BankRun, chunk_rows, cuts
from .engine.contract import Engine, Part, RunPart
from .engine.fit import check_bank, check_sources
from .engine.work_directory import work_directory
from .environment import code_digest
from .pairing import Pairing
from .policy import Policy
from .shard_document import read_shard, shard_document

MOST_SHARDS: Final = 4096
"""Shards of one bank: larger banks have more chunks in each, and the merge stays short."""


@dataclass(frozen=True)
class Shard:
    """Rows of one bank.

    Attributes:
        bank: its place in the work.
        start: first row.
        stop: behind the last row.
    """

    bank: int
    start: int
    stop: int


@dataclass(frozen=True)
class BankWork:
    """Banks and paths by what makes them again, on any machine.

    Attributes:
        banks: specs.
        digests: of the banks.
        paths: specs of baseline and candidate.
        widths: rows per launch.
        ranks: tensor-parallel ranks.
        policy: limits, JSON values.
        rows: of each bank.
        shard_rows: of one shard of each bank, whole chunks.
        code: digest of the package's sources.
    """

    banks: tuple[str, ...]
    digests: tuple[str, ...]
    paths: tuple[str, str]
    widths: tuple[int, ...]
    ranks: int
    policy: dict[str, Any]
    rows: tuple[int, ...]
    shard_rows: tuple[int, ...]
    code: str

    @property
    def key(self) -> str:
        """Sha256 hex of all that decides the outcomes."""
        return self._key

    @cached_property
    def _key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @cached_property
    def shards(self) -> list[Shard]:
        """The shards of every bank, in order."""
        return [
            Shard(number, start, stop)
            for number, (rows, step) in enumerate(zip(self.rows, self.shard_rows, strict=True))
            for start, stop in cuts(0, rows, step)
        ]

    @property
    def gpus(self) -> int:
        """None: the paths are CPU arithmetic."""
        return 0

    def open(self) -> RunPart:
        """Make the paths, on a machine that has the same sources.

        Raises:
            InputError: other sources than where the audit was started.
        """
        check_sources(self.code)
        return _Runner(self).document

    def pairing(self) -> Pairing:
        """The paths and their conditions, made again."""
        baseline, candidate = (
            as_path(spec, role)
            for spec, role in zip(self.paths, ("baseline", "candidate"), strict=True)
        )
        limits = Policy.model_validate(self.policy)
        return Pairing(baseline, candidate, self.widths, self.ranks, limits, specs=self.paths)


class _Runner:
    """In a worker: runs shards, and keeps the bank of the last one open."""

    def __init__(self, work: BankWork) -> None:
        self._work, self._key, self._pairing = work, work.key, work.pairing()
        self._run: BankRun | None = None

    def document(self, number: int) -> bytes:
        shard = self._work.shards[number]
        outcome = self._of(shard.bank).shard(shard.start, shard.stop)
        return shard_document(self._key, number, outcome)

    def _of(self, number: int) -> BankRun:
        if self._run is None or self._run.number != number:
            bank = open_bank(self._work.banks[number])
            check_bank(bank, self._work.digests[number])
            self._run = BankRun(bank, number, self._pairing)
        return self._run


def bank_work(banks: Sequence[Bank], pairing: Pairing) -> BankWork | None:
    """Return the work, or None where another process could not make these banks and paths again."""
    first, second = pairing.specs
    built_in = all(type(path) is FrontPath for path in pairing.paths.values())
    if pairing.device != "cpu" or not built_in or first is None or second is None:
        return None
    # What a library's order is, the first rows show; a shard of later ones would not know it.
    orders = {path.declared.latent_schedule for path in pairing.paths.values()}
    if orders.intersection(LIBRARY_ORDERS) or not all(_opens_again(bank) for bank in banks):
        return None
    return BankWork(
        tuple(bank.spec for bank in banks),
        tuple(bank.digest for bank in banks),
        (first, second),
        pairing.widths,
        pairing.ranks,
        pairing.policy.model_dump(mode="json"),
        tuple(bank.rows for bank in banks),
        tuple(shard_rows(bank.rows, chunk_rows(bank, pairing.ranks)) for bank in banks),
        code_digest(),
    )


def shard_rows(rows: int, chunk: int) -> int:
    """Return the rows of one shard of so many: as many whole chunks as keep to ``MOST_SHARDS``."""
    return chunk * max(1, -(-rows // (chunk * MOST_SHARDS)))


def _opens_again(bank: Bank) -> bool:
    try:
        return open_bank(bank.spec).digest == bank.digest
    except (BankError, InputError):
        return False


def run_apart(
    work: BankWork,
    banks: Sequence[Bank],
    pairing: Pairing,
    engine: Engine,
    progress: Callable[[int, str], None],
    keep: str | Path | None = None,
) -> list[BankOutcome]:
    """Return the outcomes in the banks' order; the same values as from this process.

    Args:
        work: the banks and paths as work.
        banks: those banks, open here.
        pairing: those paths.
        engine: where the shards are run.
        progress: told how many rows x widths were done, and of which bank.
        keep: a directory for finished shards: a run that was stopped goes on from it, on whatever
            engine; None keeps nothing.

    Raises:
        InputError: a worker is unfit, the engine is not there, or ``keep`` cannot be written.
        WorkerError: a worker was lost too often, or a shard's run failed.
    """
    with work_directory(keep, f"audit-{work.key[:20]}") as folder:
        paths = [folder / f"shard-{number:06d}.pickle" for number in range(len(work.shards))]

        def tell(part: Part) -> None:
            progress(part.rows, banks[work.shards[part.number].bank].name)

        parts = []
        for number, (shard, path) in enumerate(zip(work.shards, paths, strict=True)):
            part = Part(number, (shard.stop - shard.start) * len(work.widths), path)
            if read_shard(path, work.key, number) is None:
                path.unlink(missing_ok=True)
                parts.append(part)
            else:
                tell(part)
        engine.run(work, parts, tell)
        return _merged(work, banks, pairing, paths)


def _merged(
    work: BankWork, banks: Sequence[Bank], pairing: Pairing, paths: Sequence[Path]
) -> list[BankOutcome]:
    """Outcomes of the banks from their shards' documents, in order."""
    runs = [BankRun(bank, number, pairing) for number, bank in enumerate(banks)]
    found: list[ShardOutcome] = [run.empty() for run in runs]
    for number, (shard, path) in enumerate(zip(work.shards, paths, strict=True)):
        outcome = read_shard(path, work.key, number)
        if outcome is None:
            raise InputError("shard", number, "finished and whole", str(path))
        found[shard.bank].merge(outcome, work.widths)
    return [run.finish(merged) for run, merged in zip(runs, found, strict=True)]
