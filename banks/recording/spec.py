"""Where an MoE gate keeps what a bank needs: a declarative spec, and its values on one module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from ..geometry import ScoreFunction, ScoringRule

if TYPE_CHECKING:
    import torch

Rows = tuple["torch.Tensor", ...]


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the gate's forward, by position or by name."""

    place: int | str


@dataclass(frozen=True, slots=True)
class Output:
    """One of the values that the gate's forward returns; None is the value itself."""

    place: int | str | None


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute of the gate, such as ``weight``."""

    path: str


@dataclass(frozen=True, slots=True)
class Parent:
    """An attribute of the module that holds the gate, such as ``fc1_latent_proj.weight``.

    ``optional``: a model without it has none, which is no error.
    """

    path: str
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """One kind of MoE gate.

    score = function(logit), key = score + ``correction_bias``, and the rest as in ``ScoringRule``.

    Attributes:
        name: how messages and provenance call it.
        classes: patterns (``fnmatch``) of the gate's class name.
        hidden: the rows that the router product sees, [..., hidden].
        router_weight: [expert, hidden].
        correction_bias: [expert], for the selection only; None where the rule has none.
        logit_bias: [expert], part of the logits; a bank of such a gate starts at the logits.
        logits: [..., expert], before the scoring function and any correction bias.
        ids: [..., slot] integer; None where the gate does not return them.
        weights: [..., slot]; None where the gate does not return them.
        function: the scoring function.
        renormalize: whether the selected scores are divided by their sum.
        scale: what the weights are multiplied by.
        epsilon: added to that sum.
        top_k: experts of a row.
        groups: expert groups.
        top_groups: groups that are selected from.
        latent_weight: [latent, hidden], the down-projection in front of the experts; or None.
        latent_module: path below the gate's parent of the module whose output is the latent; used
            where each rank holds a piece of it (``layouts`` of ``record``).
        notes: what the rule above leaves out or bends, word for word into the provenance.
    """

    name: str
    classes: tuple[str, ...]
    function: ScoreFunction
    hidden: Input = Input(0)
    router_weight: Attr | Parent = Attr("weight")
    correction_bias: Attr | Parent | None = None
    logit_bias: Attr | Parent | None = None
    logits: Output = Output(0)
    weights: Output | None = Output(1)
    ids: Output | None = Output(2)
    renormalize: Attr | Parent | bool = True
    scale: Attr | Parent | float = 1.0
    epsilon: Attr | Parent | float = 0.0
    top_k: Attr | Parent | int = Attr("top_k")
    groups: Attr | Parent | int = 1
    top_groups: Attr | Parent | int = 1
    latent_weight: Attr | Parent | None = None
    latent_module: str | None = None
    notes: tuple[str, ...] = ()

    def matches(self, module: object) -> bool:
        """Whether the class name of ``module`` is one of the spec's."""
        name = type(module).__name__
        return any(fnmatchcase(name, pattern) for pattern in self.classes)


TENSORS: Final = ("hidden", "logits", "ids", "weights")
"""What one call of a gate gives, in this order where the spec has it."""


@dataclass(frozen=True, eq=False)
class Gate:
    """A gate found in a model.

    Attributes:
        layer: its layer number.
        name: its name in the model.
        module: the gate.
        parent: the module that holds it.
        spec: what it was found by.
    """

    layer: int
    name: str
    module: torch.nn.Module
    parent: torch.nn.Module
    spec: GateSpec

    def _where(self) -> str:
        return f"{self.name} ({type(self.module).__name__}), spec {self.spec.name}"

    def value(self, source: object) -> Any:
        """Return what ``source`` stands for: an attribute's value, or the constant itself.

        Raises:
            InputError: the module has no such attribute.
        """
        if not isinstance(source, Attr | Parent):
            return source
        found: Any = self.module if isinstance(source, Attr) else self.parent
        for part in source.path.split("."):
            if not hasattr(found, part):
                if isinstance(source, Parent) and source.optional:
                    return None
                raise InputError(source.path, "nothing", "an attribute", self._where())
            found = getattr(found, part)
        return found

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that the gate has, by their names in a shard, on their device.

        Raises:
            InputError: one is missing, no tensor, without values (of the meta device), or spread
                over ranks as a DTensor.
        """
        spec = self.spec
        sources = {
            "router_weight": spec.router_weight,
            "correction_bias": spec.correction_bias,
            "logit_bias": spec.logit_bias,
            "latent_down_weight": spec.latent_weight,
        }
        found = {name: self.value(source) for name, source in sources.items() if source is not None}
        return {
            name: _plain(tensor, name, self._where())
            for name, tensor in found.items()
            if tensor is not None
        }

    def scoring(self) -> ScoringRule:
        """Return the rule from logits to experts, with this module's settings."""
        spec = self.spec
        return ScoringRule(
            function=spec.function,
            renormalize=bool(self.value(spec.renormalize)),
            epsilon=float(self.value(spec.epsilon)),
            scale=float(self.value(spec.scale)),
        )

    def sizes(self) -> dict[str, int]:
        """Return top_k, groups and top_groups."""
        spec = self.spec
        sources = {"top_k": spec.top_k, "groups": spec.groups, "top_groups": spec.top_groups}
        return {name: int(self.value(source)) for name, source in sources.items()}

    def tensor_names(self) -> tuple[str, ...]:
        """Return which of ``TENSORS`` a call gives."""
        return tuple(name for name in TENSORS if getattr(self.spec, name) is not None)

    def latent_module(self) -> torch.nn.Module:
        """Return the module whose output is the latent.

        Raises:
            InputError: the spec names none.
        """
        path = self.spec.latent_module
        if path is None:
            raise InputError("latent_module", None, "a path in the spec", self._where())
        return self.parent.get_submodule(path)

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Rows:
        """Return the tensors of one call in the order of ``tensor_names``, each [row, ...].

        Raises:
            InputError: the call has no such argument or output, or it is no tensor.
        """
        found = []
        for name in self.tensor_names():
            source = getattr(self.spec, name)
            try:
                found.append(_rows(_picked(source, args, kwargs, output)))
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                expected = f"a tensor at {source}"
                raise InputError(name, error, expected, self._where()) from None
        return tuple(found)


def _plain(tensor: Any, name: str, where: str) -> torch.Tensor:
    import torch

    if not isinstance(tensor, torch.Tensor) or hasattr(tensor, "full_tensor"):
        raise InputError(name, type(tensor).__name__, "a whole torch.Tensor", where)
    if tensor.is_meta:
        raise InputError(name, "a tensor of the meta device", "one with values", where)
    return tensor.detach()


def _picked(source: Input | Output, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    place = source.place
    if isinstance(source, Output):
        if place is None:
            return out
        if isinstance(place, int) or isinstance(out, Mapping):
            return out[place]
        return getattr(out, place)
    if isinstance(place, str):
        return kwargs[place]
    assert place is not None
    # An argument may come by its name.
    return args[place] if place < len(args) else list(kwargs.values())[place - len(args)]


def output_rows(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Rows:
    """Return the output of a module's call [row, ...] as the only tensor."""
    del args, kwargs
    return (_rows(output),)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1, tensor.shape[-1])
