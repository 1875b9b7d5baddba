"""Paths by name: built in, registered, and entry points that load or do not."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from neartie.banks.errors import InputError
from neartie.kernels import registry
from neartie.kernels.contract import OUTPUTS, Declared, Launch, Path, Routed
from neartie.kernels.registry import check_path, list_paths, make_path, path_names, register


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


def test_the_paths_of_a_gpu_say_what_they_need_and_declare() -> None:
    for info in list_paths("cuda"):
        made = make_path(info.name, "cuda")
        assert (info.device, info.origin) == ("cuda", "built in")
        assert info.unavailable == made.unavailable()
        assert info.declared == made.declared
        assert made.declared.device == "cuda"
        assert made.declared.virtual_ranks
        assert not made.declared.row_independent
        assert not made.batches_launches
    assert [info.name for info in list_paths("cuda")] == ["general", "route"]
    assert make_path("recorded", "cuda").name == "recorded"


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


@pytest.mark.parametrize("error", [TypeError("no\nthing"), KeyError("x"), SystemExit(0)])
def test_a_factory_that_raises_is_named(error: BaseException) -> None:
    def failing(options: Mapping[str, str]) -> Path:
        raise error

    register("failing", failing)
    with pytest.raises(InputError) as caught:
        make_path("failing")
    expected = "path=failing, but should be a factory that makes a path ["
    assert str(caught.value).startswith(f"{expected}{type(error).__name__}: ")
    assert str(caught.value).isprintable()
    info = next(info for info in list_paths() if info.name == "failing")
    assert (info.unavailable or "").startswith(type(error).__name__)


def test_a_factory_refuses_its_own_options() -> None:
    def refusing(options: Mapping[str, str]) -> Path:
        raise InputError("turns", 3, "at most 2", "mine")

    register("refusing", refusing)
    with pytest.raises(InputError, match=r"^turns=3, but should be at most 2 \[mine\]$"):
        make_path("refusing")


def test_an_entry_point_that_exits_or_is_no_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    _points(monkeypatch, number="sys:maxsize", leaves="no_such_module:path")
    with pytest.raises(InputError, match="path=number, but should be a factory that makes a path"):
        make_path("number")

    def leave(self: EntryPoint) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(EntryPoint, "load", leave)
    with pytest.raises(InputError, match=r"an entry point that loads \[SystemExit: 0\]"):
        make_path("leaves")


class _Sound:
    """A path that ``check_path`` takes."""

    name = "sound"
    declared = make_path("route").declared
    batches_launches = False
    outputs: Any = ("ids", "weights")

    def unavailable(self) -> str | None:
        return None

    def check(self, launch: Launch) -> None:
        pass

    def run(self, launch: Launch, out: Routed) -> None:
        pass


def _with(**changes: Any) -> _Sound:
    path = _Sound()
    for key, value in changes.items():
        setattr(path, key, value)
    return path


@pytest.mark.parametrize("schedule", [None, "gather", "two_level", "two_level:4", "ring_bf16"])
def test_sound_paths(schedule: str | None) -> None:
    declared = replace(_Sound.declared, latent_schedule=schedule)
    for outputs in (("weights", "ids"), ["ids", "weights", "logits"], set(OUTPUTS)):
        path = _with(declared=declared, outputs=outputs)
        assert check_path(path, "candidate") is path
    for name in ("general", "route", "recorded"):
        check_path(make_path(name), name)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (3, "path=int, but should be an object with the Path protocol (name is missing)"),
        (_Sound, "path=_Sound, but should be an object with the Path protocol, not a class"),
        (_with(name=""), "name='', but should be a non-empty text of printable characters"),
        (_with(name=" "), "name=' ', but should be a non-empty text"),
        (_with(name="a\nb"), "name='a\\nb', but should be a non-empty text"),
        (_with(name=7), "name=7, but should be a non-empty text"),
        (_with(declared="exact"), "declared='exact', but should be an instance of neartie"),
        (_with(declared=Declared), "declared=<class"),
        (_with(batches_launches=1), "batches_launches=1, but should be True or False"),
        (_with(outputs="ids"), "outputs='ids', but should be a tuple of names"),
        (_with(outputs=None), "outputs=None, but should be a tuple of names"),
        (_with(outputs=("ids", "weight")), "outputs='weight', but should be some of latent"),
        (_with(outputs=("ids", [])), "outputs=[], but should be some of latent"),
        (_with(outputs=("ids",)), "outputs=('ids',), but should be with 'weights' in it"),
        (_with(outputs=()), "outputs=(), but should be with 'ids' in it"),
        (_with(run=None), "run=None, but should be a method"),
    ],
)
def test_broken_paths_are_told_what_is_wrong(path: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_path(path, "candidate")
    assert str(caught.value).startswith(message)
    broken: Any = path
    register("third-party", lambda options: broken)
    with pytest.raises(InputError) as caught:
        make_path("third-party")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "schedule",
    ["tree", "two_level:0", "two_level:", "two_level:x", "ring_bf16:2", "gather:2", 3, ""],
)
def test_an_unknown_schedule_is_refused(schedule: Any) -> None:
    path = _with(declared=replace(_Sound.declared, latent_schedule=schedule))
    with pytest.raises(InputError) as caught:
        check_path(path, "candidate")
    expected = f"declared.latent_schedule={schedule!r}, but should be None, gather or one of one_sh"
    assert str(caught.value).startswith(expected)
    assert str(caught.value).endswith("[path sound]")


def test_an_attribute_that_cannot_be_read() -> None:
    class Broken(_Sound):
        @property
        def declared(self) -> Declared:  # type: ignore[override]
            raise RuntimeError("no device")

    with pytest.raises(InputError, match=r"whose declared can be read \[candidate: RuntimeError"):
        check_path(Broken(), "candidate")


def test_options_that_are_none_are_not_listed() -> None:
    class Factory:
        options: Any = 5

        def __call__(self, options: Mapping[str, str]) -> Path:
            return make_path("route")

    register("five", Factory())
    assert next(info for info in list_paths() if info.name == "five").options == {}
    not_callable: Any = 5
    with pytest.raises(InputError, match="factory=5, but should be callable"):
        register("six", not_callable)


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1, of at most 9 digits"):
        make_path(f"general:reduce=two_level,islands={'9' * 5000}")


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
