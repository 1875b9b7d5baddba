"""The gates of a model, by layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import InputError
from .spec import Gate, GateSpec

if TYPE_CHECKING:
    import torch


def find_gates(
    model: torch.nn.Module, specs: Sequence[GateSpec], layers: Collection[int] | None = None
) -> list[Gate]:
    """Return the model's gates in ascending layers; the first spec that matches a module counts.

    A gate's layer is the first number in its name (``model.layers.3.mlp.gate``: 3), or its place
    among the gates where no name has one.

    Args:
        model: any torch module, compiled or not.
        specs: what to look for.
        layers: the wanted layers; None takes all.

    Raises:
        InputError: no gate, two in one layer, or a wanted layer without one.
    """
    found: list[Gate] = []
    for name, module in model.named_modules():
        spec = next((spec for spec in specs if spec.matches(module)), None)
        if spec is not None:
            parent = model.get_submodule(name.rpartition(".")[0])
            found.append(Gate(_layer(name, len(found)), name, module, parent, spec))
    if not found:
        known = ", ".join(spec.name for spec in specs)
        expected = f"one with a gate that a spec finds ({known}); give your own as specs="
        raise InputError("model", type(model).__name__, expected, "record")
    if all(_number(gate.name) is None for gate in found):
        found = [replace(gate, layer=place) for place, gate in enumerate(found)]
    by_layer: dict[int, Gate] = {}
    for gate in sorted(found, key=lambda gate: gate.layer):
        if gate.layer in by_layer:
            got = f"{by_layer[gate.layer].name} and {gate.name}"
            expected = "one gate; record the part of the model that you want"
            raise InputError(f"layer {gate.layer}", got, expected, "record")
        by_layer[gate.layer] = gate
    for layer in layers or ():
        if layer not in by_layer:
            known = ", ".join(str(number) for number in by_layer)
            raise InputError("layers", layer, f"some of {known}", "record")
    return [gate for layer, gate in by_layer.items() if layers is None or layer in layers]


def _number(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _layer(name: str, place: int) -> int:
    number = _number(name)
    return place if number is None else number
