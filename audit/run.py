"""Join banks and paths into a result: the one call behind ``neartie audit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ..banks.bank import Bank, check_distinct, require_inputs
from ..banks.errors import InputError
from ..banks.open import expand_banks, spec_from_anywhere
from ..kernels.contract import Path as FrontPath
from ..kernels.contract import check_width
from ..kernels.cuda.lang import INTERPRETED
from ..kernels.registry import as_path, spec_of
from .bank_outcome import BankOutcome
from .bank_run import BankRun
from .bank_work import run_apart
from .certificates import swaps_table
from .claims.check import check_claims
from .claims.model import ClaimsFile
from .cost.audit import expected_audit, work_apart
from .cost.expected import CostPlan
from .counts import Histograms
from .engine.choose import make_engine
from .engine.contract import Engine
from .engine.work_directory import check_work
from .environment import environment
from .evidence.load import Evidence
from .gate.auto import TURNED_OFF, AutoGate, auto_gate
from .histograms import histogram_lines, lines_table
from .observed import Conditions
from .pairing import Pairing
from .policy import Policy, effective_policy, model_names
from .record import RECORD_VERSION
from .record_figures import bank_figures, judge_tables
from .result import AuditResult
from .summary import facts_of
from .value_table import values_table

MAX_BANK_ROWS = 10**9
"""An audit of more rows would run for days; it is likelier a slip of the keyboard."""
DEFAULT_WIDTHS = (9, 10, 12, 16, 20)
DEFAULT_BANKS = ("k3-mini",)
DEFAULT_RANKS = 8
NO_DEVICE_GATE = "an audit on a device starts none; neartie gate --device cuda bounds the rate"
_ONE_DEVICE = "Triton's interpreter on the CPU" if INTERPRETED else "one GPU"

Progress = Callable[[int, int, str], None]


def run_audit(
    banks: str | Bank | Sequence[str | Bank] | None = None,
    *,
    baseline: str | FrontPath = "general",
    candidate: str | FrontPath = "route",
    rows: Sequence[int] = DEFAULT_WIDTHS,
    ranks: int = DEFAULT_RANKS,
    device: str = "cpu",
    engine: str = "local",
    policy: Policy | None = None,
    gate: bool = True,
    workers: int | None = None,
    address: str | None = None,
    work: str | FilePath | None = None,
    launch: Mapping[str, Any] | None = None,
    claims: ClaimsFile | None = None,
    progress: Progress | None = None,
    command: str = "neartie.run_audit(...)",
) -> AuditResult:
    """Run two paths side by side over banks, widths and ranks, and judge the differences.

    Args:
        banks: names, directories, URLs or generator specs, or open banks; None takes the recorded
            k3-mini rows.
        baseline: the path that exists, as a spec or an object.
        candidate: the path that would replace it.
        rows: widths, rows per launch, each in 1..20.
        ranks: tensor-parallel ranks; must divide hidden, latent and experts.
        device: ``cpu``, or ``cuda``: ``general`` and ``route`` run on the GPU here, every rank in
            turn, and no gate is started. Without one, every width is recorded as not run.
        engine: ``local``: processes here; ``ray``: tasks on a Ray cluster. Either is handed shards:
            ranges of a bank's rows, and of the gate's, banks and paths made by their specs. Open
            banks that no spec opens again, and paths that are not built in, run in this process.
        policy: limits to judge by; None takes the defaults.
        gate: start the near-tie gate where the banks are too few rows to bound a set rate and
            nothing fails; the record says why none was run.
        workers: processes, or tasks of Ray at a time; no number and no engine changes a bit. None
            takes one process, or all of the cluster. Banks of a few seconds' work run in this
            process whatever the number. A script that asks for more than 1 must start from
            ``if __name__ == "__main__"``, as for any ``multiprocessing``.
        address: of a Ray cluster that runs; None starts one on this machine.
        work: keeps finished shards, so that an interrupted audit goes on; None keeps nothing.
        launch: what real ranks the given path objects run on, JSON values for the record; None
            where the paths compute all ranks in this process.
        claims: statements to be answered from this audit; the answers are in the record.
        progress: called with (rows done, rows in all, bank name).
        command: kept in the record.

    Raises:
        InputError: a bank, path, width, rank count or option that is refused. Nothing was run.
    """
    check_work(work)
    runs_on = make_engine(engine, workers, address)
    if device not in ("cpu", "cuda"):
        raise InputError("device", device, "cpu or cuda", "run_audit")
    opened, pairing = _paired(banks, baseline, candidate, rows, ranks, device, policy)
    outcomes = _run_banks(opened, pairing, runs_on, work, progress)
    more = AutoGate(reason=TURNED_OFF if not gate else NO_DEVICE_GATE)
    if gate and device == "cpu":
        more = auto_gate(opened, outcomes, pairing, engine=runs_on, work=work, progress=progress)
    everything = [*outcomes, *more.outcomes]
    facts = facts_of(
        everything, [*_limitations(opened, pairing), *more.limitations], Conditions(ranks, device)
    )
    values = values_table([record for outcome in outcomes for record in outcome.values.records()])
    counts = lines_table([*histogram_lines(everything), *more.lines])
    swaps = swaps_table([c for outcome in everything for c in outcome.certificates])
    histograms = Histograms(counts)
    controls = {bank.name: outcome.control for bank, outcome in zip(opened, outcomes, strict=True)}
    verdict, figures = judge_tables(
        histograms, values, facts, pairing.policy, more.record, controls=controls
    )
    record = {
        "record_version": RECORD_VERSION,
        "command": command,
        **figures,
        **_conditions(pairing, device),
        **({} if launch is None else {"launch": dict(launch)}),
        **facts.as_record(),
        "banks": [
            _bank_record(bank, outcome)
            | bank_figures(histograms, values, bank.name, pairing.widths, controls)
            for bank, outcome in zip(opened, outcomes, strict=True)
        ],
        "explanations": [found for outcome in everything for found in outcome.explanations],
        "no_gate": more.reason,
        "environment": environment(device),
    }
    if claims is not None:
        tables = {"swaps": swaps, "values": values, "histograms": counts}
        mine = Evidence(FilePath("this audit"), "audit", record, tables, {})
        record["claims"] = check_claims(claims, [mine]).as_dict()
    specs = {bank.name: spec_from_anywhere(bank) for bank in opened if bank.opens_again}
    worst = {(o.bank, width): one for o in outcomes for width, one in o.worst_weights.items()}
    return AuditResult(record, swaps, values, counts, verdict, specs, worst)


def plan_audit(
    banks: str | Bank | Sequence[str | Bank] | None = None,
    *,
    baseline: str | FrontPath = "general",
    candidate: str | FrontPath = "route",
    rows: Sequence[int] = DEFAULT_WIDTHS,
    ranks: int = DEFAULT_RANKS,
    engine: str = "local",
    policy: Policy | None = None,
    gate: bool = True,
    workers: int | None = None,
    address: str | None = None,
    work: str | FilePath | None = None,
) -> CostPlan:
    """Tell what ``run_audit`` on the CPU would take: rows, bytes, time, memory; no row is run.

    The arguments are those of ``run_audit``.

    Raises:
        InputError: what ``run_audit`` refuses.
    """
    check_work(work)
    runs_on = make_engine(engine, workers, address)
    opened, pairing = _paired(banks, baseline, candidate, rows, ranks, "cpu", policy)
    return expected_audit(opened, pairing, runs_on, gate=gate, keep=work)


def _paired(
    banks: str | Bank | Sequence[str | Bank] | None,
    baseline: str | FrontPath,
    candidate: str | FrontPath,
    rows: Sequence[int],
    ranks: int,
    device: str,
    policy: Policy | None,
) -> tuple[list[Bank], Pairing]:
    """The opened banks, and the two paths with their conditions."""
    opened = _open(DEFAULT_BANKS if banks is None else banks, ranks)
    first, second = as_path(baseline, "baseline", device), as_path(candidate, "candidate", device)
    return opened, Pairing(
        first,
        second,
        _checked_widths(rows),
        ranks,
        effective_policy(policy or Policy(), opened),
        device,
        (_spec(first, baseline), _spec(second, candidate)),
    )


def _spec(path: FrontPath, given: str | FrontPath) -> str | None:
    return spec_of(path, given if isinstance(given, str) else None)


def _open(banks: str | Bank | Sequence[str | Bank], ranks: int) -> list[Bank]:
    given = [banks] if isinstance(banks, str | Bank) else list(banks)
    if not given:
        raise InputError("banks", "none", "at least one", "run_audit")
    opened: list[Bank] = []
    for item in given:
        opened += [item] if isinstance(item, Bank) else expand_banks([item])
    check_distinct(opened)
    for bank in opened:
        require_inputs(bank)
        bank.geometry.check_ranks(ranks)
        if bank.rows >= MAX_BANK_ROWS:
            raise InputError("rows", bank.rows, f"below {MAX_BANK_ROWS:,}", bank.name)
        if bank.ranks is not None and bank.ranks != ranks:
            raise InputError("ranks", ranks, f"{bank.ranks}, as recorded", bank.name)
    return opened


def _checked_widths(rows: Sequence[int]) -> tuple[int, ...]:
    if not rows:
        raise InputError("rows", "none", "at least one width", "run_audit")
    for width in rows:
        check_width(width, "rows")
    if len(set(rows)) != len(rows):
        raise InputError("rows", list(rows), "each width once", "run_audit")
    return tuple(rows)


def _run_banks(
    banks: Sequence[Bank],
    pairing: Pairing,
    engine: Engine,
    keep: str | FilePath | None,
    progress: Progress | None,
) -> list[BankOutcome]:
    """Outcomes in the banks' order; in other processes where those can make banks and paths."""
    widths = len(pairing.widths)
    total, done = sum(bank.rows for bank in banks) * widths, 0

    def step(rows: int, name: str) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, total, name)

    work = work_apart(banks, pairing, engine, keep)
    if work is not None:
        return run_apart(work, banks, pairing, engine, step, keep)
    return [
        BankRun(bank, number, pairing).run(partial(step, name=bank.name))
        for number, bank in enumerate(banks)
    ]


