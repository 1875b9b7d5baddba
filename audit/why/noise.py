"""Which swaps between two paths the noise of their logits explains, row by row.

The noise is declared, or measured where nothing but noise can differ: a path against itself, the
same rows at another width, or a plain FP32 sum against the exact one.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank, RowBlock
from ...banks.errors import InputError
from ...kernels.contract import F32, Launch, Path, Routed, check_width
from ...kernels.reference import reference_product, reference_select
from ..judged import JudgedBlock, judge_block
from ..launching import POISONS, make_launch, run_path
from ..metrics.noise import NoiseTest, RowNoise, judge_swaps, near_boundary, row_noise, separate
from ..metrics.swaps import SET_CLASSES, SetClass, SetDifferences, classify_sets
from ..number_words import number_of
from ..policy import Policy
from .pair import DEFAULT_WIDTH, Pair, make_pair

Source = Literal["declared", "repeat", "widths", "fp32_order"]
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
_WORDS: Final = {
    "declared": "declared for every row",
    "repeat": "baseline against itself, run again",
    "widths": "baseline at another width",
    "fp32_order": "a plain FP32 sum against the exact one, on both sides",
}
_FEW: Final = 1e-6
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoiseSwaps:
    """The swaps of two paths beside the noise of each row.

    Attributes:
        baseline, candidate, bank: their names.
        width, ranks, rank: of the launches, and whose outputs are looked at.
        source: where sigma comes from, one of ``SOURCES``.
        sigma_median, sigma_largest: over the rows; None where no row has one.
        window_ulp: gaps up to here are near ties, whatever the noise.
        classes: rows by set class, a swap beyond the window told by its own row's sigma.
        classes_before: the same by the policy's ``noise_abs``, one figure for all rows.
        test: observed swaps against those that the noise predicts, on rows whose boundary gap is
            beyond the window; the others, and invalid rows, are its ``undefined``.
    """

    baseline: str
    candidate: str
    bank: str
    width: int
    ranks: int
    rank: int
    source: Source
    sigma_median: float | None
    sigma_largest: float | None
    window_ulp: int
    classes: Mapping[str, int]
    classes_before: Mapping[str, int]
    test: NoiseTest

    @property
    def exit_status(self) -> int:
        """3 where every row is invalid, so that nothing was compared; else 0."""
        return 3 if set(self.classes) == {str(SetClass.INVALID)} else 0

    @property
    def title(self) -> str:
        """The section's title."""
        return f"Noise: {self.baseline} against {self.candidate}"

    def lines(self) -> list[str]:
        """Return the section's text."""
        test = self.test
        sigma = "no row has one"
        if self.sigma_median is not None:
            sigma = f"median {self.sigma_median:.2e}, largest {self.sigma_largest:.2e}"
        told = ", ".join(f"{name} {count:,}" for name, count in self.classes.items())
        found = [
            f"{self.bank}: sigma of a row's key differences, {_WORDS[self.source]}: {sigma}",
            f"sets of {number_of(sum(self.classes.values()), 'row')}: {told}",
        ]
        if test.answer == "unknown":
            return [*found, "unknown: no valid row has both a margin and a sigma"]
        found.append(
            f"swaps: {test.observed:,}, predicted {_expected(test.expected)} "
            f"({test.confidence:.0%}: {_interval(test.low, test.high)}): {test.answer}"
        )
        for band in test.bands:
            found.append(
                f"  margins from {band.low:.2f} sigma: {number_of(band.rows, 'row')}, "
                f"{number_of(band.observed, 'swap')}, predicted {_expected(band.expected)}, "
                f"p {band.p_surplus:.2g}"
            )
        if test.undefined:
            found.append(
                f"  {number_of(test.undefined, 'row')} left out: near tie, invalid, or no margin "
                "or sigma"
            )
        if test.exact:
            found.append(f"  no noise at all on {number_of(test.exact, 'row')}")
        return found

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def noise_swaps(
    baseline: str | Path,
    candidate: str | Path,
    bank: str | Bank,
    *,
    source: Source = "fp32_order",
    sigma: float | None = None,
    other_width: int = 1,
    policy: Policy | None = None,
    width: int = DEFAULT_WIDTH,
    ranks: int = 8,
    rank: int = 0,
    rows: int | None = None,
    device: str = "cpu",
) -> NoiseSwaps:
    """Return which swaps noise explains, and whether there are more than it predicts.

    Args:
        baseline: as for ``make_pair``, and so are candidate, bank, width, ranks, rank and rows.
        candidate: the other path.
        bank: the rows.
        source: where sigma comes from. ``repeat`` and ``widths`` ask the baseline, which must show
            its logits.
        sigma: of ``declared``: standard deviation of the difference of two keys.
        other_width: of ``widths``.
        policy: window and ``noise_abs``; None takes the default one.
        width: rows per launch.
        ranks: tensor-parallel ranks.
        rank: whose outputs are looked at.
        rows: the bank's first rows.
        device: as for ``make_path``.

    Raises:
        InputError: an argument that does not fit, or a source that the bank or path lacks.
        EnvelopeError: a path refuses the launch.
        PathError: a path raised.
    """
    _check_source(source, sigma, width, other_width)
    limits = policy or Policy()
    pair = make_pair(
        baseline, candidate, bank, width=width, ranks=ranks, rank=rank, rows=rows, device=device
    )
    measure = _Measure(pair, source, sigma, other_width)
    codes, margins, noises, differing, found = [], [], [], [], []
    for block, launch in pair.chunks():
        judged = judge_block(pair.bank, pair.weights, block, with_control=False)
        a, b = (run_path(path, launch) for path in pair.paths)
        invalid = pair.invalid((a, b), block.rows)
        sets = _sets(pair, judged, a, b, limits, invalid)
        codes.append(sets.set_class)
        found.append((sets.rows + block.start, sets.gap_abs))
        margin = _margins(judged, pair.bank.geometry.top_k, limits.window_ulp)
        margins.append(np.where(invalid, np.nan, margin))
        noises.append(measure.noise(block, launch, judged))
        differing.append(np.isin(np.arange(block.rows), sets.rows))
    before = np.concatenate(codes)
    noise = RowNoise(np.concatenate([one.sigma for one in noises]), noises[0].degrees)
    places, gaps = (np.concatenate(column) for column in zip(*found, strict=True))
    after = separate(before, places, gaps, noise)
    known = noise.sigma[np.isfinite(noise.sigma)]
    return NoiseSwaps(
        baseline=pair.paths[0].name,
        candidate=pair.paths[1].name,
        bank=pair.bank.name,
        width=width,
        ranks=ranks,
        rank=rank,
        source=source,
        sigma_median=float(np.median(known)) if known.size else None,
        sigma_largest=float(known.max()) if known.size else None,
        window_ulp=limits.window_ulp,
        classes=_counted(after),
        classes_before=_counted(before),
        test=judge_swaps(np.concatenate(margins), noise, np.concatenate(differing)),
    )


