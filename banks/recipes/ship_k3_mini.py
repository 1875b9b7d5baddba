"""Make the shipped banks: ``python -P -m neartie.banks.recipes.ship_k3_mini SOURCE DEST``.

SOURCE holds the k3-mini recordings (layer0..5.safetensors, tie-witness.safetensors, set1.json);
DEST must be new or empty. All rows are kept. Recorded logits, FP32 master weights and the outputs
of the whole-sequence forward pass are dropped, which leaves 15.5 MB. Takes two seconds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from ..bank import NO_UNIT
from ..errors import BankError, InputError
from ..formats import import_files
from ..importers.reading import Recording

DROPPED: Final = (
    "logits",
    "router_weight_master",
    "forward_topk_ids",
    "forward_topk_weights",
)
LAYERS: Final = 6
_WIDTH: Final = 20
"""Rows per launch, of the inputs and of the GPU's own outputs."""
_WITNESS_NOTE: Final = (
    "one launch of 20 rows of another held-out text; row 1 is a real exact tie: the FP32 biased "
    "scores of experts 650 and 602 are equal, in FP64 650 leads by 0.16 ULP; the GPU selected 602"
)
_WITNESS_TEXT: Final = "documentation of the Rust toolchain, a source not in the training text"


def ship(source: Path, destination: Path) -> dict[str, str]:
    """Write the seven banks and return their digests by name.

    Raises:
        BankError: a source file is missing or differs from the digest that set1.json has for it.
    """
    about = json.loads((source / "set1.json").read_text())
    destination.mkdir(exist_ok=True)
    digests = {}
    for layer in range(LAYERS):
        path = source / f"layer{layer}.safetensors"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != about["files"][path.name]["sha256"]:
            expected = about["files"][path.name]["sha256"]
            raise BankError("sha256", digest, expected, str(path))
        recording = Recording(
            name=f"k3-mini/layer{layer}",
            layer=layer,
            widths={"gpu": _WIDTH},
            step_width=_WIDTH,
            provenance=_provenance(about, layer, path.name, digest),
            # The shipped banks are older than digests of batches.
            batch_digests=False,
        )
        digests[recording.name or ""] = import_files(
            [path], destination / f"layer{layer}", drop=DROPPED, recording=recording
        )
    path = source / "tie-witness.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    provenance = _provenance(about, 1, path.name, digest)
    dropped = [name for name in DROPPED if name != "router_weight_master"]
    provenance |= {"rows": _WITNESS_NOTE, "corpus": _WITNESS_TEXT, "dropped": dropped}
    # The launch was picked for its tie: its rows are no sample.
    recording = Recording(
        name="k3-mini/tie-witness",
        layer=1,
        widths={"gpu": _WIDTH},
        step_width=_WIDTH,
        independence_unit=NO_UNIT,
        provenance=provenance,
        batch_digests=False,
    )
    digests["k3-mini/tie-witness"] = import_files(
        [path], destination / "tie-witness", drop=dropped, recording=recording
    )
    return digests


def _provenance(about: dict[str, Any], layer: int, file: str, digest: str) -> dict[str, Any]:
    model, training, environment = about["model"], about["training"], about["environment"]
    return {
        "model": (
            f"{model['name']}: {model['parameters']:,} parameters, {model['experts']} experts, "
            f"top {model['top_k']}, trained on {training['tokens_seen']:,} tokens to loss "
            f"{training['final_train_loss']:.2f}; K3's routing rule, toy sizes, no Kimi weights"
        ),
        "layer": layer,
        "source": {"file": file, "sha256": digest},
        "seeds": {"training": training["seed"]},
        "device": environment["gpu"],
        "library_versions": {
            name: environment[name] for name in ("torch", "cuda", "python", "driver")
        },
        "date": about["date"],
        "router": model["router"],
        "router_weight": model["router_weight"],
        "recording": about["recording"]["rows"],
        "recorded_gpu": "ids and weights of the model's own routing, launches of 20 rows",
        "corpus": about["corpus"]["description"].split(";")[0],
        "source_names": about["corpus"]["source_names"],
        "dropped": list(DROPPED),
    }


def main(arguments: list[str]) -> int:
    """Run the script and return its exit status."""
    if len(arguments) != 2:
        print("usage: ship_k3_mini SOURCE DEST", file=sys.stderr)
        return 2
    try:
        digests = ship(Path(arguments[0]), Path(arguments[1]))
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for name, digest in digests.items():
        print(digest, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
