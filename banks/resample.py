"""Unlimited rows with a recorded bank's own router: mixtures of its real hidden rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .bank import NO_UNIT, Array, Bank, Header, RowBlock
from .errors import InputError
from .exact_product import PreparedWeight, exact_product
from .generate import BLOCK, random, row_keys, rows_source, spec_digest
from .spec import Generator, Option, Spec, at_least, choice, row_count

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
# Rows whose logits are made together; bounds the memory, changes no bit.
_CHUNK: Final = 4096
_MARGIN_ROWS: Final = 4096

NOTE: Final = (
    "hidden = BF16(cos(t) h_i + sin(t) h_j), t uniform in 0..pi/4, i and j distinct recorded rows; "
    "logits = the exact product with the bank's router weight, rounded once to FP32; rows are "
    "independent draws given the bank, not new text"
)


@dataclass(frozen=True, slots=True)
class MarginDensity:
    """Density at 0 of the margin between slots K and K+1 of the biased score.

    Estimator: the share of rows whose margin is below ``width``, divided by ``width``, which is a
    quarter of the recorded rows' median margin for both.

    Attributes:
        recorded: density of the bank's own rows, per unit of score.
        resampled: density of the resampled rows.
        width: the window.
        recorded_rows: rows it was taken from.
        resampled_rows: the first rows of the resampled bank, at most 4096.
    """

    recorded: float
    resampled: float
    width: float
    recorded_rows: int
    resampled_rows: int

    def __str__(self) -> str:
        return (
            f"{self.resampled:.1f} per unit of score over {self.resampled_rows} resampled rows, "
            f"{self.recorded:.1f} over {self.recorded_rows} recorded rows "
            f"(share of margins below {self.width:.3g})"
        )


class ResampledBank(Bank):
    """Mixtures of a bank's hidden rows; at stage logits with their exact logits."""

    def __init__(self, spec: Spec, base: Bank) -> None:
        if base.stage != "hidden" or base.rows < 2:
            got = f"{base.stage} with {base.rows} rows"
            raise InputError("bank", got, "a bank at stage hidden with 2 rows or more", spec.text)
        header = Header(
            name=spec.text,
            rows=spec.values["rows"],
            geometry=base.geometry,
            scoring=base.scoring,
            tie_contract=base.tie_contract,
            # Mixtures of rows that were chosen or made bound no rate either.
            independence_unit=NO_UNIT if base.independence_unit == NO_UNIT else "row",
            stage=spec.values["stage"],
            digest=spec_digest(f"{spec.text} of {base.digest}"),
            provenance={
                "model": base.provenance.get("model"),
                "layer": base.provenance.get("layer"),
                "source": {"bank": base.name, "digest": base.digest, "spec": spec.text},
                "seeds": {"seed": spec.values["seed"]},
                "rows": NOTE,
            },
        )
        super().__init__(header, lambda: base.weights)
        self._base = base
        self._spec = Spec(spec.text, {**spec.values, "bank": base.digest})
        self._seed: int = spec.values["seed"]
        self._last: tuple[int, Array] = (-1, np.empty(0, _BF16))

    @property
    def rows_from(self) -> str:
        """The generator with its seed and the bank's digest, see ``rows_source``."""
        return rows_source(self._spec, self.independence_unit)

    @cached_property
    def _source(self) -> npt.NDArray[np.float32]:
        hidden = self._base.read(0, self._base.rows).hidden
        assert hidden is not None
        return hidden.astype(np.float32)

    @cached_property
    def _router(self) -> PreparedWeight:
        return PreparedWeight(self._base.weights["router_weight"])

    def _mixed(self, block: int) -> Array:
        if self._last[0] == block:
            return self._last[1]
        rng = random(self._seed, "rows", block)
        count = self._base.rows
        first = rng.integers(0, count, BLOCK)
        second = (first + rng.integers(1, count, BLOCK)) % count
        angle = rng.random(BLOCK) * (np.pi / 4)
        # FP32 factors: the products are exact in FP64, and a libm's last bit does not show.
        near = np.cos(angle).astype(np.float32).astype(np.float64)[:, np.newaxis]
        far = np.sin(angle).astype(np.float32).astype(np.float64)[:, np.newaxis]
        mixed = near * self._source[first] + far * self._source[second]
        made: Array = mixed.astype(_BF16)
        self._last = (block, made)
        return made

    def _hidden(self, start: int, stop: int) -> Array:
        pieces = []
        for block in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            first = block * BLOCK
            pieces.append(self._mixed(block)[max(start - first, 0) : stop - first])
        return np.concatenate(pieces)

    def _logits(self, start: int, stop: int) -> Array:
        parts = [
            exact_product(self._hidden(first, min(first + _CHUNK, stop)), self._router)
            for first in range(start, stop, _CHUNK)
        ]
        return np.concatenate(parts).astype(np.float32)

    def _read(self, start: int, stop: int) -> RowBlock:
        keys = row_keys(start, stop)
        keys["layer"] = np.full(stop - start, self.header.provenance["layer"] or 0, np.int32)
        if self.stage == "hidden":
            return RowBlock(start, stop - start, keys, hidden=self._hidden(start, stop))
        return RowBlock(start, stop - start, keys, logits=self._logits(start, stop))

    @cached_property
    def _margin_density(self) -> MarginDensity | None:
        if self.geometry.groups > 1 or self.scoring.function != "sigmoid":
            return None
        if self.geometry.top_k == self.geometry.experts:
            return None
        rows = min(self.rows, _MARGIN_ROWS)
        own = _margins(exact_product(self._source, self._router), self._base)
        new = _margins(self._logits(0, rows).astype(np.float64), self._base)
        width = float(np.median(own)) / 4
        if width == 0:
            return None
        shares = [float(np.mean(margins < width)) / width for margins in (own, new)]
        return MarginDensity(shares[0], shares[1], width, len(own), len(new))

    def margin_density(self) -> MarginDensity | None:
        """Return the boundary margin's density at 0 beside the bank's own.

        None where the margin is not that of a plain sigmoid top K.
        """
        return self._margin_density

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the rows come from, with the margin density."""
        density = self.margin_density()
        shown = None if density is None else asdict(density)
        return {**self.header.provenance, "margin_density": shown}


def _margins(logits: npt.NDArray[np.float64], bank: Bank) -> npt.NDArray[np.float64]:
    """Return [row] biased score of slot K minus that of slot K+1, in FP64."""
    with np.errstate(over="ignore"):
        keys = 1.0 / (1.0 + np.exp(-logits)) + bank.weights["correction_bias"]
    k = bank.geometry.top_k
    top = np.partition(keys, (keys.shape[1] - k - 1, keys.shape[1] - k), axis=1)
    margins: npt.NDArray[np.float64] = top[:, -k] - top[:, -k - 1]
    return margins


def generator(resolve: Callable[[str], Bank]) -> Generator:
    """Return the resample generator.

    Args:
        resolve: opens the bank of the option ``bank``.
    """
    return Generator(
        "resample",
        "mixtures of a recorded bank's hidden rows with its own router and bias",
        (
            Option("bank", "k3-mini", str, "bank at stage hidden; a group is one bank each"),
            Option("rows", "10k", row_count, "rows"),
            Option("seed", "0", at_least(0), "seed"),
            Option("stage", "logits", choice("logits", "hidden"), "where the rows start"),
        ),
        lambda spec: ResampledBank(spec, resolve(spec.values["bank"])),
    )