def _check_source(source: Source, sigma: float | None, width: int, other_width: int) -> None:
    """Refuse a source that is none, or figures that are not its."""
    if source not in SOURCES:
        raise InputError("source", source, f"one of {', '.join(SOURCES)}", "noise")
    if (sigma is not None) != (source == "declared"):
        expected = "a number with source declared, and with no other"
        raise InputError("sigma", sigma, expected, "noise")
    if sigma is not None and not _is_size(sigma):
        raise InputError("sigma", sigma, "a finite number, at least 0", "noise")
    if source == "widths":
        check_width(other_width, "noise")
        if other_width == width:
            raise InputError("other_width", other_width, f"another width than {width}", "noise")


@dataclass(frozen=True, eq=False)
class _Measure:
    """Makes the noise of a block from one source."""

    pair: Pair
    source: Source
    declared: float | None
    other_width: int

    def noise(self, block: RowBlock, launch: Launch, judged: JudgedBlock) -> RowNoise:
        if self.declared is not None:
            return RowNoise(np.full(block.rows, self.declared))
        if self.source == "fp32_order":
            weight = self.pair.weights.router
            if block.hidden is None or weight is None:
                expected = "a bank with hidden rows, or another source"
                raise InputError("source", self.source, expected, self.pair.bank.name)
            plain = reference_product(block.hidden, weight, accumulate="fp32")
            # Each of the two paths sums in an order of its own.
            one = self._between(plain, judged.logits, judged)
            return RowNoise(math.sqrt(2.0) * one.sigma, one.degrees)
        again = launch
        if self.source == "widths":
            pair = self.pair
            again = make_launch(pair.bank, pair.weights, block, self.other_width, pair.ranks)
        first = self._logits(launch, 0)
        second = self._logits(again, 1)
        return self._between(first[: block.rows], second[: block.rows], judged)

    def _logits(self, launch: Launch, run: int) -> F32:
        path = self.pair.paths[0]
        out = run_path(path, launch, POISONS[run])
        if out.logits is None:
            expected = "fp32_order or declared: this path shows no logits here"
            raise InputError("source", self.source, expected, path.name)
        found: F32 = out.logits[self.pair.rank]
        return found

    def _between(self, a: npt.NDArray[Any], b: npt.NDArray[Any], judged: JudgedBlock) -> RowNoise:
        """Noise of the keys, rounded as the reference rounds them, of two logits."""
        bank = self.pair.bank
        near = near_boundary(judged.selection.keys, bank.geometry.top_k)
        keys = [
            reference_select(x, self.pair.weights.bias, bank.geometry, bank.scoring).keys
            for x in (a, b)
        ]
        with np.errstate(invalid="ignore"):
            return row_noise((keys[0].astype(np.float64) - keys[1])[None], near)


