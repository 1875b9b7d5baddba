"""``assert_equivalent``: an audit as an assertion, judged by what was seen."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from ..banks.bank import Bank
from ..banks.errors import InputError
from ..banks.files import local_path
from ..banks.memory import store_bank
from ..banks.open import expand_banks
from ..banks.remote_urls import public_url
from ..kernels.contract import Path as FrontPath
from .evidence.write import check_target
from .kept_evidence import BANKS, next_directory
from .policy import Policy, load_policy
from .policy.limits import SIGNED_CLASSES, SignedClass
from .report.assertion import Asked, failure_text
from .result import AuditResult
from .run import DEFAULT_RANKS, DEFAULT_WIDTHS, run_audit
from .verdict import State

ALLOWED: Final[tuple[SignedClass, ...]] = ("BITWISE", "REORDER", "LIGHT")
"""Numerics classes that ``assert_equivalent`` accepts unless it is told others."""

TOO_FEW_ROWS: Final = "set_rate"
"""Code of the one undecided thing that a test may leave open: the bound of the set rate."""

_CAUSE: Final = "explained_by"
"""How the code of a reason starts that names a cause of others."""

OnNotRun = Literal["fail", "skip"]


class NotEquivalentError(AssertionError):
    """Two paths are not equivalent, or it was not found out; ``result`` is the whole audit."""

    def __init__(self, message: str, result: AuditResult) -> None:
        super().__init__(message)
        self.result = result


def assert_equivalent(
    baseline: str | FrontPath,
    candidate: str | FrontPath,
    bank: str | Path | Bank | Sequence[str | Path | Bank],
    *,
    policy: Policy | str | Path | None = None,
    rows: Sequence[int] = DEFAULT_WIDTHS,
    ranks: int = DEFAULT_RANKS,
    device: str = "cpu",
    allow: Sequence[SignedClass] = ALLOWED,
    certified: bool = False,
    on_not_run: OnNotRun = "fail",
    out: str | Path | None = None,
) -> AuditResult:
    """Audit two paths and fail where the candidate may not replace the baseline.

    A test has few rows, so its class is the one that the rows seen would be signed as (the audit's
    ``provisional_class``): too few rows to bound the set rate is no failure unless ``certified``.
    Everything else that an audit leaves undecided is one, and so is a width that was not run: it
    cannot pass unseen.

    Args:
        baseline: the path that exists, as a spec or an object.
        candidate: the path that would replace it.
        bank: what ``run_audit`` takes: a name, a directory, a generator's spec, an open bank (such
            as ``memory_bank`` makes), or several.
        policy: limits, or a TOML file with them; None takes the defaults.
        rows: widths, rows per launch.
        ranks: tensor-parallel ranks.
        device: ``cpu`` or ``cuda``.
        allow: numerics classes that pass; the policy's own ``allowed_classes`` hold too.
        certified: also demand the bound of the set rate; the near-tie gate is started where the
            rows are too few.
        on_not_run: what happens where nothing could be run here (no GPU, a library that is
            missing): ``fail``, or ``skip`` the test with the reason. A part that was not run fails,
            and so does a path that raised.
        out: write the evidence directory here, pass or fail; pytest's ``--neartie-out DIR`` does it
            for every call.

    Returns:
        The audit, for what else a test wants to look at.

    Raises:
        NotEquivalentError: an AssertionError whose message tells the class, the reasons, the
            counts, the worst row with the code that rebuilds it, and the command that repeats it.
        InputError: a bank, path, width, rank count or option that is refused. Nothing was run.
    """
    __tracebackhide__ = True
    _check(allow, on_not_run)
    place = next_directory() if out is None else _directory(out)
    if place is not None:
        check_target(place)
    banks = _banks(bank, place)
    asked = Asked(banks, baseline, candidate, _policy_file(policy), certified)
    result = run_audit(
        banks,
        baseline=baseline,
        candidate=candidate,
        rows=rows,
        ranks=ranks,
        device=device,
        policy=policy if isinstance(policy, Policy) else load_policy(policy),
        gate=certified,
        command=asked.command(rows, ranks, device) or "neartie.assert_equivalent(...)",
    )
    if place is not None:
        result.write(place)
    found = objections(result, allow, certified=certified)
    if result.verdict.state is State.NOT_RUN and on_not_run == "skip" and not _raised(result):
        _skip(f"neartie: not run: {'; '.join(found)}")
    if found:
        raise NotEquivalentError(failure_text(result, found, asked, place), result)
    return result


def objections(
    result: AuditResult, allow: Sequence[SignedClass] = ALLOWED, *, certified: bool = False
) -> list[str]:
    """Return why an audit is no proof of equivalence, a sentence each; none where it is one.

    Failing reasons first, of these what was found before what may have caused it, then what was
    left undecided, then a class that is not allowed.
    """
    reasons = result.verdict.reasons
    failing = [reason for reason in reasons if reason.state is State.FAIL]
    failing.sort(key=lambda reason: str(reason.code).startswith(_CAUSE))
    texts = [reason.text for reason in failing]
    open_states = (State.INCONCLUSIVE, State.NOT_RUN)
    texts += [
        reason.text
        for reason in reasons
        if reason.state in open_states and (certified or reason.code != TOO_FEW_ROWS)
    ]
    seen = str(result.verdict.provisional_class)
    if seen not in allow and not texts:
        texts.append(f"the rows seen are {seen}, and this test allows {', '.join(allow)}")
    return texts


def _raised(result: AuditResult) -> bool:
    """Whether a path broke, which is no reason of the machine's."""
    names = (result.record["baseline"]["name"], result.record["candidate"]["name"])
    return any(
        f": {name} raised " in reason.text
        for reason in result.verdict.reasons
        if reason.code == "not_run"
        for name in names
    )


