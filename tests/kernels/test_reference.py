"""The reference against a plain row oracle in decimal arithmetic, and its own check."""

import subprocess
import sys
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from neartie.banks.errors import InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels import reference
from neartie.kernels.reference import ReferenceError, ReferenceSelection, reference_select
from neartie.kernels.reference_scores import _MARGIN, exp_nonpositive, ordered, scores

GEOMETRY = Geometry("tiny", 8, 0, 12, 3)
GROUPED = Geometry("tiny-groups", 8, 0, 12, 3, 4, 2)
FUNCTIONS = ("sigmoid", "softmax", "sqrtsoftplus", "identity")

logit = st.one_of(
    st.floats(-12, 12, width=32),
    st.sampled_from([0.0, -0.0, 1.0, -90.0, -104.0, 40.0, inf, -inf, nan]),
)
biases = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([0.0, -0.0, 8.0, inf, -inf, nan]))


def _true_scores(function: str, row: list[float]) -> list[Decimal | float]:
    """Each score to 100 digits, or the IEEE answer where the input is not finite."""
    with localcontext(Context(prec=130, Emin=-(10**6), Emax=10**6)):
        if function == "softmax":
            if any(x != x or x == inf for x in row) or max(row) == -inf:
                return [nan] * len(row)
            top = Decimal(max(row))
            parts = [Decimal(0) if x == -inf else (Decimal(x) - top).exp() for x in row]
            return [part / sum(parts) for part in parts]
        found: list[Decimal | float] = []
        for x in row:
            if x != x or function == "identity":
                found.append(x if x != x or abs(x) == inf else Decimal(x))
            elif x in (inf, -inf):
                found.append(Decimal(0) if x < 0 else (Decimal(1) if function == "sigmoid" else x))
            elif function == "sigmoid":
                found.append(1 / (1 + (-Decimal(x)).exp()))
            else:
                found.append((1 + Decimal(x).exp()).ln().sqrt())
        return found


def _round32(value: Decimal | float) -> np.float32:
    """The nearest float32, ties to even, from the exact value."""
    if isinstance(value, float):
        return np.float32(value)
    near = np.float32(float(value))
    exact = Fraction(value)
    around = [near, np.nextafter(near, np.float32(-inf)), np.nextafter(near, np.float32(inf))]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.int32)) & 1))


def _before(keys: list[float], i: int) -> tuple[bool, float, int]:
    key = keys[i]
    return (key != key, 0.0 if key != key else -key, i)


