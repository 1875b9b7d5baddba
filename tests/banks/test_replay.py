"""Dumps of routed ids, laid out as the engines and trainers do (sources in the importer)."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_banks import assert_same_rows

from neartie.banks.bank import Bank
from neartie.banks.errors import BankError, InputError
from neartie.banks.exporters.writing import Writing
from neartie.banks.formats import export_bank, import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading
from neartie.banks.merge import join_outputs
from neartie.banks.open import open_bank
from neartie.banks.rows import Selection, select_rows

Array = np.ndarray[Any, Any]
TOKENS, LAYERS, EXPERTS, K = 13, 4, 40, 4
GEOMETRY = Geometry("served", 0, 0, EXPERTS, K)
READING = Reading(geometry=GEOMETRY, path="rollout", model_layers=LAYERS)


def made_ids(tokens: int = TOKENS, seed: int = 0) -> Array:
    """[token, layer, slot] with layer 0 dense, and one token that layer 2 did not capture."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((tokens, LAYERS, EXPERTS)), axis=2)[:, :, :K].astype(np.int32)
    ids[:, 0] = -1
    ids[tokens - 1, 2] = -1
    return ids


def vllm_response(ids: Array) -> dict[str, Any]:
    """A choice of vLLM's: base64 of numpy.save of uint8 (or uint16 from 256 experts on)."""
    buffer = io.BytesIO()
    np.save(buffer, ids)
    text = base64.b64encode(buffer.getvalue()).decode()
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": "...", "routed_experts": text}]}


def sglang_response(ids: Array) -> dict[str, Any]:
    """Bare int32 in meta_info; the client reshapes it (srt/state_capturer/routed_experts.py)."""
    text = base64.b64encode(ids.astype(np.int32).tobytes()).decode()
    return {"text": "...", "meta_info": {"id": "a", "routed_experts": text}}


def expected_rows(ids: Array) -> list[tuple[int, int, list[int]]]:
    return [
        (token, layer, ids[token, layer].tolist())
        for token in range(len(ids))
        for layer in range(LAYERS)
        if (ids[token, layer] != -1).any()
    ]


def rows_of(place: Path, request: int | None = None) -> list[tuple[int, int, list[int]]]:
    bank = open_bank(place)
    block = bank.read(0, bank.rows)
    ids = block.recorded["rollout"][0]
    return [
        (int(row), int(layer), line)
        for row, layer, step, line in zip(
            block.keys["row"], block.keys["layer"], block.keys["request"], ids.tolist(), strict=True
        )
        if request is None or step == request
    ]


@pytest.fixture
def ids() -> Array:
    return made_ids()


def test_an_array(ids: Array, tmp_path: Path) -> None:
    np.save(tmp_path / "routed.npy", ids)
    import_files([tmp_path / "routed.npy"], tmp_path / "bank", reading=READING)
    bank = open_bank(tmp_path / "bank")
    assert rows_of(tmp_path / "bank") == expected_rows(ids)
    assert bank.stage == "outputs"
    assert not bank.weights
    assert bank.independence_unit == "request"
    assert bank.recorded_widths == {"rollout": None}
    assert bank.provenance["replay"] == {
        "tokens": [TOKENS], "layers": LAYERS, "read_layers": [0, 1, 2, 3],
        "not_captured": TOKENS + 1,
    }  # fmt: skip


