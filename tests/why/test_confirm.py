"""Sums that masked terms alone would take for a tree, or for an exact sum, are refused."""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neartie.audit.why.confirm import random_terms
from neartie.audit.why.probe import FORMATS
from neartie.audit.why.recover import recover_order
from neartie.audit.why.tree import evaluate, node
from neartie.banks.errors import InputError

Out = Callable[[Any], float]


def as_bf16(total: Any) -> float:
    return float(ml_dtypes.bfloat16(total))


def as_fp16(total: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float16(total))


def chained(terms: Any, out: Out = as_bf16) -> float:
    """One after another in FP32."""
    total = np.float32(0)
    for term in terms:
        total = np.float32(total + np.float32(term))
    return out(total)


def kahan(terms: Any, kind: Any = np.float32, out: Out = float) -> float:
    total = lost = kind(0)
    for term in terms:
        add = kind(kind(term) - lost)
        after = kind(total + add)
        lost = kind(kind(after - total) - add)
        total = after
    return out(total)


def neumaier(terms: Any, kind: Any = np.float32, out: Out = float) -> float:
    """Two-sum: the errors have an accumulator of their own."""
    total = lost = kind(0)
    for term in map(kind, terms):
        after = kind(total + term)
        large, small = (total, term) if abs(total) >= abs(term) else (term, total)
        lost = kind(lost + kind(kind(large - after) + small))
        total = after
    return out(kind(total + lost))


@pytest.mark.parametrize("count", [3, 5, 8, 16, 32, 64])
def test_kahan_in_fp32_stored_as_bf16_is_no_tree(count: int) -> None:
    found = recover_order(lambda terms: kahan(terms, out=as_bf16), count, "bf16")
    assert (found.state, found.tree) == ("none", None)
    assert "25 bits are those of no format" in found.reason


@pytest.mark.parametrize("count", [3, 5, 6, 7, 8, 9, 10, 11, 16])
def test_kahan_in_fp32_of_fp16_terms_is_no_tree(count: int) -> None:
    found = recover_order(kahan, count, "fp16")
    assert found.state in ("none", "unconfirmed")
    assert "25 bits are those of no format" in found.reason


@pytest.mark.parametrize("count", [3, 8, 11, 22])
@pytest.mark.parametrize(
    "function",
    [
        lambda terms: chained(sorted(terms, key=abs)),
        lambda terms: chained(terms[::-1] if terms[0] < 0 else terms),
    ],
    ids=["sorted", "turned"],
)
def test_an_order_of_fp16_data_stored_as_bf16_is_no_tree(function: Any, count: int) -> None:
    """FP16 spans 30 binades: only its largest terms swallow enough in FP32 for BF16 to show it."""
    found = recover_order(function, count, "fp16")
    assert found.state in ("none", "unconfirmed")
    assert found.reproduced < found.trials


def test_bits_of_no_format_alone_are_not_confirmed() -> None:
    """All random sums agree, and still no format keeps 25 bits."""
    found = recover_order(kahan, 3, "fp16", trials=4)
    assert (found.state, found.reproduced) == ("unconfirmed", 4)
    assert found.text().endswith(
        "; not confirmed: 25 bits are those of no format here, so more than a rounded addition is "
        "done"
    )


def test_kahan_in_fp64_is_no_tree() -> None:
    found = recover_order(lambda terms: kahan(terms, np.float64), 16, "fp64")
    assert found.state == "none"
    assert "54 bits" in found.reason


@pytest.mark.parametrize("count", [5, 8, 64])
@pytest.mark.parametrize(
    ("kind", "out", "dtype"),
    [
        (np.float32, float, "bf16"),
        (np.float32, as_bf16, "bf16"),
        (np.float32, as_bf16, "fp32"),
        (np.float64, float, "fp32"),
        (np.float64, float, "fp64"),
    ],
)
def test_a_compensated_sum_is_not_exact(kind: Any, out: Out, dtype: str, count: int) -> None:
    found = recover_order(lambda terms: neumaier(terms, kind, out), count, dtype)
    assert found.state == "none"
    assert "no unit is ever swallowed, as in an exact sum, but random terms" in found.reason


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("count", [3, 8, 24])
@pytest.mark.parametrize(
    "function",
    [
        lambda terms: chained(sorted(terms, key=abs)),
        lambda terms: chained(sorted(terms, key=lambda term: term < 0)),
        lambda terms: chained(terms[::-1] if terms[0] < 0 else terms),
        lambda terms: chained([term for term in terms if abs(term) >= 1e-3]),
        lambda terms: chained([term for term in terms if abs(term) >= 1e-9]),
    ],
    ids=["sorted", "positives first", "turned", "small dropped", "smaller dropped"],
)
def test_an_order_of_the_data_stored_as_bf16_is_no_tree(
    function: Any, count: int, dtype: str
) -> None:
    found = recover_order(function, count, dtype)
    assert found.state in ("none", "unconfirmed")
    assert found.reproduced < found.trials


