"""The recorded k3-mini rows on a GPU: three numerics changes, the recording, the tie witness.

PYTHONPATH=src python docs/evidence/one-h200/k3_mini.py OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import neartie
from neartie.banks.open import expand_banks, open_bank

MASTER = Path(__file__).resolve().parents[3] / "tests" / "data" / "k3-mini-master"
CHANGES = {
    "k3-mini-bf16-logits": "route:logits=bf16",
    "k3-mini-bf16-bias": "route:bias=bf16",
    "k3-mini-fp32-master": "route:router_weight=router_weight_master",
}


def master(layer: int) -> npt.NDArray[np.float32]:
    """The FP32 master router weight [896, 512] of a layer (see ``tests/conftest.py``)."""
    packed = np.load(MASTER / f"layer{layer}.npy").astype(np.int64)
    packed.flat[json.loads((MASTER / "ties.json").read_text())[str(layer)]] = 1 << 15
    used = open_bank(f"k3-mini/layer{layer}").weights["router_weight"]
    bits = (used.view(np.uint16).astype(np.int64) << 16) + packed
    weight: npt.NDArray[np.float32] = bits.astype(np.uint32).view(np.float32)
    return weight


def audited(out: Path, banks: Any, baseline: Any, candidate: str, told: str) -> None:
    """Audit at width 20 on the device and write the evidence."""
    shown = baseline if isinstance(baseline, str) else baseline.name
    command = (
        f"neartie.run_audit({told}, baseline={shown!r}, candidate={candidate!r}, rows=[20], "
        "device='cuda')"
    )
    result = neartie.run_audit(
        banks, baseline=baseline, candidate=candidate, rows=[20], device="cuda", command=command
    )
    result.write(out)
    changed = [bank["per_width"]["20"]["differing_units"] for bank in result.record["banks"]]
    print(out.name, changed, result.verdict.state, result.verdict.provisional_class, flush=True)


def main(out: Path) -> None:
    """Write one evidence directory for each audit."""
    banks = [
        bank.with_weights(router_weight_master=master(layer))
        for layer, bank in enumerate(expand_banks(["k3-mini"]))
    ]
    for name, candidate in CHANGES.items():
        audited(out / name, banks, "route", candidate, "k3-mini with router_weight_master")
    exact = neartie.make_path("route:select=fp64")
    witness = "k3-mini/tie-witness"
    audited(out / "tie-witness-fp64", witness, exact, "route", repr(witness))
    audited(out / "tie-witness-recorded", witness, "route", "recorded", repr(witness))
    audited(out / "k3-mini-recorded", "k3-mini", "route", "recorded", "'k3-mini'")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