def _check(allow: Sequence[SignedClass], on_not_run: OnNotRun) -> None:
    known = ", ".join(SIGNED_CLASSES)
    if isinstance(allow, str) or not allow or not set(allow) <= set(SIGNED_CLASSES):
        raise InputError("allow", allow, f"some of {known}", "assert_equivalent")
    if on_not_run not in ("fail", "skip"):
        raise InputError("on_not_run", on_not_run, "fail or skip", "assert_equivalent")


def _policy_file(policy: Policy | str | Path | None) -> str | None:
    """The file of a policy; an empty text where it is an object, which no command can name."""
    if policy is None:
        return None
    return "" if isinstance(policy, Policy) else str(policy)


def _banks(
    given: str | Path | Bank | Sequence[str | Path | Bank], place: Path | None
) -> list[Bank]:
    """The open banks; what no spec opens is stored beside the evidence that will name it."""
    items = [given] if isinstance(given, str | Path | Bank) else list(given)
    banks: list[Bank] = []
    for item in items:
        banks += [item] if isinstance(item, Bank) else expand_banks([item])
    if place is None:
        return banks
    return [
        bank if bank.opens_again else _stored(bank, place, number)
        for number, bank in enumerate(banks, start=1)
    ]


def _directory(out: str | Path) -> Path:
    """The directory of evidence; banks are kept beside it, so it lies on this machine."""
    place = local_path(out)
    if place is None:
        raise InputError("out", public_url(str(out)), "a directory, not a URL", "assert_equivalent")
    return place


def _stored(bank: Bank, place: Path, number: int) -> Bank:
    folder = place.absolute().parent / BANKS
    folder.mkdir(parents=True, exist_ok=True)
    return store_bank(bank, folder / f"{place.name}-{number}")


def _skip(reason: str) -> NoReturn:
    """Skip the running test; a plain ``unittest`` one where pytest is not there."""
    __tracebackhide__ = True
    pytest: Any = sys.modules.get("pytest")
    if pytest is None:
        raise unittest.SkipTest(reason)
    raise pytest.skip.Exception(reason)
