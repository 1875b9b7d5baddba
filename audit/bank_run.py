"""One bank through both paths: which widths run, chunk by chunk, and what follows from all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from ..banks.bank import Bank
from .bank_outcome import BankOutcome, ShardOutcome
from .chunk_run import ChunkRun
from .detect import Detector
from .finding_log import FindingLog
from .judged import judge_block
from .launching import front_weights, make_launch, refusal
from .observed import Coverage
from .pairing import Pairing
from .value_judge import ValueJudge
from .value_table import ValueTable

# Bounds the two paths' outputs of one chunk to some tens of megabytes each.
CHUNK_BYTES = 48 << 20
MAX_CHUNK_ROWS = 4096


class BankRun:
    """Runs one bank, or chunks of it. Rows stream: what is kept of them does not grow with them."""

    def __init__(self, bank: Bank, number: int, pairing: Pairing) -> None:
        self.bank, self.number, self.pairing = bank, number, pairing
        self.weights = front_weights(bank)

    def run(self, progress: Callable[[int], None]) -> BankOutcome:
        """Return the bank's outcome; ``progress`` is told how many rows x widths are done."""
        return self.finish(self.shard(0, self.bank.rows, progress))

    def shard(
        self, start: int, stop: int, progress: Callable[[int], None] = lambda rows: None
    ) -> ShardOutcome:
        """Run the chunks from row ``start``, where one begins, up to ``stop``, and merge them."""
        found = self.empty()
        step = chunk_rows(self.bank, self.pairing.ranks)
        for first, behind in cuts(start, stop, step):
            known = found.latents.stands_for
            found.merge(self.chunk(first, behind, progress, known), self.pairing.widths)
        return found

    def empty(self) -> ShardOutcome:
        """Return what no rows give; shards are merged into it in row order."""
        bank, paths = self.bank, self.pairing.paths
        labels = {role: f"{role} {path.name}" for role, path in paths.items()}
        counts = BankOutcome(
            bank.name,
            values=ValueTable(bank.name, self.pairing.ranks),
            full_chain=bank.stage != "logits",
            independence_unit=bank.independence_unit,
        )
        return ShardOutcome(counts, FindingLog(bank.name, labels))

    def chunk(
        self,
        start: int,
        stop: int,
        progress: Callable[[int], None],
        stands_for: Mapping[str, str],
    ) -> ShardOutcome:
        """Run the rows from ``start`` up to ``stop``, at every width that both paths take.

        Args:
            start: first row.
            stop: behind the last row.
            progress: told of the rows after each width.
            stands_for: by path, the schedule that earlier rows showed a library's own order to be.

        Raises:
            PathsLost: nothing more can be computed.
        """
        found = self.empty()
        found.latents.stands_for.update(stands_for)
        widths = [c.width for c in self.coverage if c.ran]
        if not widths:
            return found
        block = self.bank.read(start, stop)
        judged = judge_block(self.bank, self.weights, block, with_control=start == 0)
        run = ChunkRun(self.bank, self.number, self.pairing, self.weights, judged, found)
        run.rows()
        for width in widths:
            run.run(width)
            progress(block.rows)
        if self.bank.independence_unit == "row":
            # No other chunk has these rows.
            for tally in found.counts.tallies.values():
                tally.settle_rows()
        return found

    def finish(self, found: ShardOutcome) -> BankOutcome:
        """Return the bank's outcome from the merged shards of all its rows."""
        bank, pairing, outcome = self.bank, self.pairing, found.counts
        outcome.coverage = list(self.coverage)
        found.forget_raised()
        detector = Detector(bank, pairing.paths, pairing.policy, found)
        outcome.findings = detector.findings()
        outcome.explanations = [one.record() for one in detector.explained]
        outcome.width_dependence = found.widths.records()
        judge = ValueJudge(pairing.paths, self.weights, pairing.ranks, found.log, found.latents)
        outcome.schedule = judge.result()
        return outcome

    @cached_property
    def coverage(self) -> list[Coverage]:
        """Both paths' answers about every width; what one refuses is recorded as not run."""
        reasons = [(width, self._refusal(width)) for width in self.pairing.widths]
        return [Coverage(self.bank.name, width, not reason, reason) for width, reason in reasons]

    def _refusal(self, width: int) -> str:
        block = self.bank.read(0, min(width, self.bank.rows))
        launch = make_launch(self.bank, self.weights, block, width, self.pairing.ranks)
        return refusal(self.pairing.paths.values(), launch)


def cuts(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Cut rows into pieces of ``step``: (first row, behind the last row) of each, in row order."""
    return [(first, min(first + step, stop)) for first in range(start, stop, step)]


def chunk_rows(bank: Bank, ranks: int) -> int:
    """Rows per chunk that keep every rank's outputs within ``CHUNK_BYTES``."""
    geometry = bank.geometry
    if bank.stage == "logits":
        return MAX_CHUNK_ROWS
    per_row = ranks * (2 * geometry.latent + 4 * geometry.experts)
    return max(1, min(MAX_CHUNK_ROWS, CHUNK_BYTES // per_row))
