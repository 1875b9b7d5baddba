"""Compare two evidence directories: what is alike, what changed, and whether it got worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...banks.errors import InputError
from ..policy.compare import Loosened, loosened_budgets
from ..verdict import NumericsClass, State
from .diff_certificates import CertificateDiff, certified, diff_certificates
from .diff_widths import Side, WidthDiff, diff_widths
from .identity import manifest_digest
from .load import Evidence
from .view import RecordView, record_view

CLASS_ORDER: Final = (
    NumericsClass.BITWISE,
    NumericsClass.REORDER,
    NumericsClass.LIGHT,
    NumericsClass.VISIBLE,
    NumericsClass.UNKNOWN,
    NumericsClass.BEHAVIOURAL,
)
"""Best first. UNKNOWN lies below all that can be signed and above what was seen to be worse."""


@dataclass(frozen=True, slots=True)
class Worse:
    """One rule by which the second run is worse; the rules are those of ``evidence_diff``."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class RunName:
    """What names a run in a comparison."""

    directory: str
    digest: str
    date: str
    verdict: str
    numerics_class: str


@dataclass(frozen=True)
class EvidenceDiff:
    """Two runs side by side.

    Attributes:
        kind: audit or gate.
        first, second: the runs.
        unlike: what differs before any figure does, one sentence each.
        same_rows: whether both ran the same rows of the same banks on as many ranks.
        widths: those that both ran.
        certificates: rows whose class changed.
        loosened: limits that the second policy accepts more by.
        new_reasons, gone_reasons: of the verdict, as ``STATE code``.
        lost_coverage: (bank, width) that the first ran and the second did not.
        worse: why the second is worse; empty where it is not.
    """

    kind: str
    first: RunName
    second: RunName
    unlike: Sequence[str]
    same_rows: bool
    widths: Sequence[WidthDiff]
    certificates: CertificateDiff
    loosened: Sequence[Loosened]
    new_reasons: Sequence[str]
    gone_reasons: Sequence[str]
    lost_coverage: Sequence[str]
    worse: Sequence[Worse]

    @property
    def exit_status(self) -> int:
        """1 where the second run is worse, else 0."""
        return 1 if self.worse else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return asdict(self)


def evidence_diff(first: Evidence, second: Evidence) -> EvidenceDiff:
    """Compare two audits, or two gates, the older one first.

    The second is worse by any of these rules:

    - ``state``: its verdict stands nearer to FAIL in the order of ``State``;
    - ``class``: its class, or what its rows would be signed as, is later in ``CLASS_ORDER``, or
      LIGHT went from FP32-structural to BF16-structural;
    - ``policy``: a limit accepts more than before;
    - ``coverage``: a (bank, width) that ran is not run any more;
    - ``reason``: the verdict has a reason that fails or leaves open, with a code that is new or
      that was nearer to PASS before;
    - ``set_rate``: a width's set rate grew, by McNemar's exact test on the same rows, else by
      Fisher's, one-sided, Holm over the widths, at the confidence of the first policy;
    - on the same rows only, where counts and maxima may be compared: ``beyond_ties``: more rows of
      a class that no tie excuses; ``weights``: the largest weight difference grew.

    Nothing here checks that the files are what they were: that is ``verify``.

    Raises:
        InputError: an audit and a gate, or a record or table that cannot be read.
    """
    if first.kind != second.kind:
        raise InputError("kind", f"{first.kind} and {second.kind}", "two of one kind", "diff")
    a, b = _side(first), _side(second)
    same_rows = _same_rows(a.view, b.view)
    widths = diff_widths(a, b, same_rows)
    loosened = loosened_budgets(a.view.policy, b.view.policy)
    lost = _lost_coverage(a.view, b.view)
    before, after = (_reasons(view) for view in (a.view, b.view))
    worse = [
        *_verdict_worse(a.view, b.view),
        *(Worse("policy", f"{one.field} is {one.new}, was {one.old}") for one in loosened),
        *(Worse("coverage", f"{item} ran before and not now") for item in lost),
        *_reasons_worse(a.view, b.view),
        *_figures_worse(widths, same_rows),
    ]
    return EvidenceDiff(
        first.kind,
        _name(first, a.view),
        _name(second, b.view),
        list(_unlike(first, second, a.view, b.view)),
        same_rows,
        widths,
        diff_certificates(a.certified, b.certified),
        loosened,
        sorted(after - before),
        sorted(before - after),
        lost,
        worse,
    )


def _side(evidence: Evidence) -> Side:
    view = record_view(evidence)
    return Side(view, certified(evidence, view))


def _name(evidence: Evidence, view: RecordView) -> RunName:
    return RunName(
        evidence.name,
        manifest_digest(evidence),
        str(evidence.manifest.get("date", "")),
        str(view.verdict.state),
        view.class_text,
    )


def _same_rows(a: RecordView, b: RecordView) -> bool:
    banks = [{(bank.digest, bank.rows) for bank in view.banks} for view in (a, b)]
    return banks[0] == banks[1] and a.ranks == b.ranks