def _limitations(banks: Sequence[Bank], pairing: Pairing) -> list[str]:
    """What a signature must disclose whatever the figures are."""
    texts = []
    resampled = [bank for bank in banks if "margin_density" in bank.provenance]
    if resampled:
        rows = sum(bank.rows for bank in resampled)
        texts.append(
            f"{rows:,} of {sum(b.rows for b in banks):,} rows are mixtures of recorded hidden "
            "rows, run at the select stage only"
        )
    for role, path in (("baseline", pairing.baseline), ("candidate", pairing.candidate)):
        if path.declared.machine_dependent:
            texts.append(f"{role} {path.name} declares machine-dependent bits")
        if path.declared.device == "cpu" and "latent" in path.outputs:
            texts.append(f"{role} {path.name} is CPU arithmetic, not the kernel on its device")
        if path.declared.virtual_ranks:
            texts.append(
                f"{role} {path.name} has virtual ranks: {_ONE_DEVICE} computes all {pairing.ranks} "
                "ranks in turn, no collective runs, and its kernels are not the serving kernels"
            )
    return texts


def _conditions(pairing: Pairing, device: str) -> dict[str, Any]:
    return {
        "baseline": _path_record(pairing.baseline, pairing.specs[0]),
        "candidate": _path_record(pairing.candidate, pairing.specs[1]),
        "ranks": pairing.ranks,
        "device": device,
        "policy": pairing.policy.model_dump(mode="json"),
    }


def _path_record(path: FrontPath, spec: str | None) -> dict[str, Any]:
    return {
        "name": path.name,
        "spec": spec,
        "declared": asdict(path.declared),
        "outputs": list(path.outputs),
    }


def _bank_record(bank: Bank, outcome: BankOutcome) -> dict[str, Any]:
    return {
        "name": bank.name,
        "spec": bank.spec,
        "digest": bank.digest,
        "rows": bank.rows,
        "stage": bank.stage,
        "geometry": asdict(bank.geometry),
        "models": list(model_names(bank)),
        "independence_unit": bank.independence_unit,
        "margin_density": bank.provenance.get("margin_density"),
        "tightest_boundary": outcome.tightest,
        "fp32_reference_control": outcome.control,
        "replayed_rows": outcome.replayed_rows,
        "graph_replays": outcome.graph_replays,
        "width_dependence": outcome.width_dependence,
    }
