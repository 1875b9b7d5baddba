from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from neartie.banks.errors import BankError, InputError
from neartie.banks.formats import import_files
from neartie.banks.geometry import Geometry
from neartie.banks.importers.reading import Reading, Recording
from neartie.banks.open import open_bank

Array = np.ndarray[Any, Any]
LAUNCHES = Recording(widths={"gpu": 20}, step_width=20)


@pytest.fixture
def tensors() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    rows = 25
    return {
        "hidden": rng.standard_normal((rows, 8)).astype(ml_dtypes.bfloat16),
        "router_weight": rng.standard_normal((6, 8)).astype(ml_dtypes.bfloat16),
        "router_weight_master": rng.standard_normal((6, 8)).astype(np.float32),
        "correction_bias": rng.standard_normal(6).astype(np.float32),
        "latent_down_weight": rng.standard_normal((4, 8)).astype(ml_dtypes.bfloat16),
        "logits": rng.standard_normal((rows, 6)).astype(np.float32),
        "topk_ids": rng.integers(0, 6, (rows, 2)).astype(np.int32),
        "topk_weights": rng.random((rows, 2)).astype(np.float32),
        "forward_topk_ids": rng.integers(0, 6, (rows, 2)).astype(np.int32),
        "forward_topk_weights": rng.random((rows, 2)).astype(np.float32),
        "doc": np.arange(rows, dtype=np.int32) + 7,
        "position": np.arange(rows, dtype=np.int32),
    }


def saved(tensors: dict[str, Array], directory: Path) -> Path:
    path = directory / "layer4.safetensors"
    save_file(tensors, path)
    return path


def test_everything_arrives(tensors: dict[str, Array], tmp_path: Path) -> None:
    path = saved(tensors, tmp_path)
    digest = import_files([path], tmp_path / "bank", recording=LAUNCHES)
    bank = open_bank(str(tmp_path / "bank"))
    assert bank.digest == digest
    assert (bank.name, bank.rows, bank.stage) == ("layer4", 25, "hidden")
    assert bank.geometry.name == "layer4"
    g = bank.geometry
    assert (g.hidden, g.latent, g.experts, g.top_k) == (8, 4, 6, 2)
    assert bank.independence_unit == "doc"
    assert bank.recorded_widths == {"gpu": 20, "forward": None}
    block = bank.read(0, 25)
    assert block.hidden is not None
    assert block.logits is None
    assert block.hidden.tobytes() == tensors["hidden"].tobytes()
    assert block.extra["logits_recorded"].tobytes() == tensors["logits"].tobytes()
    for name, prefix in (("gpu", ""), ("forward", "forward_")):
        ids, weights = block.recorded[name]
        assert weights is not None
        assert ids.tobytes() == tensors[f"{prefix}topk_ids"].tobytes()
        assert weights.tobytes() == tensors[f"{prefix}topk_weights"].tobytes()
    for name in ("router_weight", "router_weight_master", "correction_bias", "latent_down_weight"):
        assert bank.weights[name].tobytes() == tensors[name].tobytes()
    assert list(block.keys["unit"]) == list(range(7, 32))
    assert list(block.keys["step"]) == [0] * 20 + [1] * 5
    assert set(block.keys["layer"]) == {4}


def test_dropped_tensors_are_not_there(tensors: dict[str, Array], tmp_path: Path) -> None:
    drop = ("logits", "router_weight_master", "latent_down_weight", "topk_ids")
    import_files(
        [saved(tensors, tmp_path)],
        tmp_path / "bank",
        drop=drop,
        recording=Recording(name="mine/one", layer=9, step_width=None, independence_unit="row"),
    )
    bank = open_bank(str(tmp_path / "bank"))
    assert set(bank.weights) == {"router_weight", "correction_bias"}
    assert bank.geometry.latent == 0
    assert (bank.name, bank.geometry.name) == ("mine/one", "mine")
    block = bank.read(0, 25)
    assert set(block.recorded) == {"forward"}
    assert not block.extra
    assert set(block.keys["step"]) == {0}
    assert set(block.keys["layer"]) == {9}