def _unlike(first: Evidence, second: Evidence, a: RecordView, b: RecordView) -> Iterator[str]:
    pairs: Sequence[tuple[str, object, object]] = (
        ("record version", a.record_version, b.record_version),
        ("baseline", a.baseline.name, b.baseline.name),
        ("candidate", a.candidate.name, b.candidate.name),
        ("ranks", a.ranks, b.ranks),
        ("device", a.device, b.device),
    )
    for what, old, new in pairs:
        if old != new:
            yield f"{what}: {old}, then {new}"
    yield from _changed("version of ", _versions(first), _versions(second))
    yield from _changed("policy ", a.policy, b.policy)
    old_banks, new_banks = ({bank.digest: bank for bank in view.banks} for view in (a, b))
    for digest, bank in old_banks.items():
        if digest not in new_banks:
            yield f"bank {bank.name} ({digest[:12]}) is in the first only"
        elif new_banks[digest].rows != bank.rows:
            yield f"bank {bank.name}: {bank.rows:,} rows, then {new_banks[digest].rows:,}"
    for digest, bank in new_banks.items():
        if digest not in old_banks:
            yield f"bank {bank.name} ({digest[:12]}) is in the second only"
    for which, view in (("first", a), ("second", b)):
        if view.pooled and view.pooled.certificates_left_out:
            number = f"{view.pooled.certificates_left_out:,}"
            yield f"the {which} left {number} certificates out: rows without one may differ"


def _versions(evidence: Evidence) -> Mapping[str, Any]:
    """Versions of the libraries, of neartie, and the digest of its code, where they are kept."""
    versions = evidence.manifest.get("versions")
    kept = dict(versions) if isinstance(versions, dict) else {}
    own = {key: evidence.manifest[key] for key in ("neartie", "code") if key in evidence.manifest}
    return kept | own


def _changed(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield f"{prefix}{key}: {old.get(key, 'none')}, then {new.get(key, 'none')}"


def _lost_coverage(a: RecordView, b: RecordView) -> list[str]:
    """What ran is matched by the bank's digest or its name: a bank may be recorded anew."""
    digests = {bank.name: bank.digest for view in (a, b) for bank in view.banks}
    ran = {(name, c.width) for c in b.coverage if c.ran for name in (c.bank, digests.get(c.bank))}
    own = {bank.name: bank.digest for bank in a.banks}
    return [
        f"{c.bank} at width {c.width}"
        for c in a.coverage
        if c.ran and (c.bank, c.width) not in ran and (own.get(c.bank), c.width) not in ran
    ]


def _reasons(view: RecordView) -> set[str]:
    return {f"{reason.state} {reason.code}" for reason in view.verdict.reasons}


def _reasons_worse(a: RecordView, b: RecordView) -> Iterator[Worse]:
    order = list(State)
    before, after = _state_of_code(a), _state_of_code(b)
    for code, state in sorted(after.items()):
        was = before.get(code, State.PASS)
        fails = state in (State.FAIL, State.NOT_RUN, State.INCONCLUSIVE)
        if fails and order.index(state) < order.index(was):
            yield Worse("reason", f"{state} {code}, was {was if code in before else 'not there'}")


def _state_of_code(view: RecordView) -> dict[str, State]:
    """The state nearest to FAIL of each code."""
    order = list(State)
    reasons = sorted(view.verdict.reasons, key=lambda r: order.index(r.state), reverse=True)
    return {reason.code: reason.state for reason in reasons}


def _verdict_worse(a: RecordView, b: RecordView) -> Iterator[Worse]:
    order = list(State)
    old, new = a.verdict.state, b.verdict.state
    if order.index(new) < order.index(old):
        yield Worse("state", f"verdict {new}, was {old}")
    for what in ("numerics_class", "provisional_class"):
        was, now = getattr(a, what), getattr(b, what)
        if CLASS_ORDER.index(now) > CLASS_ORDER.index(was):
            yield Worse("class", f"{what.replace('_', ' ')} {now}, was {was}")
    tags = (a.structural_tag, b.structural_tag)
    if tags == ("FP32-structural", "BF16-structural"):
        yield Worse("class", f"structural tag {tags[1]}, was {tags[0]}")


def _figures_worse(widths: Sequence[WidthDiff], same_rows: bool) -> Iterator[Worse]:
    for diff in widths:
        if diff.rate_grew:
            test = "Fisher" if diff.paired_p is None else "McNemar"
            counts = " then ".join(
                f"{k:,} of {n:,}" for k, n in (diff.rate.first, diff.rate.second)
            )
            text = f"width {diff.width}: {counts} units differ ({test} p = {diff.p_value:.2g})"
            yield Worse("set_rate", text)
        if not same_rows:
            continue
        for name, (old, new) in diff.beyond_ties.items():
            if new > old:
                yield Worse("beyond_ties", f"width {diff.width}: {name} {new:,}, was {old:,} rows")
        was, now = diff.max_weight_ulp
        if now is not None and was is not None and now > was:
            text = f"width {diff.width}: weights differ by up to {now:,} FP32 ULP, was {was:,}"
            yield Worse("weights", text)
