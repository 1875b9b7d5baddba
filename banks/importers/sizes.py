"""The geometry that tensors tell, held to the one that was given."""

from __future__ import annotations

from collections.abc import Mapping

from ..bank import Array
from ..errors import BankError
from ..geometry import Geometry
from .tensors import Found, Tensors


def geometry_of(
    tensors: Tensors,
    rows: Mapping[str, Found],
    weights: Mapping[str, Array],
    given: Geometry | None,
    name: str,
) -> Geometry:
    """Return the sizes of the front.

    Args:
        tensors: of the file.
        rows: row tensors by bank name.
        weights: weights by name.
        given: by the user; sizes that no tensor tells are taken from it.
        name: of a geometry that was not given.

    Raises:
        BankError: a tensor of another size than the one given, or a size that nothing tells.
    """
    told = _told(tensors, rows, weights)
    where = tensors.content.where
    if given is not None:
        for size, (value, source) in told.items():
            expected: int = getattr(given, size)
            if value != expected:
                what = f"{size} of tensor {source}"
                raise BankError(what, value, f"{expected}, as in the geometry", where)
        return given
    for size, why in (("experts", "given"), ("top_k", "given where no ids are recorded")):
        if size not in told:
            example = "--geometry experts=128,top_k=8 or a preset"
            raise BankError(size, "nothing", f"{why}, such as {example}", where)
    known = {size: value for size, (value, _) in told.items()}
    return Geometry(name, **{"hidden": 0, "latent": 0, **known})


def _told(
    tensors: Tensors, rows: Mapping[str, Found], weights: Mapping[str, Array]
) -> dict[str, tuple[int, str]]:
    """Sizes, with the first tensor that tells each."""
    told: dict[str, tuple[int, str]] = {}

    def tell(size: str, value: int, source: str) -> None:
        told.setdefault(size, (value, source))

    for name, weight in weights.items():
        if name == "latent_down_weight":
            tell("latent", weight.shape[0], name)
        elif name != "router_weight_master":
            tell("experts", weight.shape[0], name)
        if name == "router_weight":
            tell("hidden", weight.shape[1], name)
    for name, found in rows.items():
        shape, source = found.column.shape, tensors.label(found)
        if name in ("logits", "logits_recorded"):
            tell("experts", shape[1], source)
        elif name == "logits_shards":
            tell("experts", shape[1] * shape[2], source)
        elif name == "latent_shards":
            tell("latent", shape[1] * shape[2], source)
        elif name == "latent_partials":
            tell("latent", shape[2], source)
        elif name.endswith(".ids"):
            tell("top_k", shape[1], source)
    return told
