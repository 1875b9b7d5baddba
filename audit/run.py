"""Join banks and paths into a result: the one call behind ``neartie audit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..banks.bank import Bank
from ..banks.errors import InputError
from ..banks.open import expand_banks
from ..kernels.contract import Path, check_width
from ..kernels.registry import check_path, make_path
from .bank_run import BankOutcome, BankRun, Pairing
from .certificates import swaps_table
from .counts import Histograms
from .environment import environment
from .histograms import histograms_table
from .observed import Coverage
from .policy import Policy
from .record import RECORD_VERSION
from .record_figures import bank_figures, judge_tables
from .result import AuditResult
from .summary import facts_of
from .value_table import values_table

MAX_BANK_ROWS = 10**9
"""An audit of more rows would run for days; it is likelier a slip of the keyboard."""
DEFAULT_WIDTHS = (9, 10, 12, 16, 20)
DEFAULT_BANKS = ("k3-mini", "resample:bank=k3-mini,rows=180k")
"""The recorded rows, and enough resampled ones to bound a set rate of 5e-5 over five widths."""

Progress = Callable[[int, int, str], None]


def run_audit(
    banks: str | Bank | Sequence[str | Bank] | None = None,
    *,
    baseline: str | Path = "general",
    candidate: str | Path = "route",
    rows: Sequence[int] = DEFAULT_WIDTHS,
    ranks: int = 8,
    device: str = "cpu",
    engine: str = "local",
    policy: Policy | None = None,
    progress: Progress | None = None,
    command: str = "neartie.run_audit(...)",
) -> AuditResult:
    """Run two paths side by side over banks, widths and ranks, and judge the differences.

    Args:
        banks: names, directories, URLs or generator specs, or open banks; None takes the recorded
            k3-mini rows and rows resampled from them.
        baseline: the path that exists, as a spec or an object.
        candidate: the path that would replace it.
        rows: widths, rows per launch, each in 1..20.
        ranks: tensor-parallel ranks; must divide hidden, latent and experts.
        device: ``cpu``; another one is recorded as not run.
        engine: ``local``.
        policy: limits to judge by; None takes the defaults.
        progress: called with (rows done, rows in all, bank name).
        command: kept in the record.

    Raises:
        InputError: a bank, path, width, rank count or option that is refused. Nothing was run.
    """
    if engine != "local":
        raise InputError("engine", engine, "local", "run_audit")
    if device not in ("cpu", "cuda"):
        raise InputError("device", device, "cpu or cuda", "run_audit")
    opened = _open(DEFAULT_BANKS if banks is None else banks, ranks)
    pairing = Pairing(
        check_path(baseline, "baseline") if not isinstance(baseline, str) else make_path(baseline),
        check_path(candidate, "candidate")
        if not isinstance(candidate, str)
        else make_path(candidate),
        _checked_widths(rows),
        ranks,
        policy or Policy(),
    )
    if device == "cpu":
        outcomes = _run_banks(opened, pairing, progress)
    else:
        outcomes = [_not_run(bank, pairing, device) for bank in opened]
    facts = facts_of(outcomes, _limitations(opened, pairing))
    values = values_table([record for outcome in outcomes for record in outcome.values.records()])
    counts = histograms_table(outcomes)
    histograms = Histograms(counts)
    verdict, figures = judge_tables(histograms, values, facts, pairing.policy)
    record = {
        "record_version": RECORD_VERSION,
        "command": command,
        **figures,
        **_conditions(pairing, device),
        **asdict(facts),
        "banks": [
            _bank_record(bank, outcome) | bank_figures(histograms, bank.name, pairing.widths)
            for bank, outcome in zip(opened, outcomes, strict=True)
        ],
        "environment": environment(),
    }
    certificates = [c for outcome in outcomes for c in outcome.certificates]
    return AuditResult(record, swaps_table(certificates), values, counts, verdict)


def _open(banks: str | Bank | Sequence[str | Bank], ranks: int) -> list[Bank]:
    given = [banks] if isinstance(banks, str | Bank) else list(banks)
    if not given:
        raise InputError("banks", "none", "at least one", "run_audit")
    opened: list[Bank] = []
    for item in given:
        opened += [item] if isinstance(item, Bank) else expand_banks([item])
    for what in ("name", "digest"):
        seen: set[str] = set()
        for bank in opened:
            value = getattr(bank, what)
            if value in seen:
                raise InputError(f"bank {what}", value, "of one bank only", bank.name)
            seen.add(value)
    for bank in opened:
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
    banks: Sequence[Bank], pairing: Pairing, progress: Progress | None
) -> list[BankOutcome]:
    total = sum(bank.rows for bank in banks) * len(pairing.widths)
    done = 0
    outcomes = []
    for number, bank in enumerate(banks):

        def step(rows: int, name: str = bank.name) -> None:
            nonlocal done
            done += rows
            if progress is not None:
                progress(done, total, name)

        outcomes.append(BankRun(bank, number, pairing).run(step))
    return outcomes


def _not_run(bank: Bank, pairing: Pairing, device: str) -> BankOutcome:
    reason = f"this version has no paths for device {device}"
    coverage = [Coverage(bank.name, width, False, reason) for width in pairing.widths]
    return BankOutcome(bank.name, coverage=coverage)


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
    return texts


def _conditions(pairing: Pairing, device: str) -> dict[str, Any]:
    return {
        "baseline": _path_record(pairing.baseline),
        "candidate": _path_record(pairing.candidate),
        "ranks": pairing.ranks,
        "device": device,
        "policy": pairing.policy.model_dump(mode="json"),
    }


def _path_record(path: Path) -> dict[str, Any]:
    return {"name": path.name, "declared": asdict(path.declared), "outputs": list(path.outputs)}


def _bank_record(bank: Bank, outcome: BankOutcome) -> dict[str, Any]:
    return {
        "name": bank.name,
        "spec": bank.spec,
        "digest": bank.digest,
        "rows": bank.rows,
        "stage": bank.stage,
        "geometry": asdict(bank.geometry),
        "independence_unit": bank.independence_unit,
        "margin_density": bank.provenance.get("margin_density"),
        "tightest_boundary": outcome.tightest,
        "fp32_reference_control": outcome.control,
        "replayed_rows": outcome.replayed_rows,
    }