def test_sglang_and_vllm_and_prime_rl(ids: Array, tmp_path: Path) -> None:
    other = made_ids(7, seed=1)
    some = np.abs(ids)[:, 1:]  # vLLM's types are unsigned
    two = tmp_path / "sglang.jsonl"
    two.write_text("\n".join(json.dumps(sglang_response(one)) for one in (ids, other)) + "\n")
    import_files([two], tmp_path / "two", format="replay", reading=READING)
    assert rows_of(tmp_path / "two", 0) == expected_rows(ids)
    assert rows_of(tmp_path / "two", 1) == expected_rows(other)
    one = tmp_path / "vllm.json"
    one.write_text(json.dumps(vllm_response(some.astype(np.uint8))))
    import_files([one], tmp_path / "one", reading=READING)
    assert [line for _, _, line in rows_of(tmp_path / "one")] == some.reshape(-1, K).tolist()
    envelope = {
        "data": base64.b64encode(some.astype(np.uint16).tobytes()).decode(),
        "shape": list(some.shape), "dtype": "uint16", "start": 5,
    }  # fmt: skip
    one.write_text(json.dumps({"choices": [{"routed_experts": envelope}]}))
    import_files([one], tmp_path / "start", reading=READING)
    assert rows_of(tmp_path / "start")[0][0] == 5


def test_a_list_of_layers_of_megatron_and_of_steps_of_miles(ids: Array, tmp_path: Path) -> None:
    layers = [torch.from_numpy(ids[:, layer].astype(np.int64)) for layer in range(LAYERS)]
    torch.save(layers, tmp_path / "routing_replay.pt")
    import_files([tmp_path / "routing_replay.pt"], tmp_path / "a", format="replay", reading=READING)
    assert rows_of(tmp_path / "a") == expected_rows(ids)
    micro = [[layer[:6], layer[6:]] for layer in layers]
    torch.save(micro, tmp_path / "micro.pt")
    import_files([tmp_path / "micro.pt"], tmp_path / "b", format="replay", reading=READING)
    assert rows_of(tmp_path / "b") == expected_rows(ids)


def test_some_layers(ids: Array, tmp_path: Path) -> None:
    ids[:, 0] = 0  # what a buffer has that no router wrote to
    np.save(tmp_path / "routed.npy", ids)
    with pytest.raises(BankError, match=r"layer 0=expert 0 in every slot .*leave a layer"):
        import_files([tmp_path / "routed.npy"], tmp_path / "bank", reading=READING)
    some = Reading(geometry=GEOMETRY, path="rollout", layers=frozenset({1, 3}))
    import_files([tmp_path / "routed.npy"], tmp_path / "bank", reading=some)
    wanted = [row for row in expected_rows(ids) if row[1] in (1, 3)]
    assert rows_of(tmp_path / "bank") == wanted
    none = Reading(geometry=GEOMETRY, layers=frozenset({4}))
    with pytest.raises(BankError, match=r"layer=4, but should be 0\.\.3"):
        import_files([tmp_path / "routed.npy"], tmp_path / "other", reading=none)


@pytest.mark.parametrize("name", ["out.npy", "out.jsonl"])
def test_there_and_back(name: str, tmp_path: Path) -> None:
    requests = [made_ids(9, 5)] if name.endswith("npy") else [made_ids(9, 5), made_ids(4, 6)]
    lines = "\n".join(json.dumps(vllm_response(one)) for one in requests)
    (tmp_path / "in.jsonl").write_text(lines)
    import_files([tmp_path / "in.jsonl"], tmp_path / "a", format="replay", reading=READING)
    export_bank(tmp_path / "a", tmp_path / name, format="replay")
    import_files([tmp_path / name], tmp_path / "b", format="replay", reading=READING)
    assert_same_rows(open_bank(tmp_path / "b"), open_bank(tmp_path / "a"))
    if name.endswith("npy"):
        assert np.load(tmp_path / name).tobytes() == requests[0].tobytes()


def inputs_of(bank: Bank, place: Path) -> Bank:
    select_rows(bank, place / "inputs", Selection(drop=("recorded.gpu",)))
    return open_bank(place / "inputs")


