"""What a hunt tells: what was tried, what was found, and how to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ..evidence.write import write_whole
from ..policy import Policy
from .pytest_text import pytest_text, witness_name
from .search import Tried
from .witness import Witness, policy_changes

_NAMES_SHOWN: Final = 4


@dataclass(frozen=True, eq=False)
class HuntResult:
    """What ``hunt`` returns.

    Attributes:
        baseline: the path's spec, or the name of an object.
        candidate: likewise.
        source: where real rows came from.
        geometry: name of the geometry.
        seed: of the strategies' random numbers.
        width: rows per launch.
        ranks: tensor-parallel ranks.
        stage: ``shards`` or ``logits``, where the rows start.
        policy: limits that differences were judged by.
        rows: run through both paths, probes included.
        seconds: of the search, without making witnesses smaller.
        tried: by strategy, in the order of a round.
        found: one witness a finding, in the order in which they were found.
        not_run: why nothing could be run; empty where something was.
        interrupted: whether it was stopped before its budget.
        command: that repeats it.
    """

    baseline: str
    candidate: str
    source: str
    geometry: str
    seed: int
    width: int
    ranks: int
    stage: str
    policy: Policy
    rows: int = 0
    seconds: float = 0.0
    tried: tuple[Tried, ...] = ()
    found: tuple[Witness, ...] = ()
    not_run: str = ""
    interrupted: bool = False
    command: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def could_not_run(self) -> tuple[Tried, ...]:
        """Strategies of which a path could compute no scene at all."""
        return tuple(one for one in self.tried if one.refused and not one.scenes)

    @property
    def exit_status(self) -> int:
        """0 nothing found, 1 found, 3 nothing found where something could not be run."""
        if self.found:
            return 1
        return 3 if self.not_run or self.could_not_run or not self.rows else 0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "command": self.command,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "source": self.source,
            "geometry": self.geometry,
            "seed": self.seed,
            "width": self.width,
            "ranks": self.ranks,
            "stage": self.stage,
            "policy": {"name": self.policy.name, **policy_changes(self.policy)},
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "not_run": self.not_run or None,
            "exit_status": self.exit_status,
            "tried": [asdict(one) for one in self.tried],
            "found": [witness.as_dict() for witness in self.found],
            "environment": dict(self.environment),
        }

    def to_json(self) -> str:
        """Return ``as_dict`` as text that any JSON parser reads."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    def text(self) -> str:
        """Return the report for a terminal."""
        lines = [
            f"{self.baseline} (baseline) against {self.candidate} (candidate), {self.geometry}, "
            f"width {self.width}, {_ranks(self.ranks)}, from {self.stage}, seed {self.seed}",
            "",
        ]
        if self.not_run:
            return "\n".join([*lines, f"NOT RUN: {self.not_run}"])
        lines += [_tried_line(one) for one in self.tried]
        lines += ["", f"{self.rows:,} rows in {self.seconds:.1f} s"]
        if self.interrupted:
            lines.append("interrupted before its budget was spent")
        if not self.found and not any(one.scenes for one in self.tried):
            lines.append("NOT RUN: the paths computed no scene")
        elif not self.found:
            policy = self.policy
            limits = f"window {policy.window_ulp} ULP, weights {policy.weight_budget_ulp} ULP"
            lines.append(f"nothing found that the policy fails ({limits})")
        for number, witness in enumerate(self.found, start=1):
            lines += ["", *_witness_lines(number, witness)]
        return "\n".join(lines)

    def write(self, directory: str | Path) -> list[Path]:
        """Write ``hunt.json``, and for each witness a case file and a pytest file.

        Returns:
            The files, in this order.

        Raises:
            InputError: the directory exists and is not empty, or cannot be written.
        """
        texts = {"hunt.json": self.to_json() + "\n"}
        for number, witness in enumerate(self.found, start=1):
            case = json.dumps([witness.case], indent=1, allow_nan=False)
            texts[f"witness-{number}.json"] = case + "\n"
            stem = witness_name(witness, self.baseline, self.candidate)
            texts[f"test_witness_{number}_{stem}.py"] = self.test_of(witness)

        def fill(made: Path) -> None:
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8")

        target = write_whole(directory, fill)
        return [target / name for name in texts]

    def test_of(self, witness: Witness) -> str:
        """Return a witness as the text of a pytest file."""
        return pytest_text(witness, self.baseline, self.candidate, self.policy, self.command)


def _ranks(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def _tried_line(one: Tried) -> str:
    line = f"  {one.name:<14}{one.rows:>12,} rows"
    if one.idle:
        return f"  {one.name:<14}{'-':>12} not tried: {one.reason}"
    if one.differing:
        line += f", {one.differing:,} differ"
    if one.refused:
        line += f", {one.refused} scenes not run: {one.reason}"
    return line


def _witness_lines(number: int, witness: Witness) -> list[str]:
    difference, scene = witness.difference, witness.scene
    lines = [
        f"{number}. {difference.text()}",
        f"   wrong by the reference: {difference.faulty}",
        f"   found by {witness.strategy} after {witness.found_after_rows:,} rows, "
        f"{witness.found_after_seconds:.2f} s; {witness.rows_like_it:,} rows like it",
        f"   smallest: {scene.rows} row{'s' if scene.rows > 1 else ''} at width {scene.width}, "
        f"{_ranks(scene.ranks)} ({witness.trials} trials)",
    ]
    if witness.reproduced is False:
        lines[-1] = "   it did not show again when the same rows were run once more"
    if witness.hypotheses:
        shown = ", ".join(witness.hypotheses[:_NAMES_SHOWN])
        more = len(witness.hypotheses) - _NAMES_SHOWN
        lines.append(f"   consistent with: {shown}" + (f" and {more} more" if more > 0 else ""))
    elif witness.hypotheses_tried:
        lines.append(f"   none of {witness.hypotheses_tried} named mistakes gives it")
    return lines
