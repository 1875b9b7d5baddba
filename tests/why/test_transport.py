"""Lost, doubled, stale and moved terms are told from rounding."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neartie.audit.why.transport import check_placed_transport, check_transport
from neartie.banks.errors import InputError

TERMS, PLACES = 8, 6


def rounding(terms: Any) -> Any:
    """A sum in BF16, [copy, place]: it rounds, and loses nothing."""
    total = terms[0].astype(np.float32)
    for term in terms[1:]:
        total = (total + term.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32)
    return np.stack([total, total]).astype(np.float64)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp64"])
def test_rounding_is_no_loss(dtype: str) -> None:
    found = check_placed_transport(rounding, TERMS, PLACES, dtype)
    assert (found.wrong, found.kinds, found.terms) == (0, {}, {})
    assert found.sums == (TERMS + 4) * 2 * PLACES


@pytest.mark.parametrize("count", [2, 127, 128, 300])
def test_many_terms_stay_exact(count: int) -> None:
    """No part of the terms sent together, in any order, is beyond what BF16 counts."""
    seen: list[Any] = []

    def total(terms: Any) -> float:
        seen.append(np.abs(terms.astype(np.float64)).sum())
        return float(terms.astype(np.float64).sum())

    assert check_transport(total, count, "bf16").wrong == 0
    assert max(seen) <= 256
    assert min(seen) > 0


class Faulty:
    """A sum with a fault at one place of the first copy."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.before: Any = None

    def __call__(self, terms: Any) -> Any:
        sums = rounding(terms)
        now = sums.copy()
        if self.kind == "missing":
            sums[0, 2] -= float(terms[3, 2])
        elif self.kind == "twice":
            sums[0, 2] += float(terms[3, 2])
        elif self.kind == "negated":
            sums[0, 2] -= 2 * float(terms[3, 2])
        elif self.kind == "stale" and self.before is not None:
            sums[0, 2] = self.before[0, 2]
        elif self.kind == "other":
            sums[0, [2, 4]] = sums[0, [4, 2]]
        self.before = now
        return sums


@pytest.mark.parametrize("kind", ["missing", "twice", "negated", "stale", "other"])
def test_a_planted_fault_is_named(kind: str) -> None:
    found = check_placed_transport(Faulty(kind), TERMS, PLACES)
    assert found.wrong
    assert sum(found.kinds.values()) == found.wrong
    assert max(found.kinds, key=lambda name: found.kinds[name]) in (kind, "other")
    assert found.kinds[kind]
    if kind in ("missing", "twice", "negated"):
        assert set(found.terms) == {3}
        assert "term 3 alone: copy 0, place 2" in found.first
    assert found.text().startswith(f"{found.wrong} of {found.sums}")


def test_one_function() -> None:
    assert check_transport(np.sum, 20).wrong == 0
    found = check_transport(lambda terms: float(terms[1:].sum()), 20)
    assert found.terms == {0: 1}
    assert found.kinds == {"missing": 5}


@pytest.mark.parametrize(
    ("function", "terms", "message"),
    [
        (np.sum, 0, "terms=0, but should be 1 or more"),
        (np.sum, 2.5, "terms=2.5, but should be a whole number, 1 or more"),
        (None, 4, "function=NoneType, but should be a function of terms"),
        (lambda terms: terms, 4, r"result=ndarray of shape \(4,\), but should be one real number"),
        (lambda terms: "4", 4, "result=str, but should be one real number"),
    ],
)
def test_bad_input_is_told_in_one_line(function: Any, terms: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_transport(function, terms)


@pytest.mark.parametrize("result", [np.zeros(PLACES), np.zeros((2, 5)), np.zeros((0, PLACES)), 0.0])
def test_sums_of_another_shape_are_refused(result: Any) -> None:
    with pytest.raises(InputError, match=r"but should be an array \[copy, 6\]"):
        check_placed_transport(lambda terms: result, TERMS, PLACES)


def test_a_sum_may_work_in_place() -> None:
    def total(terms: Any) -> float:
        terms[0] = terms.sum()
        return float(terms[0])

    assert check_transport(total, 8).wrong == 0
