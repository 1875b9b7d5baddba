"""From a named select to what the device kernels run: the same rules, a device form's scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..banks.errors import EnvelopeError, InputError
from ..banks.geometry import Geometry, ScoringRule
from .cuda.forms import DEVICE_FORMS, FORM_ON_DEVICE
from .cuda.selects import MOST_EXPERTS, MOST_SLOTS, NORMALISATIONS, SUMS, DeviceSelect
from .select import NONFINITE, SELECTS, SelectArithmetic, check_select, make_select

DEVICE_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "score": tuple(DEVICE_FORMS),
    "sum": SUMS,
    "normalise": NORMALISATIONS[:-1],
}
"""Options of a select on the device, with their choices."""

_FUNCTION: Final = "sigmoid"
"""What every device form computes."""


class DeviceRule(NamedTuple):
    """A named select with the device form that it scores with."""

    rule: SelectArithmetic
    form: str

    def score_words(self) -> str:
        """The score as it is declared."""
        return DEVICE_FORMS[self.form].steps


def parse_device_select(name: str, options: Mapping[str, str], where: str) -> DeviceRule:
    """Return the named select with its options, and the device form that it scores with.

    Raises:
        InputError: an unknown select, option or choice, or a select that no kernel computes.
    """
    for option, value in options.items():
        if option not in DEVICE_OPTIONS:
            expected = f"one of {', '.join(DEVICE_OPTIONS)} on the device"
            raise InputError("select option", option, expected, where)
        if value not in DEVICE_OPTIONS[option]:
            expected = f"one of {', '.join(DEVICE_OPTIONS[option])} on the device"
            raise InputError(option, value, expected, where)
    rest = {key: value for key, value in options.items() if key != "score"}
    rule = make_select(name, rest, where)
    reason = _why_not(rule)
    if reason is not None:
        raise InputError("select", name, f"one that the device computes ({reason})", where)
    form = options.get("score") or FORM_ON_DEVICE.get(rule.score)
    if form is None:
        expected = f"named, one of {', '.join(DEVICE_FORMS)}"
        raise InputError("score", rule.score, expected, f"{where} on the device")
    return DeviceRule(rule, form)


def runs_on_device() -> dict[str, str | None]:
    """Return the selects that the device computes, with their own form; None: it must be named."""
    return {
        name: FORM_ON_DEVICE.get(rule.score)
        for name, rule in SELECTS.items()
        if _why_not(rule) is None
    }


def _why_not(rule: SelectArithmetic) -> str | None:
    if rule.precise:
        return f"{rule.name} is FP64"
    if rule.logits != "fp32" or rule.bias != "fp32":
        return f"{rule.name} rounds its inputs"
    if rule.slot_order != "selection" or rule.weight_sum not in SUMS:
        return f"{rule.name} puts ids in ascending order"
    if rule.normalise not in NORMALISATIONS:
        return f"{rule.name} normalises in FP64"
    if rule.functions and _FUNCTION not in rule.functions:
        return f"{rule.name} is no {_FUNCTION}"
    return None


def device_select(
    rule: SelectArithmetic, form: str, geometry: Geometry, scoring: ScoringRule
) -> DeviceSelect:
    """Return the select as the kernels see it.

    Raises:
        EnvelopeError: a geometry or scoring rule that the kernels do not compute.
    """
    where = f"select {rule.name} on the device"
    check_select(rule, geometry, scoring)
    if scoring.function != _FUNCTION:
        raise EnvelopeError("scoring.function", scoring.function, _FUNCTION, where)
    if geometry.groups > 1:
        raise EnvelopeError("groups", geometry.groups, "1", where)
    if geometry.top_k > MOST_SLOTS:
        raise EnvelopeError("top_k", geometry.top_k, f"1..{MOST_SLOTS}", where)
    if not geometry.top_k < geometry.experts <= MOST_EXPERTS:
        expected = f"{geometry.top_k + 1}..{MOST_EXPERTS}"
        raise EnvelopeError("experts", geometry.experts, expected, where)
    nonfinite = NONFINITE[rule.nonfinite]
    return DeviceSelect(
        form,
        mask_logit=nonfinite.mask_logit,
        mask_bias=nonfinite.mask_bias,
        zero_score=nonfinite.zero_score,
        nan_key=nonfinite.nan_key,
        uniform_if_none=nonfinite.uniform_if_none,
        weight_sum=rule.weight_sum,
        normalise=rule.normalise if scoring.renormalize else "none",
        epsilon=scoring.epsilon if rule.epsilon is None else rule.epsilon,
    )