@pytest.mark.parametrize(
    ("out", "dtype", "bits"),
    [
        (as_bf16, "bf16", [24, 8]),
        (as_bf16, "fp32", [24, 8]),
        (as_bf16, "fp16", [24, 8]),
        (as_fp16, "bf16", [24, 11]),
        (as_fp16, "fp32", [24, 11]),
        (float, "bf16", [24, 24]),
    ],
)
@pytest.mark.parametrize("count", [3, 16])
def test_a_chain_that_is_stored_narrower_stays_a_tree(
    out: Out, dtype: str, bits: list[int], count: int
) -> None:
    found = recover_order(lambda terms: chained(terms, out), count, dtype)
    assert (found.state, found.reason, found.reproduced) == ("tree", "", found.trials)
    assert found.names[0] == "one after another"
    assert found.figures()["bits"] == [*bits[:1] * (count - 2), bits[1]]


@pytest.mark.parametrize("dtype", sorted(FORMATS))
@pytest.mark.parametrize("out", [float, as_bf16, as_fp16])
def test_an_exact_sum_that_is_stored_narrower_stays_exact(out: Out, dtype: str) -> None:
    found = recover_order(lambda terms: out(math.fsum(terms.tolist())), 8, dtype)
    assert (found.state, found.reproduced) == ("exact", found.trials)


def test_an_fp64_chain_may_be_stored_as_bf16_by_fp32() -> None:
    """So ml_dtypes does; with 53 terms a random sum shows that it is rounded twice."""
    found = recover_order(lambda terms: as_bf16(sum(terms.tolist())), 53, "bf16")
    assert (found.state, found.figures()["bits"][-2:]) == ("tree", [53, 8])


def test_a_store_by_way_of_fp32_ties_where_the_sum_does_not() -> None:
    """1 + 2^-8 is the middle between two BF16 numbers, and FP32 loses the 2^-30 above it."""
    tree, terms = node(node(0, 1, bits=53), 2, bits=8), [1.0, 2.0**-8, 2.0**-30]
    assert evaluate(tree, terms) == 1 + 2.0**-7
    assert evaluate(tree, terms, via_fp32=True) == 1


def test_two_fp16_terms_in_fp64_stay_a_tree() -> None:
    found = recover_order(lambda terms: sum(terms.tolist()), 2, "fp16")
    assert found.text() == "one after another, all bits kept by each sum"


def test_an_fp32_chain_of_many_terms_may_be_stored_as_bf16() -> None:
    """BF16 counts 256 units exactly: more are asked for in two sums."""
    found = recover_order(chained, 270, "fp32")
    assert (found.state, found.names[0]) == ("tree", "one after another")


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_half_of_the_random_terms_cancel(dtype: str) -> None:
    terms = random_terms(FORMATS[dtype], 9, 64).astype(np.float64)
    assert np.isfinite(terms).all()
    largest = np.abs(terms).max(axis=1)
    paired = [{*row} >= {size, -size} for row, size in zip(terms, largest, strict=True)]
    assert sum(paired) >= 32


def test_a_sum_may_work_in_place() -> None:
    def total(terms: Any) -> float:
        count = len(terms)
        while count > 1:
            count //= 2
            terms[:count] += terms[count : 2 * count]
        return float(terms[0])

    found = recover_order(total, 16)
    assert (found.state, found.names[0]) == ("tree", "folded in halves")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 0}, "trials=0, but should be 1 or more"),
        ({"trials": -1}, "trials=-1, but should be 1 or more"),
        ({"trials": 2.5}, "trials=2.5, but should be a whole number"),
        ({"terms": 2.5}, "terms=2.5, but should be a whole number, 2..512"),
        ({"terms": 512.0}, "terms=512.0, but should be a whole number"),
        ({"terms": "7"}, "terms='7', but should be a whole number"),
        ({"terms": None}, "terms=None, but should be a whole number"),
        ({"terms": True}, "terms=True, but should be a whole number"),
        ({"function": 3}, "function=int, but should be a function of terms"),
        ({"function": lambda t: t}, r"result=ndarray of shape \(4,\), but should be one real"),
        ({"function": lambda t: [1.0]}, "result=list, but should be one real number"),
        ({"function": lambda t: None}, "result=NoneType, but should be one real number"),
        ({"function": lambda t: "1"}, "result=str, but should be one real number"),
        ({"function": lambda t: 1j}, "result=complex, but should be one real number"),
        ({"function": lambda t: np.complex64(1)}, "result=complex64, but should be one real"),
        ({"function": lambda t: 10**400}, "result=a number beyond FP64, int, but should be one"),
    ],
)
def test_bad_input_is_told_in_one_line(given: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"function": np.sum, "terms": 4, **given}
    with pytest.raises(InputError, match=message):
        recover_order(**arguments)


@pytest.mark.parametrize(
    ("function", "dtype", "told"),
    [
        (lambda terms: float(np.mean(terms)), "fp32", "the sum is scaled by 0.125"),
        (lambda terms: -float(np.sum(terms)), "fp32", "the sum is scaled by -1"),
        (lambda terms: math.nan, "fp32", "term 0 alone at one unit gives nan units"),
        (lambda terms: float(terms[1:].sum()), "fp32", "term 0 alone at one unit gives 0 units"),
        (lambda terms: as_fp16(terms[0]) + as_fp16(terms[1:].sum()), "bf16", "overflows inside"),
    ],
)
def test_why_no_tree_is_recovered_is_told(function: Any, dtype: str, told: str) -> None:
    found = recover_order(function, 8, dtype)
    assert found.state == "none"
    assert found.text().startswith("no tree recovered: ")
    assert told in found.reason
