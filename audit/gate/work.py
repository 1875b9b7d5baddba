"""A gate as work for an engine: its shards are the parts, a finished shard's file the document."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.contract import RunPart
from ..engine.fit import check_sources
from .device_plan import check_device
from .plan import GatePlan
from .runner import make_runner
from .shard_file import shard_document


@dataclass(frozen=True)
class GateWork:
    """The shards of a plan."""

    plan: GatePlan

    @property
    def key(self) -> str:
        """The plan's digest."""
        return self.plan.digest

    @property
    def gpus(self) -> int:
        """One where the plan's device is a GPU."""
        return 0 if self.plan.device == "cpu" else 1

    def open(self) -> RunPart:
        """Make the runner, on a machine that is fit for the plan.

        Raises:
            InputError: other code, or another device, than the plan's: its bits could differ.
        """
        plan = self.plan
        check_sources(plan.code)
        if plan.device_plan is not None:
            check_device(plan.device_plan)
        shards, runner = plan.shards(), make_runner(plan)
        return lambda number: shard_document(plan, shards[number], runner.run(shards[number]))
