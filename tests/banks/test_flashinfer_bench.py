"""Datasets of flashinfer-bench, laid out as its ``TraceSet`` 0.1.2 reads and writes them."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors

from neartie.banks.errors import BankError, InputError
from neartie.banks.formats import export_bank, import_files
from neartie.banks.geometry import parse_geometry
from neartie.banks.importers.reading import Reading
from neartie.banks.open import open_bank

NAME = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
"""A definition of flashinfer_trace/definitions/moe; of its inputs the first two are a router's."""
GEOMETRY = parse_geometry("experts=256,top_k=8,groups=8,top_groups=4", "v3", "x")[0]
READING = Reading(geometry=GEOMETRY)
LENGTHS = (1, 7, 20)
BF16 = np.dtype(ml_dtypes.bfloat16)


def a_dataset(root: Path, kind: str = "safetensors") -> Path:
    """Three workloads in the layout of ``add_workload_blob_tensor`` and of the published files."""
    rng = np.random.default_rng(0)
    bias = rng.standard_normal(256).astype(BF16)
    lines = []
    for number, length in enumerate(LENGTHS):
        uuid = f"0000000{number}-aaaa-bbbb-cccc-dddddddddddd"
        blob = Path("blob") / "workloads" / "moe" / NAME / f"{NAME}_{uuid}.safetensors"
        (root / blob).parent.mkdir(parents=True, exist_ok=True)
        logits = rng.standard_normal((length, 256)).astype(np.float32)
        save_file({"routing_logits": logits, "routing_bias": bias}, root / blob)

        def tensor(key: str, blob: Path = blob) -> dict[str, Any]:
            return {"type": kind, "path": str(blob), "tensor_key": key}

        inputs = {
            "routing_logits": tensor("routing_logits"),
            "routing_bias": tensor("routing_bias"),
            "hidden_states": {"type": "random"},
            "local_expert_offset": {"type": "scalar", "value": 32},
            "routed_scaling_factor": {"type": "scalar", "value": 2.5},
        }
        workload = {"axes": {"seq_len": length}, "inputs": inputs, "uuid": uuid}
        lines.append({"definition": NAME, "solution": None, "workload": workload,
                      "evaluation": None})  # fmt: skip
    file = root / "workloads" / "moe" / f"{NAME}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return file


def test_workloads_are_steps(tmp_path: Path) -> None:
    a_dataset(tmp_path / "set")
    import_files([tmp_path / "set"], tmp_path / "bank", format="flashinfer-bench", reading=READING)
    bank = open_bank(tmp_path / "bank")
    block = bank.read(0, bank.rows)
    blobs = sorted((tmp_path / "set" / "blob").rglob("*.safetensors"))
    logits = np.concatenate([load_file(blob)["routing_logits"] for blob in blobs])
    assert bank.stage == "logits"
    assert bank.geometry == GEOMETRY
    assert block.logits is not None
    assert block.logits.tobytes() == logits.tobytes()
    assert block.keys["step"].tolist() == np.repeat([0, 1, 2], LENGTHS).tolist()
    assert bank.provenance["widened"] == {"correction_bias": "bfloat16"}
    assert bank.provenance["source"]["definition"] == NAME


def test_traces_name_a_workload_for_each_solution(tmp_path: Path) -> None:
    file = a_dataset(tmp_path / "set")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    evaluation = {"status": "PASSED", "environment": {"hardware": "H200"}, "timestamp": "2026"}
    for line in lines:
        line |= {"solution": "mine", "evaluation": evaluation}
    traces = tmp_path / "set" / "traces" / "moe" / f"{NAME}.jsonl"
    traces.parent.mkdir(parents=True)
    twice = [{**line, "solution": name} for line in lines for name in ("mine", "yours")]
    traces.write_text("\n".join(json.dumps(line) for line in twice))
    import_files([traces], tmp_path / "bank", format="flashinfer-bench", reading=READING)
    assert open_bank(tmp_path / "bank").rows == sum(LENGTHS)


def test_some_workloads(tmp_path: Path) -> None:
    file = a_dataset(tmp_path / "set")
    uuid = "00000001-aaaa-bbbb-cccc-dddddddddddd"
    some = Reading(geometry=GEOMETRY, workloads=(uuid,))
    import_files([file], tmp_path / "bank", format="flashinfer-bench", reading=some)
    assert open_bank(tmp_path / "bank").rows == 7
    none = Reading(geometry=GEOMETRY, workloads=("x",))
    with pytest.raises(InputError, match="workload=x, but should be one of the 3 in the file"):
        import_files([file], tmp_path / "other", format="flashinfer-bench", reading=none)


def edit(file: Path, line: int, change: Any) -> None:
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    change(lines[line]["workload"]["inputs"])
    file.write_text("\n".join(json.dumps(one) for one in lines))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda inputs: inputs.update(routing_logits={"type": "random"}),
            "input routing_logits=random, but should be safetensors: only recorded values",
        ),
        (
            lambda inputs: inputs["routing_logits"].update(path="../secret.safetensors"),
            "path=../secret.safetensors, but should be inside the dataset",
        ),
        (
            lambda inputs: inputs["routing_logits"].update(tensor_key="x"),
            "tensor x=nothing, but should be present",
        ),
        (
            lambda inputs: inputs["routing_logits"].update(tensor_key=["x"]),
            r"tensor \['x'\]=nothing, but should be present",
        ),
        (
            lambda inputs: inputs["routing_logits"].update(path="blob/none.safetensors"),
            "but should be a safetensors file",
        ),
        (
            lambda inputs: inputs["routing_bias"].update(tensor_key="routing_logits"),
            "correction_bias=another in 00000001-.* one layer a bank",
        ),
        (lambda inputs: inputs.pop("routing_logits"), "input routing_logits=nothing"),
    ],
)
def test_workloads_that_cannot_be_audited(change: Any, message: str, tmp_path: Path) -> None:
    file = a_dataset(tmp_path / "set")
    edit(file, 1, change)
    with pytest.raises(BankError, match=message):
        import_files([file], tmp_path / "bank", format="flashinfer-bench", reading=READING)
    assert not (tmp_path / "bank").exists()


def test_definitions_without_a_router(tmp_path: Path) -> None:
    file = a_dataset(tmp_path / "set")
    file.write_text(file.read_text().replace("routing_logits", "x").replace("routing_bias", "y"))
    with pytest.raises(
        BankError, match=r"inputs of a router=none known, but should be one of x, y"
    ):
        import_files([file], tmp_path / "bank", format="flashinfer-bench", reading=READING)


def test_the_exported_reference_selects_what_the_gpu_did(tmp_path: Path) -> None:
    """The reference is our rule in torch: it must give the ids that were recorded."""
    export_bank("k3-mini/layer0", tmp_path / "set", format="flashinfer-bench")
    (definition,) = (tmp_path / "set" / "definitions").rglob("*.json")
    namespace: dict[str, Any] = {}
    exec(json.loads(definition.read_text())["reference"], namespace)
    bank = open_bank("k3-mini/layer0")
    (file,) = (tmp_path / "set" / "workloads").rglob("*.jsonl")
    start = 0
    for line in file.read_text().splitlines()[:10]:
        workload = json.loads(line)["workload"]
        arguments = {
            name: load_tensors(tmp_path / "set" / entry["path"])[entry["tensor_key"]]
            for name, entry in workload["inputs"].items()
        }
        ids, weights = namespace["run"](**arguments)
        stop = start + workload["axes"]["rows"]
        assert ids.tolist() == bank.read(start, stop).recorded["gpu"][0].tolist()
        assert weights.shape == ids.shape
        start = stop
    assert start == 200
