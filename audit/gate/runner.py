"""Which runner a plan's shards need."""

from __future__ import annotations

from typing import Protocol

from .device_shard import DeviceRunner
from .host_shard import ShardRunner
from .plan import GatePlan, Shard
from .shard import ShardResult


class Runner(Protocol):
    """Runs one shard after another; what is costly is made once and used again."""

    def run(self, shard: Shard) -> ShardResult:
        """Return the counts and certificates of one shard; the same bits wherever it runs."""
        ...


def make_runner(plan: GatePlan) -> Runner:
    """Return the runner of the plan's device."""
    return ShardRunner(plan) if plan.device == "cpu" else DeviceRunner(plan)
