"""The package is importable as neartie.* only, and its lists are complete."""

import importlib
import importlib.util
import pkgutil
import tomllib
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import neartie

FOLDERS = ("audit", "banks", "kernels")


def walked() -> list[str]:
    return [m.name for m in pkgutil.walk_packages(neartie.__path__, "neartie.")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_importable_under_neartie_only(folder: Any) -> None:
    assert importlib.import_module(f"neartie.{folder}").__name__ == f"neartie.{folder}"
    assert importlib.util.find_spec(folder) is None


@pytest.mark.parametrize("name", walked())
def test_every_module_imports(name: Any) -> None:
    assert importlib.import_module(name).__name__ == name


def test_the_packages_list_is_complete() -> None:
    root = Path(str(files("neartie"))).parent.parent
    project = root / "pyproject.toml"
    if not project.is_file():
        pytest.skip("an installed package has no pyproject.toml beside it")
    listed = tomllib.loads(project.read_text())["tool"]["setuptools"]["packages"]
    found = {m.name for m in pkgutil.walk_packages(neartie.__path__, "neartie.") if m.ispkg} | {
        "neartie"
    }
    assert sorted(listed) == sorted(found)


def test_every_public_name_loads() -> None:
    for name in neartie.__all__:
        assert getattr(neartie, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = neartie.nothing


def test_version_is_the_distributions() -> None:
    assert distribution("neartie").version == neartie.__version__