def test_from_the_recorded_logits(tensors: dict[str, Array], tmp_path: Path) -> None:
    path = saved(tensors, tmp_path)
    import_files([path], tmp_path / "bank", stage="logits")
    bank = open_bank(str(tmp_path / "bank"))
    block = bank.read(0, 25)
    assert bank.stage == "logits"
    assert block.hidden is None
    assert block.logits is not None
    assert block.logits.tobytes() == tensors["logits"].tobytes()
    assert set(block.recorded) == {"gpu", "forward"}
    del tensors["hidden"]
    path = saved(tensors, tmp_path)
    # The first stage whose inputs the file has, where none is asked for.
    import_files([path], tmp_path / "first")
    assert open_bank(str(tmp_path / "first")).stage == "logits"
    with pytest.raises(BankError, match="tensor hidden=nothing, but should be present"):
        import_files([path], tmp_path / "other", stage="hidden")
    with pytest.raises(InputError, match="stage=middle, but should be one of hidden, partials"):
        import_files([path], tmp_path / "other", stage="middle")
    with pytest.raises(BankError, match="tensor logits_shards=nothing, but should be present"):
        import_files([path], tmp_path / "other", stage="shards")
    with pytest.raises(BankError, match="tensor logits=nothing, but should be present"):
        import_files([path], tmp_path / "other", stage="logits", drop=("logits",))


def test_hidden_is_not_looked_at_from_the_recorded_logits(
    tensors: dict[str, Array], tmp_path: Path
) -> None:
    tensors["hidden"] = np.full((3, 2), np.nan, np.float32)
    import_files([saved(tensors, tmp_path)], tmp_path / "bank", stage="logits")
    assert open_bank(str(tmp_path / "bank")).rows == 25


def test_other_names(tensors: dict[str, Array], tmp_path: Path) -> None:
    renamed = {"mlp.gate.weight": tensors.pop("router_weight"), **tensors}
    path = saved(renamed, tmp_path)
    reading = Reading(names={"router_weight": "mlp.gate.weight"})
    ids = ("topk_ids", "forward_topk_ids", "recorded.gpu.weights", "forward_topk_weights")
    with pytest.raises(BankError, match="top_k=nothing, but should be given where no ids"):
        import_files([path], tmp_path / "bank", reading=reading, drop=ids)
    geometry = Geometry("mine", hidden=8, latent=4, experts=6, top_k=3)
    reading = Reading(reading.names, geometry)
    import_files([path], tmp_path / "bank", reading=reading, drop=ids)
    assert open_bank(str(tmp_path / "bank")).geometry == geometry
    wrong = Reading(reading.names, Geometry("mine", hidden=8, latent=4, experts=7, top_k=2))
    with pytest.raises(BankError, match="experts of tensor router_weight=6, but should be 7, as"):
        import_files([path], tmp_path / "other", reading=wrong)
    with pytest.raises(BankError, match=r"tensor gate=nothing, but should be present"):
        import_files([path], tmp_path / "other", reading=Reading({"router_weight": "gate"}))


def test_values_that_are_widened_without_loss(tensors: dict[str, Array], tmp_path: Path) -> None:
    bias = tensors["correction_bias"].astype(ml_dtypes.bfloat16)
    tensors["correction_bias"] = bias
    ids = tensors["topk_ids"]
    tensors["topk_ids"] = ids.astype(np.int64)
    del tensors["topk_weights"], tensors["doc"]
    import_files([saved(tensors, tmp_path)], tmp_path / "bank")
    bank = open_bank(str(tmp_path / "bank"))
    assert bank.weights["correction_bias"].tobytes() == bias.astype(np.float32).tobytes()
    assert bank.provenance["widened"] == {"correction_bias": "bfloat16"}
    got, weights = bank.read(0, 25).recorded["gpu"]
    assert weights is None
    assert got.tobytes() == ids.tobytes()
    assert bank.independence_unit == "none"
    assert bank.recorded_widths == {"gpu": None, "forward": None}