def _oracle(
    row: list[float], bias: list[float], geometry: Geometry, function: str
) -> tuple[list[int], list[np.float32], list[float]]:
    """Ids, rounded scores and keys of one row, one expert at a time."""
    rounded = [_round32(value) for value in _true_scores(function, row)]
    with np.errstate(all="ignore"):
        keys = [float(s + np.float32(b)) for s, b in zip(rounded, bias, strict=True)]
        allowed = list(range(geometry.experts))
        if geometry.groups > 1:
            size = geometry.experts // geometry.groups
            sums = []
            for start in range(0, geometry.experts, size):
                best = sorted(range(start, start + size), key=lambda i: _before(keys, i))[:2]
                sums.append(
                    float(np.sum(np.array([keys[i] for i in best], np.float32), dtype=np.float32))
                )
            top = sorted(range(geometry.groups), key=lambda g: _before(sums, g))
            allowed = [i for i in allowed if i // size in top[: geometry.top_groups]]
    return sorted(allowed, key=lambda i: _before(keys, i))[: geometry.top_k], rounded, keys


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


@given(
    st.lists(logit, min_size=12, max_size=12),
    st.lists(biases, min_size=12, max_size=12),
    st.sampled_from([GEOMETRY, GROUPED]),
    st.sampled_from(FUNCTIONS),
)
def test_equals_row_oracle(
    row: list[float], bias: list[float], geometry: Geometry, function: Any
) -> None:
    got = reference_select(
        np.array([row, row], np.float32),
        np.array(bias, np.float32),
        geometry,
        ScoringRule(function),
    )
    ids, rounded, keys = _oracle(row, bias, geometry, function)
    assert got.ids[1].tolist() == ids
    assert _same(got.scores32[1], rounded)
    assert _same(got.keys[0], np.array(keys, np.float32))


@pytest.mark.parametrize("function", ["sigmoid", "sqrtsoftplus"])
def test_scores_near_a_rounding_boundary_are_decided_exactly(function: Any) -> None:
    """FP64 logits whose true score lies within 1e-16 of the middle of two FP32 neighbours."""
    random = np.random.default_rng(3)
    low = random.uniform(0.01, 0.99, 24).astype(np.float32)
    middle = [(mpf(float(a)) + mpf(float(np.nextafter(a, np.float32(2))))) / 2 for a in low]
    with mp.workprec(200):
        if function == "sigmoid":
            x = [float(mp.log(m / (1 - m))) for m in middle]
        else:
            x = [float(mp.log(mp.exp(m * m) - 1)) for m in middle]
    logits = np.array([x, [np.nextafter(v, 9) for v in x]])
    got = reference_select(logits, None, Geometry("b", 1, 0, 24, 1), ScoringRule(function))
    for row in range(2):
        expected = [_round32(value) for value in _true_scores(function, logits[row].tolist())]
        assert _same(got.scores32[row], expected)
    # The plain cast of the FP64 score would be wrong somewhere: the decision is needed.
    assert not _same(got.scores.astype(np.float32), got.scores32)


@pytest.mark.parametrize("function", FUNCTIONS[:3])
def test_fp64_scores_are_far_inside_their_margin(function: Any) -> None:
    random = np.random.default_rng(5)
    x = np.concatenate([random.uniform(-100, 100, (6, 50)), random.normal(0, 2, (6, 50))])
    got = scores(function, x)
    worst = 0.0
    for row, values in zip(x.tolist(), got.tolist(), strict=True):
        for true, value in zip(_true_scores(function, row), values, strict=True):
            worst = max(worst, abs(float(Decimal(value) / Decimal(true) - 1)))
    assert 0 < worst < _MARGIN[function] / 2


def test_exp_within_two_ulp() -> None:
    random = np.random.default_rng(1)
    x = -np.concatenate([random.uniform(0, 0.4, 1500), random.uniform(0, 745, 1500), [0.0]])
    worst = 0.0
    with mp.workprec(200):
        for value, argument in zip(exp_nonpositive(x).tolist(), x.tolist(), strict=True):
            unit = mpf(float(np.spacing(max(value, 5e-324))))
            worst = max(worst, float(abs(mpf(value) - mp.exp(mpf(argument))) / unit))
    assert worst < 2.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ordered(dtype: Any) -> None:
    line = np.array([nan, -inf, -2.0, -1.0, 0.0, 1.0, 2.0, inf], dtype)
    assert (np.diff(ordered(line)) > 0).all()
    assert ordered(np.array([-0.0], dtype))[0] == 0
    assert ordered(np.nextafter(dtype(0), dtype(-1)).reshape(1))[0] == -1


def _select(logits: list[float], **changes: Any) -> ReferenceSelection:
    geometry = Geometry("row", 1, 0, len(logits), changes.pop("top_k", 2))
    bias = changes.pop("bias", None)
    array = None if bias is None else np.array(bias, np.float32)
    return reference_select(np.array([logits]), array, geometry, ScoringRule(**changes))


def test_weights_follow_the_scoring_rule() -> None:
    got = _select([0.0, np.log(3.0), -50.0])
    assert got.ids.tolist() == [[1, 0]]
    assert got.weights[0].tolist() == pytest.approx([0.6, 0.4], rel=1e-14)
    plain = _select([0.0, np.log(3.0), -50.0], renormalize=False, scale=2.0)
    assert plain.weights[0].tolist() == pytest.approx([1.5, 1.0], rel=1e-14)
    # The bias decides who is chosen and is never part of a weight.
    biased = _select([0.0, np.log(3.0), 0.0], bias=[0.0, -9.0, 0.5], scale=2.5)
    assert biased.ids.tolist() == [[2, 0]]
    assert biased.weights.tolist() == [[1.25, 1.25]]


def test_boundary_is_counted_in_fp32_steps() -> None:
    one = np.float32(1.0)
    near = float(np.nextafter(one, np.float32(0)))
    got = _select([2.0, 1.0, near], function="identity")
    assert got.boundary_ulp.tolist() == [1]
    assert _select([2.0, 0.0, -0.0], function="identity").boundary_ulp.tolist() == [0]
    across = _select([2.0, 1e-45, -1e-45], function="identity")
    assert across.boundary_ulp.tolist() == [2]


@pytest.mark.parametrize(
    "row", [[1.0, nan, nan], [inf, inf, 1.0], [1.0, -inf, -inf], [1.0, 0.5, -inf], [1.0, 0.5, nan]]
)
def test_boundary_is_undefined_beside_nonfinite_keys(row: list[float]) -> None:
    assert _select(row, function="identity").boundary_ulp.tolist() == [-1]


def test_boundary_is_undefined_without_a_next_key() -> None:
    assert _select([1.0, 0.5], function="identity").boundary_ulp.tolist() == [-1]


def test_fp64_order_differs_where_fp32_keys_are_equal() -> None:
    got = _select([0.0, 0.3, 0.3 + 1e-13], top_k=1)
    assert got.ids.tolist() == [[1]]
    assert got.ids64.tolist() == [[2]]
    assert got.boundary_ulp.tolist() == [0]


def test_a_row_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(11)
    logits = random.normal(size=(40, 12)).astype(np.float32)
    whole = reference_select(logits, None, GROUPED, ScoringRule())
    monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", 36)
    chunked = reference_select(logits, None, GROUPED, ScoringRule())
    for name in ReferenceSelection.__dataclass_fields__:
        assert _same(getattr(whole, name), getattr(chunked, name)), name


def _exchange_last(ids: Any) -> None:
    ids[:, [-1, -2]] = ids[:, [-2, -1]]


def _exchange_first(ids: Any) -> None:
    ids[:, [0, 1]] = ids[:, [1, 0]]


def _repeat(ids: Any) -> None:
    ids[:, -1] = ids[:, 0]


def _skip_one(ids: Any) -> None:
    ids[:, -1] = [next(i for i in range(11, -1, -1) if i not in row) for row in ids]


@pytest.mark.parametrize("fault", [_exchange_first, _exchange_last, _repeat, _skip_one])
@pytest.mark.parametrize("geometry", [GEOMETRY, GROUPED])
@pytest.mark.parametrize("special", [None, 0.25, nan], ids=["plain", "ties", "nan"])
def test_a_wrong_answer_is_refused(
    fault: Any, geometry: Geometry, special: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = np.linspace(1.0, -1.0, 12)[None].repeat(3, axis=0)
    if special is not None:
        logits[1, 1:] = special
    real = reference._select

    def faulty(*arguments: Any) -> Any:
        ids, steps = real(*arguments)
        fault(ids)
        return ids, steps

    monkeypatch.setattr(reference, "_select", faulty)
    with pytest.raises(ReferenceError, match="largest keys"):
        reference_select(logits, None, geometry, ScoringRule())


@pytest.mark.parametrize(
    ("logits", "bias", "message"),
    [
        (np.zeros((2, 11)), None, r"logits.shape=\(2, 11\), but should be \(rows, 12\)"),
        (np.zeros((2, 12), np.float16), None, "logits.dtype=float16"),
        (np.zeros((2, 12)), np.zeros(12), r"bias=float64\[12\], but should be float32\[12\]"),
    ],
)
def test_bad_input(logits: Any, bias: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reference_select(logits, bias, GEOMETRY, ScoringRule())


def test_no_rows() -> None:
    assert reference_select(np.zeros((0, 12)), None, GEOMETRY, ScoringRule()).ids.shape == (0, 3)


def test_shares_no_code_with_the_paths() -> None:
    """Importing the reference alone brings no other kernels module than its own and the types."""
    code = (
        "import sys, neartie.kernels.reference;"
        "print(sorted(m for m in sys.modules if m.startswith('neartie.kernels.')))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True)
    names = [f"neartie.kernels.{n}" for n in ("contract", "reference")]
    names += [f"neartie.kernels.reference_{n}" for n in ("product", "scores")]
    assert done.stdout.decode().strip() == str(names)
