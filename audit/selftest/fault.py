"""A kind of real bug, with what is needed to plant it and to tell whether the audit named it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from ...kernels.contract import F32, Launch, Path, Routed
from .scenes import Scene

Step = Callable[[Path, Launch, Routed], None]
"""What a faulty path does with one launch: (the clean path, the launch, the outputs to fill)."""


CAUSES: Final = (
    "explained_by:*",
    "columns_dropped",
    "layout_permutation",
    "stride",
    "repeated_rows",
    "unwritten_rows",
    "stale_output",
    "id_permutation",
    "weights_in_other_slots",
    "nondeterministic",
    "rank_disagreement",
    "width_dependent",
)
"""Codes that tell what is behind a failure; the others tell what is true of the outputs."""


@dataclass(frozen=True)
class Need:
    """What a width and a rank count must be for a fault to show at all.

    Attributes:
        met: whether it can show at (width, ranks).
        reason: why it cannot where that is not met.
    """

    met: Callable[[int, int], bool]
    reason: str


SEVERAL_ROWS = Need(lambda width, ranks: width > 1, "a launch of one row has no other row")
ODD_ROWS = Need(lambda width, ranks: width % 2 == 1, "an even number of rows is halved evenly")
SEVERAL_RANKS = Need(lambda width, ranks: ranks > 1, "one rank exchanges nothing")
THREE_RANKS = Need(lambda width, ranks: ranks > 2, "two numbers have one order of addition")


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue.

    Attributes:
        name: words joined by underscores; test ids and ``--only`` use it.
        what: the mistake in one sentence.
        source: where it was seen, such as ``vllm#31478``.
        scenes: banks and clean pairs of paths in which it shows; each must catch it.
        make: returns the faulty step, with fresh state where it keeps any.
        names: reason codes of a verdict that name it rightly; ``*`` stands for any characters.
        implies: codes of other causes that are true of it as well.
        needs: what width and ranks must be for it to show.
        in_both: whether the baseline has the fault too.
        extra_width: another width that the audit runs beside the one under test; None: no other.
    """

    name: str
    what: str
    source: str
    scenes: tuple[Scene, ...]
    make: Callable[[], Step]
    names: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    implies: tuple[str, ...] = ()
    in_both: bool = False
    extra_width: Callable[[int], int] | None = None

    def cannot_show(self, width: int, ranks: int) -> str | None:
        """Why the fault changes nothing at this width and rank count; None where it does."""
        return next((need.reason for need in self.needs if not need.met(width, ranks)), None)

    def is_named_by(self, code: str) -> bool:
        """Whether a verdict's reason code names this fault."""
        return any(fnmatchcase(code, name) for name in self.names)

    def is_misled_by(self, code: str) -> bool:
        """Whether a reason code tells of a cause that this fault is not.

        What is true of the outputs whatever caused it, such as a breach or a far swap, does not.
        """
        cause = any(fnmatchcase(code, name) for name in CAUSES)
        form = code.startswith("explained_by:score_form=")
        return (
            cause
            and not form
            and not any(fnmatchcase(code, name) for name in (*self.names, *self.implies))
        )

    def widths(self, width: int) -> tuple[int, ...]:
        """The widths that an audit of one cell runs."""
        return (width,) if self.extra_width is None else (self.extra_width(width), width)


def always(step: Step) -> Callable[[], Step]:
    """Return what makes ``step``, which keeps no state, for every audit."""
    return lambda: step


class FaultyPath:
    """The clean path with a fault planted in it; it calls itself what the clean path does.

    Nothing of the fault can be read from it: an audit sees name, declaration and outputs alone.
    """

    batches_launches = False

    def __init__(self, clean: Path, step: Step) -> None:
        self._clean, self._step = clean, step
        self.name, self.declared, self.outputs = clean.name, clean.declared, clean.outputs

    def unavailable(self) -> str | None:
        """Why the clean path cannot run here, or None."""
        return self._clean.unavailable()

    def check(self, launch: Launch) -> None:
        """Refuse what the clean path refuses.

        Raises:
            EnvelopeError: as the clean path.
        """
        self._clean.check(launch)

    def run(self, launch: Launch, out: Routed) -> None:
        """Fill the outputs as the fault has it."""
        self._step(self._clean, launch, out)


def select_only(launch: Launch, logits: F32) -> Launch:
    """Return the launch as the select sees it: these logits [row, expert] and no earlier stage."""
    return replace(
        launch,
        hidden=None,
        latent_partials=None,
        latent_shards=None,
        logits_shards=None,
        logits=logits,
    )
