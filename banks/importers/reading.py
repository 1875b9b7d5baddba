"""What a user says of a file that the file does not say itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from ..errors import InputError, check_name
from ..geometry import Geometry, ScoringRule, TieContract

TENSOR_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "hidden": (),
    "logits": ("router_logits", "routing_logits"),
    "latent_partials": (),
    "latent_shards": (),
    "logits_shards": (),
    "router_weight": (),
    "router_weight_master": (),
    "correction_bias": ("e_score_correction_bias", "routing_bias"),
    "latent_down_weight": (),
    "recorded.gpu.ids": ("topk_ids",),
    "recorded.gpu.weights": ("topk_weights",),
    "recorded.forward.ids": ("forward_topk_ids",),
    "recorded.forward.weights": ("forward_topk_weights",),
}
"""What else files call the tensors of a bank; the first that a file has is taken.

The first five are [row, ...], the next four are whole, the outputs of a path are [row, slot].
"""

SHARDED: Final = {"logits": "logits_shards"}
"""What becomes of a tensor that lies in column shards over ranks."""

KEY_NAMES: Final = ("layer", "step", "row", "rank", "token_ids", "doc", "position", "window_start",
                    "source", "request")  # fmt: skip
"""Integer columns [row] that are keys."""


@dataclass(frozen=True)
class Reading:
    """What a reader has to know before it reads.

    Attributes:
        names: what the file calls the tensors of a bank, by bank name, over ``TENSOR_NAMES``.
        geometry: sizes of the front; None takes them from the tensors.
        layers: layers to read where a file has several; None reads all.
        keys: integer columns [row] to keep as keys, beside ``KEY_NAMES``.
        model_layers: layers of the model, where a dump's ids have no shape of their own.
        workloads: uuids of a dataset's workloads to read; none reads all.
        path: what the recorded outputs are called where the file has one set without a name.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    geometry: Geometry | None = None
    layers: frozenset[int] | None = None
    keys: tuple[str, ...] = ()
    model_layers: int | None = None
    workloads: tuple[str, ...] = ()
    path: str = "replay"

    def candidates(self, name: str) -> tuple[str, ...]:
        """Return what the file may call a tensor of the bank."""
        if name in self.names:
            return (self.names[name],)
        return (*TENSOR_NAMES.get(name, ()), name)


@dataclass(frozen=True)
class Recording:
    """What is true of the rows, and no reader needs to know.

    Attributes:
        name: the bank's name; None takes the file's.
        layer: layer number; None takes the digits after "layer" in the file's name, else 0.
        widths: rows per launch by recorded path; absent where unknown.
        step_width: rows per launch of the inputs: row r belongs to step r // step_width; None
            puts every row in step 0. Not used where the file has steps.
        independence_unit: ``row``, a key column, or ``none``; None takes ``doc`` or ``request``
            where the file has one, else ``none``: nobody has said that the rows are independent.
        zero_bias: whether the model has no correction bias.
        scoring: rule from logits to experts.
        tie_contract: whether equal keys must go to the lower id.
        provenance: where the rows come from (JSON values).
        batch_digests: as ``write_bank``.
    """

    name: str | None = None
    layer: int | None = None
    widths: Mapping[str, int | None] = field(default_factory=dict)
    step_width: int | None = None
    independence_unit: str | None = None
    zero_bias: bool = False
    scoring: ScoringRule = field(default_factory=ScoringRule)
    tie_contract: TieContract = "unspecified"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    batch_digests: bool = True


_LAYERS: Final = 1 << 31
"""A layer is a key of 32 bits."""
_WHERE: Final = "import"


def check_recording(recording: Recording) -> None:
    """Refuse what is true of no rows.

    Raises:
        InputError: an empty name, a negative layer, or no row a launch.
    """
    name, layer, width = recording.name, recording.layer, recording.step_width
    if name is not None:
        check_name("name", name, _WHERE)
    if layer is not None and not 0 <= layer < _LAYERS:
        raise InputError("layer", layer, f"0..{_LAYERS - 1}", _WHERE)
    for option, rows in {"step_width": width, **recording.widths}.items():
        if rows is not None and rows < 1:
            raise InputError(option, rows, "at least 1 row", _WHERE)


_OPTIONS: Final = {"zero_bias": "no-bias", "independence_unit": "unit", "widths": "width",
                   "workloads": "workload", "keys": "key"}  # fmt: skip
"""What the command line calls a field, where it is not the field's own name."""


def changed(given: Reading | Recording, names: Iterable[str]) -> dict[str, str]:
    """Return those of the fields called ``names`` that are not as they are where nobody says.

    By field, with what the command line calls them.
    """
    plain = type(given)()
    wanted = set(names)
    return {
        one.name: _OPTIONS.get(one.name, one.name.replace("_", "-"))
        for one in fields(given)
        if one.name in wanted and getattr(given, one.name) != getattr(plain, one.name)
    }
