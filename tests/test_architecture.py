"""Data flows one way: banks -> kernels -> audit. Imports are parsed, not executed."""

import ast
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from slow_first import SLOW_FIRST

PACKAGE = Path(str(files("neartie")))
FOLDERS = ("banks", "kernels", "audit")
# What the pure modules may import besides the standard library and each other.
PURE_LIBRARIES = {"numpy", "scipy", "numba", "ml_dtypes"}
# No clock, no randomness, no files in what turns arrays into numbers.
IMPURE_STANDARD = {
    "time",
    "datetime",
    "random",
    "os",
    "pathlib",
    "tempfile",
    "subprocess",
    "secrets",
}
GEOMETRY_TYPES = {"banks.errors", "banks.geometry"}
# Arithmetic of the banks that a kernel does too, on a device.
SHARED_ARITHMETIC = {"banks.exact_product", "banks.normal_constants"}


def modules(folder: str) -> list[Path]:
    found = sorted((PACKAGE / folder).rglob("*.py"))
    assert found, f"no modules under {folder}"
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Absolute names; ours without the leading ``neartie.``."""
    package = list(path.relative_to(PACKAGE).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.add(module)
            if not node.module or module in FOLDERS:
                names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] in FOLDERS}


@pytest.mark.parametrize("path", modules("banks"), ids=name_of)
def test_banks_import_nothing_of_ours(path: Any) -> None:
    assert not {name for name in ours(imports_of(path)) if not name.startswith("banks")}


@pytest.mark.parametrize("path", modules("kernels"), ids=name_of)
def test_kernels_import_banks_for_geometry_and_shared_arithmetic_only(path: Any) -> None:
    others = {name for name in ours(imports_of(path)) if not name.startswith("kernels")}
    assert others <= GEOMETRY_TYPES | SHARED_ARITHMETIC


@pytest.mark.parametrize(
    "path", [p for p in modules("kernels") if p.stem.startswith("reference")], ids=name_of
)
def test_the_reference_shares_no_code_with_the_paths(path: Any) -> None:
    allowed = {
        "kernels.contract",
        *(f"kernels.{p.stem}" for p in modules("kernels") if p.stem.startswith("reference")),
    }
    assert ours(imports_of(path)) <= allowed | GEOMETRY_TYPES


@pytest.mark.parametrize("path", modules("audit/metrics"), ids=name_of)
def test_metric_modules_are_pure(path: Any) -> None:
    names = imports_of(path)
    mine = {n for n in ours(names) if not n.startswith("audit.metrics")}
    assert mine <= GEOMETRY_TYPES
    outside = {n.split(".")[0] for n in names - ours(names)} - set(sys.stdlib_module_names)
    assert outside <= PURE_LIBRARIES
    assert not {n.split(".")[0] for n in names} & IMPURE_STANDARD


def test_the_parser_sees_relative_imports() -> None:
    path = PACKAGE / "kernels" / "contract.py"
    assert "banks.geometry" in imports_of(path)
    assert "numpy" in imports_of(path)


def test_the_files_that_are_run_first_are_there() -> None:
    assert len(set(SLOW_FIRST)) == len(SLOW_FIRST)
    for name in SLOW_FIRST:
        assert (Path(__file__).parent / name).is_file(), name
