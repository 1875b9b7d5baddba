import numpy as np
import pytest

from neartie.banks.exact_product import exact_product
from neartie.banks.open import expand_banks, open_bank
from neartie.banks.planted import keys32
from neartie.banks.resample import ResampledBank


def opened(spec: str) -> ResampledBank:
    bank = open_bank(spec)
    assert isinstance(bank, ResampledBank)
    return bank


def test_logits_are_those_of_the_hidden_rows() -> None:
    hidden = opened("resample:bank=k3-mini/layer3,rows=300,stage=hidden").read(0, 300).hidden
    bank = opened("resample:bank=k3-mini/layer3,rows=300")
    logits = bank.read(0, 300).logits
    assert hidden is not None
    assert logits is not None
    expected = exact_product(hidden, bank.weights["router_weight"]).astype(np.float32)
    assert logits.tobytes() == expected.tobytes()
    assert (bank.read(0, 3).keys["layer"] == 3).all()
    assert bank.weights.keys() == open_bank("k3-mini/layer3").weights.keys()


def test_rows_are_mixtures_of_two_recorded_rows() -> None:
    base = open_bank("k3-mini/layer1").read(0, 1024).hidden
    mixed = opened("resample:bank=k3-mini/layer1,rows=20,stage=hidden").read(0, 20).hidden
    assert base is not None
    assert mixed is not None
    source, rows = base.astype(np.float64), mixed.astype(np.float64)
    for row in rows:
        # The pair of recorded rows that explains it best leaves only the BF16 rounding.
        near = int(np.argmax(source @ row / np.linalg.norm(source, axis=1)))
        rest = row - source[near] * (row @ source[near]) / (source[near] @ source[near])
        far = int(np.argmax(np.abs(source @ rest) / np.linalg.norm(source, axis=1)))
        basis = source[[near, far]].T
        factors, *_ = np.linalg.lstsq(basis, row, rcond=None)
        error = np.linalg.norm(basis @ factors - row) / np.linalg.norm(row)
        assert error < 2**-8
        assert np.hypot(*factors) == pytest.approx(1, abs=0.02)
        assert near != far


def test_margin_density_is_that_of_its_definition() -> None:
    bank = opened("resample:bank=k3-mini/layer0,rows=2000")
    density = bank.margin_density()
    assert density is not None
    base = open_bank("k3-mini/layer0")
    hidden = base.read(0, 1024).hidden
    assert hidden is not None
    logits = exact_product(hidden, base.weights["router_weight"]).astype(np.float32)
    keys = np.sort(keys32(logits, base.weights["correction_bias"]), axis=1)
    margins = keys[:, -16] - keys[:, -17]
    assert density.width == pytest.approx(np.median(margins) / 4, rel=1e-3)
    expected = (margins < density.width).sum() / 1024 / density.width
    assert density.recorded == pytest.approx(expected, rel=0.02)
    assert (density.recorded_rows, density.resampled_rows) == (1024, 2000)
    assert 0.3 < density.resampled / density.recorded < 6
    assert bank.provenance["margin_density"]["width"] == density.width
    assert "margin_density" in dict(bank.description())
    assert f"{density.recorded:.1f} over 1024 recorded rows" in str(density)


def test_a_group_is_split_evenly() -> None:
    banks = expand_banks(["resample:bank=k3-mini,rows=1003,seed=5"])
    assert [bank.rows for bank in banks] == [168, 167, 167, 167, 167, 167]
    assert [bank.name for bank in banks] == [
        f"resample:bank=k3-mini/layer{layer},rows={bank.rows},seed=5"
        for layer, bank in enumerate(banks)
    ]
    assert len({bank.digest for bank in banks}) == 6
    assert [bank.header.provenance["layer"] for bank in banks] == list(range(6))
    assert len(expand_banks(["resample"])) == 6


def test_another_base_is_another_digest() -> None:
    base = open_bank("k3-mini/layer0")
    spec = opened("resample:bank=k3-mini/layer0")
    from neartie.banks.spec import Spec

    values = {"rows": 5, "seed": 0, "stage": "logits"}
    one = ResampledBank(Spec("same", values), base)
    other = ResampledBank(Spec("same", values), open_bank("k3-mini/layer1"))
    assert len({one.digest, other.digest, spec.digest}) == 3
