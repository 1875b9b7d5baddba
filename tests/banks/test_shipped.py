"""The banks in the package: what they hold, and that it is what was recorded."""

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from neartie.banks.exact_product import exact_product
from neartie.banks.manage import verify_bank
from neartie.banks.open import SHIPPED, SHIPPED_BANKS, expand_banks, open_bank, shipped_directory
from neartie.banks.planted import keys32, steps

DIGESTS = {
    "k3-mini/layer0": "9dff7e8b48082381f38d1c7ec80f304e5e6b8f349e8b1a2a9932bf0b3e9b41ba",
    "k3-mini/layer1": "1a75d56cdd0ef8c36f6924c3992fc5f136d14af4b8faf230a1c6e53d4a92135e",
    "k3-mini/layer2": "efc8df479bff69ac5bdd20d9030fae5ba305929aed72657663edbc8f520341bf",
    "k3-mini/layer3": "77709a3245588b3d04c04666f32c468b60181b1448191c165dc54b8893283966",
    "k3-mini/layer4": "a9ce73c99ff11761122dc53fe2a211f5343e8b5833066e1c1a3e8aee67ac57aa",
    "k3-mini/layer5": "9487fd550b7168963f28a51f8c580f650d997f9ebf483250dda6ce60d22af288",
    "k3-mini/tie-witness": "c9497fa4140cfe5b8a025f2e09cf1b259ff8959c62e56ec75ef7fe98c236efe5",
}


def test_digests() -> None:
    assert {name: verify_bank(name).digest for name in SHIPPED_BANKS} == DIGESTS


def test_size() -> None:
    root = shipped_directory("k3-mini").parent
    total = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    assert 15_000_000 < total <= 16_000_000


def test_group_is_its_six_layers() -> None:
    banks = expand_banks(["k3-mini", "k3-mini/tie-witness"])
    assert [bank.name for bank in banks] == [*SHIPPED["k3-mini"], "k3-mini/tie-witness"]
    assert [bank.rows for bank in banks] == [1024] * 6 + [20]
    for bank in banks:
        assert bank.recorded_widths == {"gpu": 20}
        witness = bank.name == "k3-mini/tie-witness"
        assert bank.independence_unit == ("none" if witness else "doc")
        g = bank.geometry
        assert (g.name, g.hidden, g.latent, g.experts, g.top_k) == ("k3-mini", 512, 256, 896, 16)
        assert {"model", "layer", "source", "seeds", "device", "date"} <= set(bank.provenance)


@pytest.mark.parametrize("layer", range(6))
def test_recorded_ids_are_the_largest_keys(layer: int) -> None:
    bank = open_bank(f"k3-mini/layer{layer}")
    block = bank.read(0, 1024)
    assert block.hidden is not None
    logits = exact_product(block.hidden, bank.weights["router_weight"]).astype(np.float32)
    keys = keys32(logits, bank.weights["correction_bias"])
    order = np.argsort(-keys, axis=1, kind="stable")[:, :16]
    assert (order == block.recorded["gpu"][0]).all()
    assert len(np.unique(block.keys["unit"])) == 1024


def test_the_witness_holds_its_tie() -> None:
    bank = open_bank("k3-mini/tie-witness")
    block = bank.read(1, 2)
    assert block.hidden is not None
    exact = exact_product(block.hidden, bank.weights["router_weight"])
    bias = bank.weights["correction_bias"]
    keys = keys32(exact.astype(np.float32), bias)
    assert keys[0, 650] == keys[0, 602]
    ids = block.recorded["gpu"][0][0].tolist()
    assert 602 in ids
    assert 650 not in ids
    exact_keys = 1 / (1 + np.exp(-exact[0])) + bias
    assert exact_keys[650] > exact_keys[602]
    assert steps(keys[:, 650])[0] == steps(keys[:, 602])[0]


@pytest.mark.parametrize("layer", range(6))
def test_master_weights_round_to_the_router_weights(
    layer: int, master_router_weight: Callable[[int], npt.NDArray[np.float32]]
) -> None:
    master = master_router_weight(layer)
    used = open_bank(f"k3-mini/layer{layer}").weights["router_weight"]
    assert master.dtype == np.float32
    assert master.astype(ml_dtypes.bfloat16).tobytes() == used.tobytes()
    assert not np.array_equal(master, used.astype(np.float32))


def test_a_directory_of_the_same_name_does_not_shadow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k3-mini" / "layer0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert open_bank("k3-mini/layer0").rows == 1024
