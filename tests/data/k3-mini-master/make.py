"""Pack the master router weights: ``python -P make.py SOURCE`` with SOURCE the recordings."""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).parent
ties = {}
for layer in range(6):
    tensors = load_file(Path(sys.argv[1]) / f"layer{layer}.safetensors")
    used = tensors["router_weight"]
    assert used.dtype == ml_dtypes.bfloat16
    shifted = used.view(np.uint16).astype(np.int64) << 16
    difference = tensors["router_weight_master"].view(np.uint32).astype(np.int64) - shifted
    up = difference == 1 << 15
    ties[str(layer)] = np.flatnonzero(up).tolist()
    packed = difference.astype(np.int16)
    rebuilt = (shifted + packed + (up.astype(np.int64) << 16)).astype(np.uint32).view(np.float32)
    assert rebuilt.tobytes() == tensors["router_weight_master"].tobytes()
    np.save(HERE / f"layer{layer}.npy", packed)
(HERE / "ties.json").write_text(json.dumps(ties) + "\n")
