"""Every example in a docstring runs."""

import doctest
import pkgutil
from importlib import import_module
from typing import Any

import pytest

import neartie

MODULES = ["neartie", *(m.name for m in pkgutil.walk_packages(neartie.__path__, "neartie."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: Any) -> None:
    module = import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_some_modules_have_examples() -> None:
    # Found as above, where they are run.
    found = [test for name in MODULES for test in doctest.DocTestFinder().find(import_module(name))]
    assert sum(len(test.examples) for test in found) >= 10
