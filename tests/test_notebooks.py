"""Every notebook runs from top to bottom, and is stored without outputs."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest

# What each one is there to show, as it prints it.
SHOWN = {
    "bank_margins": "layer 3: density",
    "certify": "window for biases in -1..1: ",
    "explore_audit": "explained_by:bf16_bias",
    "first_audit": "explained_by:bf16_bias",
    "record_from_a_model": "bf16_bias reproduces",
    "schedules": "8 ranks {'one_shot_fp32': '2.35e-03', 'two_level': '2.98e-03'",
    "width_dependence": "'against': 9, 'rows': 60, 'differing': {'latent': 51, 'logits': 0,",
}
NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


pytestmark = pytest.mark.usefixtures("one_thread")


def code_cells(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run a cell, and show its last expression as Jupyter does."""
    tree = ast.parse(source, name)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), namespace)
        return
    tree.body.pop()
    exec(compile(tree, name, "exec"), namespace)
    value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    if value is None:
        return
    if isinstance(value, alt.TopLevelMixin):
        assert value.to_dict(validate=True)
    elif hasattr(value, "_repr_html_"):
        assert "<" in value._repr_html_()
    else:
        print(repr(value))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def test_the_site_names_every_notebook() -> None:
    page = NOTEBOOKS[0].parent.parent / "docs" / "index.md"
    named = re.findall(r"^\| `(\w+)\.ipynb` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(path)):
        run_cell("".join(cell["source"]), f"{path.name}[{number}]", namespace)
    assert SHOWN[path.stem] in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path: Path) -> None:
    assert all(cell["outputs"] == [] for cell in code_cells(path))
