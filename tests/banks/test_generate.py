import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.banks.bank import RowBlock
from neartie.banks.degenerate import SPECIAL_KINDS
from neartie.banks.open import open_bank
from neartie.banks.planted import keys32, sigmoid32

SMALL = "geometry=16x8x12x3"
SPECS = [
    f"gaussian:{SMALL}",
    f"gaussian:{SMALL},stage=logits",
    f"near_tie:{SMALL},slot=3,gap=0+1+2",
    f"saturated:{SMALL}",
    f"large_bias:{SMALL}",
    f"bf16_logits:{SMALL}",
    f"special:{SMALL}",
    f"signed_zeros:{SMALL}",
    f"all_equal:{SMALL}",
    "resample:bank=k3-mini/tie-witness",
    "resample:bank=k3-mini/tie-witness,stage=hidden",
]


# sha256 of rows and weights, begun.
FIRST_RELEASE = {
    "gaussian:geometry=16x8x12x3": "4251fadda894",
    "gaussian:geometry=16x8x12x3,stage=logits": "f2d6a86afe82",
    "near_tie:geometry=16x8x12x3,slot=3,gap=0+1+2": "a7bff6cdf9b4",
    "saturated:geometry=16x8x12x3": "9d6368d744e4",
    "large_bias:geometry=16x8x12x3": "000f2d011830",
    "bf16_logits:geometry=16x8x12x3": "de25e6873a48",
    "special:geometry=16x8x12x3": "17b9ef23686d",
    "signed_zeros:geometry=16x8x12x3": "8e75d93d1cd0",
    "all_equal:geometry=16x8x12x3": "1b35e114ce72",
    "resample:bank=k3-mini/tie-witness": "61d1ba529c5f",
    "resample:bank=k3-mini/tie-witness,stage=hidden": "0a949e99458c",
}


def content(block: RowBlock, start: int, stop: int) -> list[bytes]:
    arrays: list[np.ndarray[Any, Any]] = [v for _, v in sorted(block.keys.items())]
    arrays += [v for v in (block.hidden, block.logits) if v is not None]
    return [values[start:stop].tobytes() for values in arrays]


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=6)
@given(data=st.data())
def test_rows_do_not_depend_on_the_chunking(spec: str, data: st.DataObject) -> None:
    joiner = "," if ":" in spec else ":"
    bank = open_bank(f"{spec}{joiner}rows=700")
    whole = open_bank(f"{spec}{joiner}rows=700").read(0, 700)
    start = data.draw(st.integers(0, 699))
    stop = data.draw(st.integers(start + 1, 700))
    assert content(bank.read(start, stop), 0, stop - start) == content(whole, start, stop)
    # More rows are the same rows and then others.
    longer = open_bank(f"{spec}{joiner}rows=900").read(0, 700)
    assert content(longer, 0, 700) == content(whole, 0, 700)


@pytest.mark.parametrize("spec", SPECS)
def test_seeds_give_other_rows_and_no_row_twice(spec: str) -> None:
    first, other = (open_bank(f"{spec},seed={seed},rows=600").read(0, 600) for seed in (1, 2))
    a = first.hidden if first.hidden is not None else first.logits
    b = other.hidden if other.hidden is not None else other.logits
    assert a is not None
    assert b is not None
    assert a.tobytes() != b.tobytes()
    if not spec.startswith(("special", "all_equal", "signed_zeros")):
        assert len({row.tobytes() for row in a}) == 600
    assert list(first.keys["row"]) == list(first.keys["unit"]) == list(range(600))


def test_bits_are_those_of_the_first_release() -> None:
    """A change of these digests changes the inputs of every audit: say so in the changelog."""
    digests = {}
    for spec in SPECS:
        bank = open_bank(f"{spec},rows=300")
        total = hashlib.sha256()
        for values in content(bank.read(0, 300), 0, 300):
            total.update(values)
        for _, tensor in sorted(bank.weights.items()):
            total.update(tensor.tobytes())
        digests[spec] = total.hexdigest()[:12]
    assert digests == FIRST_RELEASE


