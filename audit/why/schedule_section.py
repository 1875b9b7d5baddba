"""Which schedule each path's latent shows on a bank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...banks.bank import Bank, RowBlock
from ...banks.errors import EnvelopeError
from ...kernels.contract import F64, Bf16, FrontWeights, Launch, Path
from ...kernels.project import latent_partials
from ...kernels.reference import reference_product
from ..launching import PathError, front_weights, make_launch, refusal, run_path
from .asked import Asked
from .attribution import GATHER, Attribution, contradiction
from .schedules import attribute_schedule
from .section import NotRun, Section


@dataclass(frozen=True, slots=True)
class PathSchedule:
    """What a path declares, and what its output shows; ``reason`` where it was not run."""

    role: str
    name: str
    declared: str | None
    found: Attribution | None
    contradiction: str
    reason: str = ""

    @property
    def exit_status(self) -> int:
        """1 where the declaration is contradicted, 3 where nothing was run, else 0."""
        return 1 if self.contradiction else 3 if self.found is None else 0

    def lines(self) -> list[str]:
        """Return the answer, all schedules that were tried, and what contradicts the declared."""
        head = f"{self.role} {self.name}, declares {self.declared or 'nothing'}"
        if self.found is None:
            return [f"{head}: not run: {self.reason}"]
        return [f"{head}: {self.found.text()}", *_told(self.found, self.contradiction)]

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "path": self.name,
            "declared": self.declared,
            "contradiction": self.contradiction,
            "not_run": self.reason,
            "attribution": None if self.found is None else self.found.figures(),
        }


def _told(found: Attribution, against: str) -> list[str]:
    lines = [f"  CONTRADICTION: {against}"] if against else []
    return [*lines, *(f"  {line}" for line in found.lines())]


@dataclass(frozen=True, slots=True)
class ScheduleSection:
    """Both paths' schedules on one bank."""

    bank: str
    paths: tuple[PathSchedule, ...]

    @property
    def title(self) -> str:
        """Heading of one line."""
        return f"Reduction schedule on {self.bank}"

    @property
    def exit_status(self) -> int:
        """1 where a path contradicts its declaration, 3 where one was not run, else 0."""
        found = {path.exit_status for path in self.paths}
        return 1 if 1 in found else 3 if 3 in found else 0

    def lines(self) -> list[str]:
        """Return the lines of both paths."""
        return [line for path in self.paths for line in path.lines()]

    def figures(self) -> dict[str, Any]:
        """Return JSON values by role."""
        return {"bank": self.bank, "paths": {path.role: path.figures() for path in self.paths}}


def schedule_sections(asked: Asked) -> Iterator[Section]:
    """Yield a section a bank: each path is run on its rows, and its latent attributed."""
    if all(path.unavailable() for path in asked.paths.values()):
        for role, path in asked.paths.items():
            reason = f"{path.unavailable()}; another --device runs its arithmetic there"
            yield NotRun(f"Reduction schedule of {role} {path.name}", reason)
        return
    for bank in asked.banks:
        inputs = _inputs(bank, asked)
        title = f"Reduction schedule on {bank.name}"
        if isinstance(inputs, str):
            yield NotRun(title, inputs)
            continue
        paths = (_of_path(role, path, inputs) for role, path in asked.paths.items())
        yield ScheduleSection(bank.name, tuple(paths))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """A bank's launches, and the partials of their rows; without a reference, their sum is it."""

    launch: Launch
    rows: int
    partials: Bf16
    reference: F64 | None


def _inputs(bank: Bank, asked: Asked) -> _Inputs | str:
    """The launches and partials of a bank's first rows, or why it has none."""
    rows = min(asked.rows, bank.rows)
    block, weights = bank.read(0, rows), front_weights(bank)
    if rows < 1:
        return "the bank has no rows"
    if not bank.geometry.latent:
        return "the model has no latent projection"
    if block.latent_partials is not None and len(block.latent_partials) != asked.ranks:
        return f"the bank holds partials of {len(block.latent_partials)} ranks, not {asked.ranks}"
    made = _partials(block, weights, asked.ranks)
    if made is None:
        return f"the bank starts at stage {bank.header.stage}: it has no latent partials"
    launch = make_launch(bank, weights, block, asked.width, asked.ranks)
    index = np.arange(launch.rows) % rows
    partials, reference = made
    return _Inputs(
        launch, rows, partials[:, index], None if reference is None else reference[index]
    )


def _partials(block: RowBlock, weights: FrontWeights, ranks: int) -> tuple[Bf16, F64 | None] | None:
    if block.hidden is not None and weights.latent is not None:
        partials = latent_partials(block.hidden, weights.latent, ranks)
        return partials, reference_product(block.hidden, weights.latent)
    return None if block.latent_partials is None else (block.latent_partials, None)


def _of_path(role: str, path: Path, inputs: _Inputs) -> PathSchedule:
    declared = path.declared.latent_schedule
    launch = inputs.launch

    def not_run(reason: str) -> PathSchedule:
        return PathSchedule(role, path.name, declared, None, "", reason)

    if "latent" not in path.outputs:
        return not_run("it shows no latent")
    refused = refusal([path], launch)
    if refused:
        return not_run(refused)
    try:
        latent = run_path(path, launch).latent
    except PathError as error:
        return not_run(str(error))
    assert latent is not None
    also = [declared] if declared is not None and declared.startswith("two_level") else []
    also += [GATHER] if declared == GATHER else []
    try:
        found = attribute_schedule(
            inputs.partials,
            latent,
            reference=inputs.reference,
            width=launch.width,
            also=also,
            rows=inputs.rows,
        )
    except EnvelopeError as error:
        return not_run(str(error))
    exact_bits = not path.declared.machine_dependent
    return PathSchedule(
        role, path.name, declared, found, contradiction(declared, found, exact_bits)
    )
