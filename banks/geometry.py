"""The shape of one MoE layer's front, and the rule that turns its logits into experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from .errors import InputError

ScoreFunction = Literal["sigmoid", "softmax", "sqrtsoftplus", "identity"]
TieContract = Literal["lower_id", "unspecified"]

MAX_WIDTH: Final = 20
"""Rows per launch that the audited front is prepared for; one more is refused."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a front: hidden -> (latent, logits) -> selected experts.

    ``hidden`` is 0 where it is not known: a bank that starts at the logits or holds outputs alone.
    ``latent`` is 0 for a model without a latent projection. ``groups`` is the number of equal,
    consecutive expert groups, of which ``top_groups`` may be selected from; 1 of 1 means none.
    """

    name: str
    hidden: int
    latent: int
    experts: int
    top_k: int
    groups: int = 1
    top_groups: int = 1

    def __post_init__(self) -> None:
        where = f"geometry {self.name}"
        if not self.name.isprintable():
            raise InputError("geometry name", repr(self.name), "printable text", where)
        for what, value, least in (
            ("hidden", self.hidden, 0),
            ("latent", self.latent, 0),
            ("experts", self.experts, 1),
        ):
            if value < least:
                raise InputError(what, value, f"at least {least}", where)
        if not 1 <= self.top_k <= self.experts:
            raise InputError("top_k", self.top_k, f"1..{self.experts}", where)
        if self.groups < 1 or self.experts % self.groups:
            raise InputError("groups", self.groups, f"a divisor of {self.experts} experts", where)
        if not 1 <= self.top_groups <= self.groups:
            raise InputError("top_groups", self.top_groups, f"1..{self.groups}", where)
        selectable = self.top_groups * (self.experts // self.groups)
        if self.top_k > selectable:
            raise InputError("top_k", self.top_k, f"at most {selectable} in the top groups", where)

    def check_ranks(self, ranks: int) -> None:
        """Refuse a tensor-parallel rank count that does not divide every sharded axis.

        Raises:
            InputError: ``ranks`` is below 1 or does not divide hidden, latent and experts.
        """
        if ranks < 1:
            raise InputError("ranks", ranks, "at least 1", f"geometry {self.name}")
        for axis in ("hidden", "latent", "experts"):
            length: int = getattr(self, axis)
            if length % ranks:
                raise InputError("ranks", ranks, f"a divisor of {axis} {length}", self.name)


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """How logits become scores and weights.

    score = function(logit); key = score + bias (selection only); weight = score / (sum of the
    selected scores + epsilon) * scale, or score * scale where ``renormalize`` is off.
    ``softmax`` runs over all experts; ``sqrtsoftplus`` is sqrt(log(1 + exp(x))).
    """

    function: ScoreFunction = "sigmoid"
    renormalize: bool = True
    epsilon: float = 1e-20
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.function not in get_args(ScoreFunction):
            names = ", ".join(get_args(ScoreFunction))
            raise InputError("scoring.function", self.function, f"one of {names}", "scoring rule")
        # Written so that NaN fails too.
        if not 0 < self.scale < math.inf:
            raise InputError("scoring.scale", self.scale, "finite and above 0", "scoring rule")
        if not 0 <= self.epsilon < math.inf:
            expected = "finite and at least 0"
            raise InputError("scoring.epsilon", self.epsilon, expected, "scoring rule")


# Kimi K3 (published config): 7168 / 3584 latent / 896 experts, top 16, scale 1.
# DeepSeek-V3 and Kimi K2 have no latent projection; V3 selects from 4 of 8 groups.
PRESETS: Final[dict[str, tuple[Geometry, ScoringRule]]] = {
    "k3": (Geometry("k3", 7168, 3584, 896, 16), ScoringRule()),
    "k2": (Geometry("k2", 7168, 0, 384, 8), ScoringRule(scale=2.827)),
    "deepseek-v3": (Geometry("deepseek-v3", 7168, 0, 256, 8, 8, 4), ScoringRule(scale=2.5)),
    "mini": (Geometry("mini", 512, 256, 896, 16), ScoringRule()),
}


def parse_geometry(text: str, name: str, where: str) -> tuple[Geometry, ScoringRule | None]:
    """Return the geometry that an option names, and the scoring rule of a preset.

    Args:
        text: a preset, or ``experts=128,top_k=8`` with any other field of ``Geometry``; hidden and
            latent are 0 where they are not given.
        name: the geometry's name where the text gives none.
        where: the option, for messages.

    Raises:
        InputError: an unknown preset or field, a value that is no number, or sizes that do not fit.

    Example:
        >>> parse_geometry("experts=128,top_k=8", "mine", "--geometry")[0].experts
        128
    """
    if "=" not in text:
        if text not in PRESETS:
            known = f"{', '.join(PRESETS)}, or experts=N,top_k=N"
            raise InputError("geometry", text, known, where)
        return PRESETS[text]
    fields: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key == "name":
            name = value
            continue
        sizes = [field for field in Geometry.__slots__ if field != "name"]
        if key not in sizes:
            raise InputError("geometry", key, f"one of {', '.join(sizes)}", where)
        if not value.isascii() or not value.isdecimal() or len(value) > 9:
            raise InputError(f"geometry {key}", value or "nothing", "a whole number", where)
        fields[key] = int(value)
    for key in ("experts", "top_k"):
        if key not in fields:
            raise InputError(f"geometry {key}", "nothing", "given", where)
    return Geometry(name=name, **{"hidden": 0, "latent": 0, **fields}), None
