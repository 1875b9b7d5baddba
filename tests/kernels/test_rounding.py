"""BF16 rounding in vectors equals ml_dtypes."""

import numpy as np

from neartie.kernels.contract import BFLOAT16, F32
from neartie.kernels.rounding import narrow, rounded, widen


def _patterns() -> F32:
    """Every upper half with lower halves around the tie and at both ends."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (upper[:, None] | lower).view(np.float32)


def test_narrow_equals_ml_dtypes_on_every_upper_half() -> None:
    values = _patterns()
    with np.errstate(all="ignore"):
        expected = values.astype(BFLOAT16)
    assert np.array_equal(narrow(values).view(np.uint16), expected.view(np.uint16))
    assert np.array_equal(rounded(values).view(np.uint32), widen(expected).view(np.uint32))


def test_widen_keeps_every_pattern() -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)
    assert np.array_equal(widen(values).view(np.uint32) >> 16, np.arange(1 << 16))


def test_shape_and_strides_do_not_matter() -> None:
    values: F32 = (np.arange(24) / 3).astype(np.float32).reshape(4, 6)[::2, 1::2]
    assert np.array_equal(narrow(values), values.astype(BFLOAT16))
    assert narrow(values).shape == (2, 3)
