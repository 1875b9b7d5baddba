"""A finding as others take it: a case for ``neartie explain``, a pytest file, a few lines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...banks.geometry import Geometry, ScoringRule
from ..explain import explain_rows
from ..policy import Policy
from .arena import Arena, Run
from .difference import Difference
from .minimise import Smallest
from .scene import F32, Scene
from .search import Found


@dataclass(frozen=True, eq=False)
class Witness:
    """One finding, at its smallest.

    Attributes:
        difference: what is said of the witness.
        scene: its rows.
        strategy: that found it.
        rows_like_it: rows of the same finding before the hunt ended.
        found_after_rows: rows of all strategies until then.
        found_after_seconds: likewise.
        reproduced: whether it showed again when it was run once more; None: it was not tried.
        trials: scenes that were run to make it smaller.
        case: in the format of ``neartie explain``.
        explained: that command's report of the case.
        geometry: of the front.
        scoring: of the front.
    """

    difference: Difference
    scene: Scene
    strategy: str
    rows_like_it: int
    found_after_rows: int
    found_after_seconds: float
    reproduced: bool | None
    trials: int
    case: Mapping[str, Any]
    explained: Mapping[str, Any]
    geometry: Geometry
    scoring: ScoringRule

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Named mistakes that give what the faulty side returned, as ``neartie explain`` has them.

        The best first: those of its table, two at once and of weights among them, then others that
        give the experts.
        """
        names: list[str] = []
        for side in self._faulty_sides:
            table = self.explained.get("explanations", {}).get(side, {})
            names += [one["name"] for one in table.get("hypotheses", ())]
            names += self.explained.get(f"hypotheses_{side}") or []
        return tuple(dict.fromkeys(names))

    @property
    def hypotheses_tried(self) -> int:
        """How many mistakes ``neartie explain`` tried on the faulty side; 0: on neither."""
        tables = self.explained.get("explanations", {})
        tried = (tables.get(side, {}).get("hypotheses_tried", 0) for side in self._faulty_sides)
        return max(tried, default=0)

    @property
    def _faulty_sides(self) -> list[str]:
        sides = {"baseline": "a", "candidate": "b"}
        return [side for role, side in sides.items() if self.difference.faulty in (role, "both")]

    def digest(self, *names: str) -> str:
        """Return eight hex digits of the rows, the rule and the ``names`` of paths."""
        scene = self.scene
        parts = (*names, repr((self.geometry, self.scoring, scene.width, scene.ranks)))
        text = "\0".join((*parts, self.difference.kind)).encode()
        return hashlib.sha256(text + scene.logits.tobytes() + scene.bias.tobytes()).hexdigest()[:8]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values; the case stands beside it in ``to_json`` of the result."""
        return {
            **asdict(self.difference),
            "strategy": self.strategy,
            "rows_like_it": self.rows_like_it,
            "found_after_rows": self.found_after_rows,
            "found_after_seconds": round(self.found_after_seconds, 3),
            "reproduced": self.reproduced,
            "trials": self.trials,
            "rows": self.scene.rows,
            "width": self.scene.width,
            "ranks": self.scene.ranks,
            "explain_verdict": self.explained.get("verdict"),
            "hypotheses": list(self.hypotheses),
            "case": dict(self.case),
        }


def make_witness(
    arena: Arena, found: Found, smallest: Smallest, rows_like_it: int, command: str
) -> Witness:
    """Return a finding with its case, and what ``neartie explain`` says of that."""
    scene, difference = smallest.scene, smallest.difference
    case = _case(arena, scene, difference, smallest.run, command)
    report = explain_rows(case, arena.policy).as_dict()["cases"][0]
    return Witness(
        difference=difference,
        scene=scene,
        strategy=found.strategy,
        rows_like_it=rows_like_it,
        found_after_rows=found.after_rows,
        found_after_seconds=found.after_seconds,
        reproduced=smallest.reproduced,
        trials=smallest.trials,
        case=case,
        explained=report,
        geometry=arena.geometry,
        scoring=arena.scoring,
    )


def _case(
    arena: Arena,
    scene: Scene,
    difference: Difference,
    run: Run,
    command: str,
) -> dict[str, Any]:
    geometry, scoring = arena.geometry, arena.scoring
    # Launches before it may matter to a path, but not to what is said of its rows.
    first = difference.row // scene.width * scene.width
    launch = slice(first, first + scene.width)
    of_ranks = difference.kind == "rank_disagreement"
    sides = {}
    for side, path, out in zip(
        "ab", (arena.baseline, arena.candidate), (run.a, run.b), strict=True
    ):
        row, rank = difference.row, difference.rank
        ids = out.ids[:, row] if of_ranks else out.ids[rank, launch]
        weights = out.weights[:, row] if of_ranks else out.weights[rank, launch]
        sides[side] = {
            "label": path.name,
            "ids": ids.tolist(),
            "weights": [[number(w) for w in line] for line in weights],
        }
    own = slice(difference.row, difference.row + 1)
    logits = scene.logits[own if of_ranks else launch]
    case: dict[str, Any] = {
        "id": f"hunt {difference.kind}",
        "topic": difference.text(),
        "source": command,
        "note": f"width {scene.width}, {scene.ranks} ranks, row {difference.row - first}; "
        f"wrong by the reference: {difference.faulty}",
        "leading_axis": "rank" if of_ranks else "row",
        "scoring": {
            "function": scoring.function,
            "renormalize": scoring.renormalize,
            "epsilon": scoring.epsilon,
            "scale": scoring.scale,
        },
        "top_k": geometry.top_k,
        "logits": [[number(x) for x in line] for line in logits],
        "bias": [number(x) for x in scene.bias] if _bits(scene.bias).any() else None,
        **sides,
        "expected": {"set_class": difference.set_class},
    }
    if geometry.groups > 1:
        case["scoring"] |= {"groups": geometry.groups, "top_groups": geometry.top_groups}
    return case


def _bits(values: F32) -> Any:
    return values.view(np.uint32)


def number(value: np.float32) -> float | str:
    """Return the shortest number that rounds to a FP32 value, or the name that JSON lacks."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(str(value))


def policy_changes(policy: Policy) -> dict[str, Any]:
    """Return the limits of a row's judgement that are not the shipped ones."""
    names = ("window_ulp", "weight_budget_ulp", "tie_contract", "one_for_one", "noise_abs",
             "flush_to_zero")  # fmt: skip
    shipped = Policy()
    return {n: getattr(policy, n) for n in names if getattr(policy, n) != getattr(shipped, n)}