def test_a_model_without_a_bias(tensors: dict[str, Array], tmp_path: Path) -> None:
    del tensors["correction_bias"]
    path = saved(tensors, tmp_path)
    import_files([path], tmp_path / "bank", recording=Recording(zero_bias=True))
    bias = open_bank(str(tmp_path / "bank")).weights["correction_bias"]
    assert bias.tobytes() == np.zeros(6, np.float32).tobytes()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("correction_bias", None, "tensor correction_bias=nothing, but should be present"),
        ("router_weight", None, "tensor router_weight=nothing, but should be present"),
        ("hidden", np.float32, "tensor hidden dtype=float32, but should be bfloat16"),
        ("topk_ids", np.float32, "tensor topk_ids dtype=float32, but should be int32 or int64"),
        ("topk_weights", np.float64, "tensor topk_weights dtype=float64, but should be float32"),
        ("doc", np.float32, "tensor doc dtype=float32, but should be int32"),
        ("topk_ids", "rows", "tensor topk_ids rows=24, but should be 25"),
        ("doc", "rows", "tensor doc rows=24, but should be 25"),
        ("router_weight", "flat", "tensor router_weight shape=[48], but should be 2 axes"),
        ("router_weight", "nan", "tensor router_weight[1]=a NaN or infinity, but should be finite"),
        ("router_weight", "inf", "tensor router_weight[1]=a NaN or infinity, but should be finite"),
        ("router_weight_master", "nan", "tensor router_weight_master[1]=a NaN or infinity"),
        ("latent_down_weight", "inf", "tensor latent_down_weight[1]=a NaN or infinity"),
        ("hidden", "nan", "tensor hidden[1]=a NaN or infinity, but should be finite"),
        ("topk_ids", 6, "tensor topk_ids[1, 0]=6, but should be 0..5"),
        ("forward_topk_ids", -1, "tensor forward_topk_ids[1, 0]=-1, but should be 0..5"),
        ("hidden", "columns", "tensors.hidden.shape=[7], but should be [8]"),
        ("topk_weights", "columns", "tensors.recorded.gpu.weights.shape=[1], but should be [2]"),
    ],
)
def test_bad_files(
    tensors: dict[str, Array], tmp_path: Path, name: str, change: Any, message: str
) -> None:
    values = tensors.pop(name)
    if change == "rows":
        tensors[name] = values[:-1].copy()
    elif change == "flat":
        tensors[name] = values.reshape(-1)
    elif change == "columns":
        tensors[name] = values[:, :-1].copy()
    elif change in ("nan", "inf") or isinstance(change, int):
        tensors[name] = values.copy()
        tensors[name][1, 0] = float(change)
    elif change is not None:
        tensors[name] = values.astype(change)
    with pytest.raises(BankError) as error:
        import_files([saved(tensors, tmp_path)], tmp_path / "bank")
    assert str(error.value).startswith(message)
    if change != "columns":
        assert str(error.value).endswith("/layer4.safetensors]")
    assert [path.name for path in tmp_path.iterdir()] == ["layer4.safetensors"]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="but should be a safetensors file"):
        import_files([tmp_path / "none.safetensors"], tmp_path / "bank")
    (tmp_path / "bad.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(BankError, match="but should be a safetensors file"):
        import_files([tmp_path / "bad.safetensors"], tmp_path / "bank")


def test_a_misspelt_drop(tensors: dict[str, Array], tmp_path: Path) -> None:
    with pytest.raises(BankError, match="drop=logit, but should be one of correction_bias"):
        import_files([saved(tensors, tmp_path)], tmp_path / "bank", drop=("logit",))