def test_gaussian_has_the_stated_moments() -> None:
    bank = open_bank("gaussian:rows=2000,std=2,bias=0.05")
    assert bank.geometry.hidden == 512
    hidden = bank.read(0, 2000).hidden
    assert hidden is not None
    assert hidden.dtype == ml_dtypes.bfloat16
    values = hidden.astype(np.float64)
    router = bank.weights["router_weight"].astype(np.float64)
    assert values.std() == pytest.approx(1, rel=0.01)
    assert (values @ router.T).std() == pytest.approx(2, rel=0.02)
    latent = bank.weights["latent_down_weight"].astype(np.float64)
    assert (values @ latent.T).std() == pytest.approx(1, rel=0.02)
    assert bank.weights["correction_bias"].std() == pytest.approx(0.05, rel=0.1)
    assert bank.weights["correction_bias"].dtype == np.float32


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("geometry=k3", (7168, 3584, 896, 16, 1)),
        ("geometry=k2", (7168, 0, 384, 8, 1)),
        ("geometry=deepseek-v3", (7168, 0, 256, 8, 8)),
        ("geometry=64x32x300x5", (64, 32, 300, 5, 1)),
        ("geometry=deepseek-v3,experts=300", (7168, 0, 300, 8, 1)),
        ("experts=300,hidden=64,latent=0,top_k=7", (64, 0, 300, 7, 1)),
    ],
)
def test_geometries(options: str, shape: tuple[int, ...]) -> None:
    g = open_bank(f"gaussian:{options}").geometry
    assert (g.hidden, g.latent, g.experts, g.top_k, g.groups) == shape


def test_preset_brings_its_scoring_rule() -> None:
    assert open_bank("gaussian:geometry=deepseek-v3").scoring.scale == 2.5
    assert open_bank("gaussian:tie_contract=lower_id").tie_contract == "lower_id"


def logits(spec: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = open_bank(spec).read(0, 64).logits
    assert values is not None
    assert values.dtype == np.float32
    return values


def test_saturated() -> None:
    scores = sigmoid32(logits("saturated:rows=64"))
    assert (scores[::2] == 1).all()
    low = scores[1::2]
    assert ((low < np.finfo(np.float32).tiny) & (low > 0)).all()
    assert (sigmoid32(logits("saturated:rows=64,side=high")) == 1).all()


@pytest.mark.parametrize("bias", [7, 12])
def test_large_bias_swallows_score_bits(bias: int) -> None:
    values = logits(f"large_bias:rows=64,bias={bias}")
    given = open_bank(f"large_bias:bias={bias}").weights["correction_bias"]
    keys = keys32(values, given)
    assert given.mean() == pytest.approx(bias, rel=0.01)
    unequal_scores = np.diff(np.sort(sigmoid32(values), axis=1), axis=1) > 0
    assert (np.diff(np.sort(keys, axis=1), axis=1) == 0).sum() > 10
    assert unequal_scores.mean() > 0.99


def test_bf16_logits_are_bf16_and_tie() -> None:
    values = logits("bf16_logits:rows=64")
    assert (values.view(np.uint32) & 0xFFFF == 0).all()
    assert all(len(np.unique(row)) < len(row) for row in values)


def test_special_kinds() -> None:
    block = open_bank("special:rows=64").read(0, 64)
    values, kinds = block.logits, block.keys["kind"]
    assert values is not None
    for row, number in zip(values, kinds, strict=True):
        nans, infs = np.isnan(row).sum(), np.isinf(row).sum()
        kind = SPECIAL_KINDS[number]
        assert (nans > 0) == kind.startswith("nan")
        assert (infs > 0) == kind.endswith("inf")
        if kind == "nan_one":
            assert nans == 1
        if kind == "nan_all":
            assert nans == 896
        if kind == "nan_most":
            assert 896 - nans < 16
        if kind == "plus_inf":
            assert infs == (row == np.inf).sum() == 8
        if kind == "both_inf":
            assert (row == np.inf).sum() == (row == -np.inf).sum() == 8
        if kind == "signed_zeros":
            assert (row == 0).all()
            assert np.signbit(row).sum() == 448
    assert set(kinds) == set(range(8))
    bias = open_bank("special:inf_bias=3").weights["correction_bias"]
    assert (bias[:3] == np.inf).all()
    assert (bias[3:6] == -np.inf).all()
    assert np.isfinite(bias[6:]).all()


def test_signed_zeros_and_all_equal() -> None:
    values = logits("signed_zeros:rows=64")
    assert (values == 0).all()
    assert 0.4 < np.signbit(values).mean() < 0.6
    bias = open_bank("signed_zeros").weights["correction_bias"]
    assert 0.4 < np.signbit(bias).mean() < 0.6
    equal = logits("all_equal:rows=64")
    assert (equal == equal[:, :1]).all()
    assert len(np.unique(equal[:, 0])) == 64
