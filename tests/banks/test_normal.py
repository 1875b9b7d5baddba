"""The fast normal rows: reproducible, addressable, and normal."""

import hashlib

import numpy as np
import scipy.stats

from neartie.banks.normal import normal_rows
from neartie.banks.open import open_bank


def test_any_row_by_itself() -> None:
    whole = normal_rows(7, 0, 40, 37)
    assert (normal_rows(7, 11, 5, 37) == whole[11:16]).all()
    bank = open_bank("normal:geometry=k3,rows=3000,seed=2,std=2")
    read = bank.read(100, 140).logits
    assert read is not None
    assert (read == bank.read(0, 2000).logits[100:140]).all()  # type: ignore[index]
    assert (read == normal_rows(2, 100, 40, 896) * np.float32(2)).all()


def test_the_bits_are_fixed() -> None:
    digest = hashlib.sha256(normal_rows(0, 0, 8, 896).tobytes()).hexdigest()
    assert digest == "4939552f680d10cfd3a8d5c2acb8f57c576123654f644cf5f614657e250a0dfe"


def test_the_values_are_normal() -> None:
    values = normal_rows(0, 0, 600, 896).astype(np.float64).ravel()
    count = len(values)
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-3
    assert abs(values.mean()) * count**0.5 < 4
    assert abs(values.var() - 1) * (count / 2) ** 0.5 < 4
    assert abs(scipy.stats.kurtosis(values)) * (count / 24) ** 0.5 < 4
    for other in (normal_rows(1, 0, 600, 896), normal_rows(0, 600, 600, 896)):
        assert abs(np.corrcoef(values, other.ravel())[0, 1]) * count**0.5 < 4
