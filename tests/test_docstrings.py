"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil
from typing import Any

import pytest

import neartie

MODULES = ["neartie", *(m.name for m in pkgutil.walk_packages(neartie.__path__, "neartie."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: Any) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_some_modules_have_examples() -> None:
    counts = [doctest.testmod(importlib.import_module(n)).attempted for n in MODULES]
    assert sum(counts) >= 10
