"""An audit's banks as work for an engine: a bank is a part, its pickled outcome the document."""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..banks.bank import Bank
from ..banks.errors import BankError, InputError
from ..banks.open import open_bank
from ..kernels.paths import FrontPath
from ..kernels.registry import as_path
from .bank_run import BankOutcome, BankRun, Pairing
from .engine.contract import Engine, Part, RunPart
from .engine.fit import check_bank, check_sources
from .environment import code_digest
from .policy import Policy


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
        code: digest of the package's sources.
    """

    banks: tuple[str, ...]
    digests: tuple[str, ...]
    paths: tuple[str, str]
    widths: tuple[int, ...]
    ranks: int
    policy: dict[str, Any]
    code: str

    @property
    def key(self) -> str:
        """Sha256 hex of all that decides the outcomes."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

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
        baseline, candidate = (
            as_path(spec, role)
            for spec, role in zip(self.paths, ("baseline", "candidate"), strict=True)
        )
        limits = Policy.model_validate(self.policy)
        pairing = Pairing(baseline, candidate, self.widths, self.ranks, limits, specs=self.paths)
        return lambda number: pickle.dumps(self._outcome(number, pairing))

    def _outcome(self, number: int, pairing: Pairing) -> BankOutcome:
        bank, planned = open_bank(self.banks[number]), self.digests[number]
        check_bank(bank, planned)
        return BankRun(bank, number, pairing).run(lambda rows: None)


def bank_work(banks: Sequence[Bank], pairing: Pairing) -> BankWork | None:
    """Return the work, or None where another machine could not make these banks and paths again."""
    first, second = pairing.specs
    built_in = all(type(path) is FrontPath for path in (pairing.baseline, pairing.candidate))
    if pairing.device != "cpu" or not built_in or first is None or second is None:
        return None
    if not all(_opens_again(bank) for bank in banks):
        return None
    return BankWork(
        tuple(bank.spec for bank in banks),
        tuple(bank.digest for bank in banks),
        (first, second),
        pairing.widths,
        pairing.ranks,
        pairing.policy.model_dump(mode="json"),
        code_digest(),
    )


def _opens_again(bank: Bank) -> bool:
    try:
        return open_bank(bank.spec).digest == bank.digest
    except (BankError, InputError):
        return False


def run_apart(
    work: BankWork, rows: Sequence[int], engine: Engine, progress: Callable[[int], None]
) -> list[BankOutcome]:
    """Return the outcomes in the banks' order; the same values as from this process.

    Args:
        work: the banks and paths.
        rows: of each bank, over all widths.
        engine: where the banks are run.
        progress: told how many rows x widths were done.

    Raises:
        InputError: a worker is unfit, or the engine is not there.
        WorkerError: a worker was lost too often, or a bank's run failed.
    """
    with tempfile.TemporaryDirectory(prefix="neartie-audit-") as folder:
        paths = [Path(folder) / f"bank-{number:04d}" for number in range(len(rows))]
        parts = [Part(n, rows[n], path) for n, path in enumerate(paths)]
        engine.run(work, parts, lambda part: progress(part.rows))
        # Written by our own workers into a directory that nobody else may write to.
        return [pickle.loads(path.read_bytes()) for path in paths]