def _sets(
    pair: Pair,
    judged: JudgedBlock,
    a: Routed,
    b: Routed,
    policy: Policy,
    invalid: npt.NDArray[np.bool_],
) -> SetDifferences:
    rows = judged.block.rows
    return classify_sets(
        a.ids[pair.rank, :rows],
        b.ids[pair.rank, :rows],
        judged.selection.keys,
        window_ulp=policy.window_ulp,
        noise_abs=policy.noise_abs,
        invalid=invalid,
        group_keys=judged.selection.group_keys,
        groups=pair.bank.geometry.groups,
    )


def _margins(judged: JudgedBlock, top_k: int, window_ulp: int) -> F64:
    """K-th minus next key [row] of the reference; NaN where there is none, or a near tie.

    Roundings of score and bias swap near ties without any noise of the logits.
    """
    selection = judged.selection
    keys = selection.keys.astype(np.float64)
    if selection.eligible is not None:
        keys = np.where(selection.eligible, keys, -np.inf)
    keys = np.where(np.isnan(keys), -np.inf, keys)
    if keys.shape[1] <= top_k:
        return np.full(len(keys), np.nan)
    top = -np.partition(-keys, top_k, axis=1)[:, : top_k + 1]
    with np.errstate(invalid="ignore"):
        margin = top[:, :top_k].min(axis=1) - top[:, top_k]
    beyond = selection.boundary_ulp > window_ulp
    return np.where(np.isfinite(margin) & beyond, margin, np.nan)


def _counted(codes: npt.NDArray[np.int8]) -> dict[str, int]:
    """Rows by class; classes without a row are left out."""
    found = Counter(str(SET_CLASSES[code]) for code in codes.tolist())
    return {str(kind): found[str(kind)] for kind in SET_CLASSES if found[str(kind)]}


def _expected(count: float) -> str:
    """A predicted count; one that no sum of rows brings near 1 is not told to its last power."""
    return f"{count:.3g}" if count == 0.0 or count >= _FEW else f"below {_FEW:.0e}"


def _interval(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if low != high else f"{low:,}" if low else "none"


def _is_size(value: object) -> bool:
    if not isinstance(value, int | float | np.floating | np.integer):
        return False
    return bool(0.0 <= value <= sys.float_info.max)
