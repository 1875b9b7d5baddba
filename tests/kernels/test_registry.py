"""Paths by name: built in, registered, and entry points that load or do not."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from neartie.banks.errors import InputError
from neartie.kernels import registry
from neartie.kernels.contract import OUTPUTS, Path
from neartie.kernels.registry import list_paths, make_path, path_names, register


def _mine(options: Mapping[str, str]) -> Path:
    """A path of a third party."""
    return make_path("route:select=hf")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def _points(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    found = [EntryPoint(name, value, "neartie.paths") for name, value in values.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)


def test_built_in_paths_say_what_they_declare() -> None:
    found = {info.name: info for info in list_paths()}
    assert {"general", "route", "recorded"} <= found.keys()
    general = found["general"]
    assert (general.origin, general.unavailable) == ("built in", None)
    assert general.summary.startswith("General path: K-split latent")
    assert general.options["reduce"].default == "one_shot_fp32"
    assert "nccl" in (general.options["reduce"].choices or ())
    assert general.declared is not None
    assert general.declared.project.startswith("latent K-split, BF16 partials")


def test_register() -> None:
    register("mine", _mine)
    assert "mine" in path_names()
    assert make_path("mine").name == "route:select=hf"
    assert next(i for i in list_paths() if i.name == "mine").summary == "A path of a third party."
    with pytest.raises(InputError, match=r"path name=mine, but should be a new name"):
        register("mine", _mine)
    with pytest.raises(InputError, match="without ':'"):
        register("a:b", _mine)


def test_a_factory_must_return_a_path() -> None:
    broken: Any = dict
    register("broken", broken)
    with pytest.raises(InputError, match="path=dict, but should be an object with the Path"):
        make_path("broken")


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, outside="neartie.kernels.paths:route", broken="not_a_module:path")
    assert make_path("outside:row_blocks=2").name == "route:row_blocks=2"
    found = {info.name: info for info in list_paths()}
    assert found["outside"].unavailable is None
    assert found["broken"].declared is None
    assert "No module named 'not_a_module'" in (found["broken"].unavailable or "")
    with pytest.raises(InputError, match="path=broken, but should be an entry point that loads"):
        make_path("broken")
    # The others go on.
    assert make_path("general").name == "general"


def test_an_entry_point_cannot_replace_a_built_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, general="not_a_module:path")
    assert make_path("general").outputs == OUTPUTS
    assert [i.unavailable for i in list_paths() if i.name == "general"] == [
        None,
        "the name is taken by a path that is built in",
    ]


def test_a_path_that_fails_to_start_is_listed_with_its_reason() -> None:
    def failing(options: Mapping[str, str]) -> Path:
        raise OSError("no device")

    register("failing", failing)
    info = next(info for info in list_paths() if info.name == "failing")
    assert info.unavailable == "OSError: no device"
