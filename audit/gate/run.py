"""Run a gate: plan, shards, merged counts, verdict. The one call behind ``neartie gate``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...banks.bank import Bank
from ...banks.errors import InputError
from ...kernels.cuda.lang import unavailable
from ..certificates import swaps_table
from ..cost.expected import CostPlan
from ..cost.gate import expected_gate
from ..counts import Histograms
from ..engine.choose import make_engine
from ..engine.contract import Engine
from ..engine.work_directory import check_work, work_directory
from ..metrics.margins import check_sample
from ..policy import Policy
from ..summary import facts_of, summarise
from ..verdict import judge
from .device_texts import device_limitations
from .histograms import gate_histograms
from .outcomes import Merged, checked_text, gate_outcomes, left_out_text
from .path_rows import why_paths_refuse
from .path_sides import check_elsewhere
from .plan import (
    DEFAULT_ROWS,
    DEFAULT_SOURCE,
    DEFAULT_WIDTHS,
    GatePlan,
    make_plan,
)
from .record import gate_record
from .result import GateResult
from .shard import MOST_MERGED, ShardResult
from .shard_file import read_shard
from .workers import Progress, run_shards, tell_plan


def run_gate(
    baseline: str,
    candidate: str,
    source: str | Sequence[str] = DEFAULT_SOURCE,
    *,
    rows: int | None = DEFAULT_ROWS,
    widths: Sequence[int] = DEFAULT_WIDTHS,
    seed: int = 0,
    policy: Policy | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    work: str | Path | None = None,
    sample: tuple[int, int] | None = None,
    device: str = "cpu",
    shard_rows: int | None = None,
    sample_every: int | None = None,
    progress: Progress | None = None,
) -> GateResult:
    """Run two selects or paths over many rows and judge every difference.

    Args:
        baseline: the select that exists, such as ``topk_sigmoid`` or ``hf:bias=bf16``; ``auto``
            takes ``fused`` up to 8 rows and ``standalone`` above. A path, such as ``torch_topk`` or
            ``mypkg.front:MyRoute``, is run on the rows' logits. ``recorded:name=NAME`` on both
            sides takes outputs that the bank carries, and reads logits of few rows only.
        candidate: the select or path that would replace it.
        source: a generator, ``k3-mini``, ``resample:...``, a bank directory, or several.
        rows: split evenly over the banks, and each bank's over the widths; None takes all rows.
        widths: rows per launch, each in 1..20.
        seed: of generated rows whose spec names none, and of the sample for the reference.
        policy: limits to judge by; None takes the defaults.
        workers: processes, or tasks of Ray at a time; None takes one process, or all of a cluster.
            The record has the same bits for any number and engine.
        engine: ``local``: processes here; ``ray``: tasks on a Ray cluster.
        address: of a Ray cluster that runs; None starts one on this machine.
        work: keeps finished shards, so that an interrupted run goes on; None keeps nothing.
        sample: (events, rows) of a small sample to be held against the gate.
        device: ``cpu``, or ``cuda``: the selects with the device's own exp and tanh, or with a
            form that ``score=`` names. Without a device nothing is run, and the record says why.
        shard_rows: rows of one shard; None takes 16,384, and more above 67M rows.
        sample_every: one row in so many is checked by the reference in full; None takes 512 (4096
            where outputs are recorded), and more where that would be over 131,072 rows.
        progress: called with (rows done, rows in all, text).

    Raises:
        InputError: a source, select, width or option that is refused. Nothing was run.
        WorkerError: a worker failed; finished shards stay in ``work``.
    """
    _check_device(device)
    check_work(work)
    runs_on = make_engine(engine, workers, address)
    began = time.perf_counter()
    absent = unavailable() if device == "cuda" else None
    plan, banks = make_plan(
        baseline, candidate, source, rows=rows, widths=widths, seed=seed, policy=policy or Policy(),
        shard_rows=shard_rows, sample_every=sample_every,
        device=device, on_device=device == "cuda" and absent is None,
    )  # fmt: skip
    sides = plan.sides()
    check_elsewhere(sides, processes=engine != "local" or (workers or 1) > 1, kept=work is not None)
    limits = Policy.model_validate(plan.policy)
    if sample is not None:
        check_sample(*sample, 0, 1)
    absent = absent or why_paths_refuse(banks, sides, plan.widths)
    ran = GateRun() if absent is not None else run_plan(plan, runs_on, work, progress)
    merged = ran.merged
    outcomes = gate_outcomes(plan, banks, merged, absent, not_run=ran.not_run)
    histograms = gate_histograms(outcomes, merged)
    facts = facts_of(outcomes, _limitations(plan, banks, merged))
    observed = summarise(Histograms(histograms), None, facts, limits)
    verdict = judge(observed, limits)
    record = gate_record(plan, banks, merged, observed, verdict, limits, sample, device)
    certificates = [c for result in merged.values() for c in result.certificates]
    seconds = time.perf_counter() - began
    return GateResult(record, swaps_table(certificates), histograms, verdict, ran.reused, seconds)


def plan_gate(
    baseline: str,
    candidate: str,
    source: str | Sequence[str] = DEFAULT_SOURCE,
    *,
    rows: int | None = DEFAULT_ROWS,
    widths: Sequence[int] = DEFAULT_WIDTHS,
    seed: int = 0,
    policy: Policy | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    device: str = "cpu",
    shard_rows: int | None = None,
    sample_every: int | None = None,
) -> CostPlan:
    """Tell what ``run_gate`` would take: shards, bytes, time and memory; no row is run.

    The arguments are those of ``run_gate``. A GPU that is asked for need not be here.

    Raises:
        InputError: what ``run_gate`` refuses.
    """
    _check_device(device)
    runs_on = make_engine(engine, workers, address)
    plan, banks = make_plan(
        baseline, candidate, source, rows=rows, widths=widths, seed=seed, policy=policy or Policy(),
        shard_rows=shard_rows, sample_every=sample_every, device=device,
    )  # fmt: skip
    return expected_gate(plan, banks, runs_on)


def _check_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise InputError("device", device, "cpu or cuda", "gate")


@dataclass(frozen=True)
class GateRun:
    """What the shards of a plan came to.

    Attributes:
        merged: results by (bank, width) of which every row was run.
        not_run: by (bank, width), why its rows could not all be run; nothing of it is counted.
        reused: shards that an earlier run had finished.
    """

    merged: Mapping[tuple[int, int], ShardResult] = field(default_factory=dict)
    not_run: Mapping[tuple[int, int], str] = field(default_factory=dict)
    reused: int = 0


def run_plan(
    plan: GatePlan,
    engine: Engine,
    work: str | Path | None = None,
    progress: Progress | None = None,
) -> GateRun:
    """Run a plan's missing shards and merge the results of all.

    Raises:
        InputError: the work directory cannot be written, or the engine is not there.
        WorkerError: a worker process failed.
    """
    with work_directory(work, plan.digest[:20]) as directory:
        tell_plan(directory, plan)
        reused = run_shards(plan, directory, engine, progress)
        found = _merge(plan, directory)
    return GateRun(
        {place: result for place, result in found.items() if not result.not_run},
        {place: result.not_run for place, result in found.items() if result.not_run},
        reused,
    )


def _merge(plan: GatePlan, directory: Path) -> dict[tuple[int, int], ShardResult]:
    """Results by (bank, width), merged in shard order."""
    merged: dict[tuple[int, int], ShardResult] = {}
    for shard in plan.shards():
        result = read_shard(directory, plan, shard)
        if result is None:
            raise InputError("shard", shard.number, "finished", str(directory))
        key = shard.bank, shard.width
        if key in merged:
            merged[key].merge(result)
            merged[key].keep_gravest(MOST_MERGED)
        else:
            merged[key] = result
    return merged


def _limitations(plan: GatePlan, banks: Sequence[Bank], merged: Merged) -> list[str]:
    """What a signature must disclose whatever the figures are."""
    texts = []
    generated = [b for b in banks if b.header.provenance.get("model") == "none: generated rows"]
    if generated:
        rows = sum(n for n, b in zip(plan.rows, banks, strict=True) if b in generated)
        texts.append(f"{rows:,} of {sum(plan.rows):,} rows are generated, not recorded")
    mixed = [n for n, b in zip(plan.rows, banks, strict=True) if b.name.startswith("resample")]
    if mixed:
        texts.append(f"{sum(mixed):,} of {sum(plan.rows):,} rows are mixtures of recorded rows")
    texts += [text for text in (checked_text(merged), left_out_text(merged)) if text]
    if plan.device != "cpu":
        return texts + device_limitations(plan)
    for side, name in zip(plan.sides(), ("baseline", "candidate"), strict=True):
        if side.runs:
            texts.append(
                f"{name} {side.spec} is run once on each row, from the logits on and on one rank: "
                "an audit tells whether its runs repeat, its ranks agree and its launches interact"
            )
        elif side.recorded is None:
            texts.append(f"{name} {side.spec} is CPU arithmetic, not the kernel on its device")
    return texts
