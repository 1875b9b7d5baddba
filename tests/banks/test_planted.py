import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.planted import sigmoid32, steps, value_at

F32 = npt.NDArray[np.float32]


def exact_keys(logits: F32, bias: F32) -> F32:
    """Keys by scalar arithmetic of the standard library, rounding to FP32 step by step."""
    scores = [[1 / (1 + math.exp(-float(x))) for x in row] for row in logits]
    keys: F32 = np.asarray(scores, np.float64).astype(np.float32) + bias
    return keys


def gaps(spec: str, rows: int = 40) -> tuple[list[int], list[int], F32]:
    bank = open_bank(f"{spec},rows={rows}")
    block = bank.read(0, rows)
    assert block.logits is not None
    slot = 16
    for part in spec.partition(":")[2].split(","):
        if part.startswith("slot="):
            slot = int(part[5:])
    keys = np.sort(exact_keys(block.logits, bank.weights["correction_bias"]), axis=1)[:, ::-1]
    pair = keys[:, slot - 1 : slot + 1]
    found = (steps(pair[:, 0].copy()) - steps(pair[:, 1].copy())).tolist()
    return found, block.keys["planted_gap"].tolist(), pair


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 4, 5, 9, 1000])
@pytest.mark.parametrize("slot", [1, 15, 16, 17, 400])
def test_the_gap_is_exact(gap: int, slot: int) -> None:
    found, planted, _ = gaps(f"near_tie:gap={gap},slot={slot},top_k={max(slot, 16)}", 20)
    assert found == planted == [gap] * 20


@pytest.mark.parametrize("bias", ["0.02", "0.5", "1", "7", "12", "-0.3", "-0.7", "-1", "-3"])
def test_with_a_bias_of_both_signs(bias: str) -> None:
    found, planted, pair = gaps(f"near_tie:gap=0+1+2+3,bias={bias}")
    assert found == planted == [0, 1, 2, 3] * 10
    assert (pair < 0).all() == (float(bias) < 0)


@pytest.mark.parametrize(
    ("at", "bias"), [(0.5, 0), (0.25, 0.2), (1.0, 0.5), (-0.5, -0.7), (-1, -1.1)]
)
def test_across_a_binade(at: float, bias: float) -> None:
    found, planted, pair = gaps(f"near_tie:gap=1+2+3,at={at},bias={bias}", 30)
    assert found == planted == [1, 2, 3] * 10
    exponents = np.frexp(pair)[1]
    assert (exponents[:, 0] != exponents[:, 1]).all()
    assert ((pair[:, 0] >= at) & (pair[:, 1] <= at)).all()


def test_in_different_shards() -> None:
    bank = open_bank("near_tie:gap=1,shards=8,rows=64")
    logits = bank.read(0, 64).logits
    assert logits is not None
    order = np.argsort(-sigmoid32(logits), axis=1, kind="stable")
    assert (order[:, 15] // 112 != order[:, 16] // 112).all()
    # Without the option some pairs share a shard: the test could fail.
    plain = open_bank("near_tie:gap=1,rows=64").read(0, 64).logits
    assert plain is not None
    order = np.argsort(-sigmoid32(plain), axis=1, kind="stable")
    assert (order[:, 15] // 112 == order[:, 16] // 112).any()


@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize("std", [1, 0.0005])
def test_no_other_key_is_near(gap: int, std: float) -> None:
    # With the small spread a third key would often be near: such rows are drawn again.
    bank = open_bank(f"near_tie:gap={gap},rows=300,std={std}")
    logits = bank.read(0, 300).logits
    assert logits is not None
    keys = np.sort(steps(sigmoid32(logits)), axis=1)[:, ::-1]
    assert (keys[:, 14] - keys[:, 15] >= 16).all()
    assert (keys[:, 16] - keys[:, 17] >= 16).all()
    assert np.isfinite(logits).all()


def test_the_default_slot_is_the_boundary() -> None:
    bank = open_bank("near_tie:geometry=16x8x12x3,rows=20")
    logits = bank.read(0, 20).logits
    assert logits is not None
    keys = np.sort(steps(sigmoid32(logits)), axis=1)[:, ::-1]
    assert (keys[:, 2] - keys[:, 3] == 1).all()
    explicit = open_bank("near_tie:geometry=16x8x12x3,rows=20,slot=3").read(0, 20).logits
    assert explicit is not None
    assert explicit.tobytes() == logits.tobytes()


def test_either_expert_may_be_the_higher() -> None:
    logits = open_bank("near_tie:gap=1,rows=64").read(0, 64).logits
    assert logits is not None
    order = np.argsort(-sigmoid32(logits), axis=1, kind="stable")
    higher_id_first = order[:, 15] > order[:, 16]
    assert 10 < higher_id_first.sum() < 54


def test_a_gap_that_no_keys_have_is_refused() -> None:
    # Between small scores the reachable FP32 keys lie several ULP apart.
    bank = open_bank("near_tie:gap=1,at=-0.0133,bias=-0.02")
    with pytest.raises(InputError, match="gap=1, but should be one that FP32 keys can have there"):
        bank.read(0, 1)


@settings(max_examples=200)
@given(st.floats(width=32, allow_nan=False))
@example(float(np.finfo(np.float32).max))
def test_steps_count_values(value: float) -> None:
    at = np.asarray([value], np.float32)
    assert value_at(steps(at))[0] == at[0]
    # Above the largest number is infinity, which numpy calls an overflow.
    with np.errstate(over="ignore"):
        up = np.nextafter(at, np.float32(np.inf), dtype=np.float32)
    if up[0] != at[0]:
        assert steps(up)[0] - steps(at)[0] == 1


@settings(max_examples=200)
@given(st.floats(width=32, min_value=-200, max_value=200))
def test_the_sigmoid_is_correctly_rounded(value: float) -> None:
    import mpmath

    with mpmath.workdps(60):
        exact = 1 / (1 + mpmath.exp(-mpmath.mpf(value)))
        got = float(sigmoid32(np.asarray([value], np.float32))[0])
        below = float(np.nextafter(np.float32(got), np.float32(-1)))
        above = float(np.nextafter(np.float32(got), np.float32(2)))
        error = abs(exact - got)
        assert error <= abs(exact - below)
        assert error <= abs(exact - above)