def test_recorded_ids_of_a_bank_with_inputs(tmp_path: Path) -> None:
    export_bank("k3-mini/layer2", tmp_path / "ids.jsonl", format="replay",
                writing=Writing(model_layers=6))  # fmt: skip
    bank = open_bank("k3-mini/layer2")
    lines = (tmp_path / "ids.jsonl").read_text().splitlines()
    assert len(lines) == -(-bank.rows // 20)
    # The row of a k3-mini bank counts on through its steps.
    held = json.loads(lines[1])["choices"][0]["routed_experts"]
    assert (held["start"], held["shape"]) == (20, [20, 6, 16])
    ids = np.frombuffer(base64.b64decode(held["data"]), np.int32).reshape(20, 6, 16)
    assert ids[:, 2].tolist() == bank.read(20, 40).recorded["gpu"][0].tolist()
    assert (ids[:, [0, 1, 3, 4, 5]] == -1).all()
    reading = Reading(geometry=bank.geometry, path="gpu")
    import_files([tmp_path / "ids.jsonl"], tmp_path / "ids", format="replay", reading=reading)
    join_outputs(
        [inputs_of(bank, tmp_path), open_bank(tmp_path / "ids")], tmp_path / "joined",
        on=["layer", "row"],
    )  # fmt: skip
    joined = open_bank(tmp_path / "joined").read(0, bank.rows)
    assert joined.recorded["gpu"][1] is None
    assert joined.recorded["gpu"][0].tobytes() == (
        bank.read(0, bank.rows).recorded["gpu"][0].tobytes()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[0], r"request 0 ids=int32 \[4, 4\], but should be integers \[tokens"),
        (lambda ids: ids[:, :, :3], "request 0 k=3, but should be 4, as in the geometry"),
        (lambda ids: ids.astype(np.float32), "request 0 ids=float32"),
        (lambda ids: ids + EXPERTS, r"rollout.ids\[1, 0\]=59, but should be -1\.\.39"),
        (lambda ids: np.full_like(ids, -1), "ids=all -1, but should be at least one token"),
        (lambda ids: np.full_like(ids, -2), r"ids\[0, 0\]=-2, but should be -1\.\.39"),
    ],
)
def test_arrays_that_are_no_dump(ids: Array, change: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "routed.npy", change(ids))
    with pytest.raises(BankError, match=message):
        import_files([tmp_path / "routed.npy"], tmp_path / "bank", reading=READING)
    assert not (tmp_path / "bank").exists()


def npy_header_alone() -> str:
    buffer = io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (1 << 12, 4, 4)}
    np.lib.format.write_array_header_1_0(buffer, shape)
    return base64.b64encode(buffer.getvalue()).decode()


SHORT_NPY = npy_header_alone()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("%%%", r"routed_experts.data=.*but should be base64 text"),
        (base64.b64encode(b"abcde").decode(), r"data=5 bytes, but should be a whole number of \["),
        ({"data": "AAAA", "shape": [1, 2]}, "data=3 bytes, but should be a whole number of"),
        ({"data": "AAAA", "dtype": "object"}, "dtype=object, but should be one of uint8"),
        ({"data": "", "start": -1}, "start=-1, but should be a whole number"),
        ([[[1, 2], [3]]], "routed_experts=lists of several lengths"),
        (SHORT_NPY, "routed_experts bytes=128, but should be 65664"),
        (7, "routed_experts.data=int, but should be base64 text"),
    ],
)
def test_responses_that_are_none(value: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"meta_info": {"routed_experts": value}}))
    with pytest.raises(BankError, match=message):
        import_files([path], tmp_path / "bank", reading=READING)


def test_what_a_dump_does_not_tell(ids: Array, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(sglang_response(ids)))
    with pytest.raises(InputError, match="geometry=nothing, but should be given: a dump does not"):
        import_files([path], tmp_path / "bank")
    with pytest.raises(InputError, match=r"layers of the model=nothing, but should be given"):
        import_files([path], tmp_path / "bank", reading=Reading(geometry=GEOMETRY))
    path.write_text('{"choices": 3, "meta_info": [1]}')
    with pytest.raises(BankError, match="routed_experts=nothing, but should be present"):
        import_files([path], tmp_path / "bank", reading=READING)
