"""A witness as a pytest file that needs neartie alone."""

from __future__ import annotations

import re

import numpy as np

from ...banks.geometry import ScoringRule
from ..policy import Policy
from .difference import Difference
from .scene import F32
from .witness import Witness, number, policy_changes

_LINE = 100
_LONGEST_NAME = 40


def pytest_text(
    witness: Witness, baseline: str, candidate: str, policy: Policy, command: str
) -> str:
    """Return the file's text: it fails while the two paths differ on the witness, else passes.

    Args:
        witness: what was found.
        baseline: spec of the path.
        candidate: spec of the path.
        policy: limits that it was found under.
        command: that found it.
    """
    scene, geometry, kind = witness.scene, witness.geometry, witness.difference.kind
    arguments = [f"top_k={geometry.top_k}"]
    if geometry.groups > 1:
        arguments += [f"groups={geometry.groups}", f"top_groups={geometry.top_groups}"]
    if witness.scoring != ScoringRule():
        rule = witness.scoring
        arguments.append(
            f"scoring={{'function': {rule.function!r}, 'renormalize': {rule.renormalize}, "
            f"'epsilon': {rule.epsilon!r}, 'scale': {rule.scale!r}}}".replace("'", '"')
        )
    arguments += [f"width={scene.width}", f"ranks={scene.ranks}"]
    changes = policy_changes(policy)
    if changes:
        shown = ", ".join(f"{k}={v!r}" for k, v in changes.items()).replace("'", '"')
        arguments.append(f"policy=neartie.Policy({shown})")
    lines = [
        f'"""{_docstring(witness.difference, command)}"""',
        "",
        "import numpy as np",
        "",
        "import neartie",
        "",
        f"BASELINE = {_quoted(baseline)}",
        f"CANDIDATE = {_quoted(candidate)}",
        "",
        "",
        f"def test_{_plain(kind)}_{witness_name(witness, baseline, candidate)}() -> None:",
        *_filled("logits", scene.logits),
        *_filled("bias", scene.bias),
        "    found = neartie.check_rows(",
        "        logits,",
        "        bias,",
        "        baseline=BASELINE,",
        "        candidate=CANDIDATE,",
        *(f"        {argument}," for argument in arguments),
        "    )",
        "    assert not found.differences, found.text()",
    ]
    return "\n".join(lines) + "\n"


def _docstring(difference: Difference, command: str) -> str:
    plain = f"{difference.text()}.\n\nFound by: {command}\n".replace("\\", "\\\\")
    return plain.replace('"""', "'''")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def witness_name(witness: Witness, baseline: str, candidate: str) -> str:
    """Return what the names of a witness's file and test end in: the candidate, and a digest.

    The digest is of both paths and the rows, so files of other hunts do not clash in a directory,
    nor their modules in one run.
    """
    return f"{_plain(candidate)[:_LONGEST_NAME]}_{witness.digest(baseline, candidate)}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")


def _filled(name: str, values: F32) -> list[str]:
    """Lines that build an array: its most common value, then the others by place."""
    bits, counts = np.unique(values.view(np.uint32), return_counts=True)
    common = bits[np.argmax(counts)]
    shape = values.shape if values.ndim > 1 else values.shape[0]
    lines = [f"    {name} = np.full({shape}, {_literal(common.view(np.float32))}, np.float32)"]
    flat = values.reshape(1, -1) if values.ndim == 1 else values
    for row, line in enumerate(flat):
        places = np.flatnonzero(line.view(np.uint32) != common)
        if len(places):
            where = f"{row}, " if values.ndim > 1 else ""
            at = _wrapped([str(p) for p in places])
            given = _wrapped([_literal(line[p]) for p in places])
            lines.append(f"    {name}[{where}{at}] = {given}")
    return lines


def _wrapped(parts: list[str]) -> str:
    """A list literal, on several lines where it is long."""
    whole = f"[{', '.join(parts)}]"
    if len(whole) <= _LINE // 2:
        return whole
    lines, line = [], "       "
    for part in parts:
        if len(line) + len(part) + 2 > _LINE:
            lines.append(line)
            line = "       "
        line += f" {part},"
    return "[\n" + "\n".join([*lines, line]) + "\n    ]"


def _literal(value: np.float32) -> str:
    named = {"NaN": "np.nan", "Infinity": "np.inf", "-Infinity": "-np.inf"}
    plain = number(value)
    return named[plain] if isinstance(plain, str) else repr(plain)
