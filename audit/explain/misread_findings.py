"""Findings about where a path read or wrote: layouts, strides, rows, mapped ids, candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ..metrics.findings import Finding, id_permutation, permuted_layout, same_as_expected
from ..metrics.rule_weights import rule_weights
from . import misreadings
from .case_found import Found, listed
from .case_hypotheses import first_candidates
from .case_reference import case_reference
from .judged_case import JudgedCase
from .judged_path import JudgedPath, same_output

I64 = npt.NDArray[np.int64]


def _misread(judged: JudgedCase) -> Iterator[Found]:
    if judged.case.leading_axis != "row":
        return
    for name, readings in (
        (Finding.STRIDE, list(misreadings.strides(judged.case))),
        (Finding.LAYOUT_PERMUTATION, list(misreadings.layouts(judged.case))),
    ):
        for path in (judged.a, judged.b):
            best = _explaining(path, judged, readings)
            if best is not None:
                reading, logits = best
                text = f"path {path.name} is right for misread inputs: {reading}"
                yield Found(
                    name,
                    text,
                    listed(path.set_wrong),
                    path.name,
                    {
                        "reading": reading,
                        "same_elements": misreadings.same_elements(path.logits, logits),
                        # What a test with one row would have seen.
                        "single_row_is_identical": _alike_in_one_row(judged, reading),
                    },
                )


def _explaining(
    path: JudgedPath, judged: JudgedCase, readings: list[misreadings.Reading]
) -> misreadings.Reading | None:
    """The reading that gives the path's ids, and its weights too where one does."""
    right = path.reference
    if path.invalid.any():
        return None
    only_ids: misreadings.Reading | None = None
    for reading, logits in readings:
        seen = case_reference(judged.case, logits)
        if not permuted_layout(path.routed, right.ids, seen.ids):
            continue
        if path.weights is None:
            return reading, logits
        expected = rule_weights(path.routed, seen.scores, judged.case.scoring)
        if judged.weights_fit(path.routed_weights, expected).all():
            return reading, logits
        only_ids = only_ids or (reading, logits)
    # Ids alone prove enough where the case itself tells of shards or a buffer.
    told = judged.case.shards is not None or judged.case.buffer is not None
    return only_ids if told else None


def _alike_in_one_row(judged: JudgedCase, reading: str) -> bool:
    first = judged.case.first_row()
    for readings in (misreadings.layouts(first), misreadings.strides(first)):
        for name, logits in readings:
            if name == reading:
                return logits.tobytes() == first.logits_a.tobytes()
    # One row has no stride.
    return "stride" in reading


def _moved_rows(judged: JudgedCase) -> Iterator[Found]:
    """Rows that hold each other's outputs."""
    a, b = judged.a, judged.b
    if judged.case.leading_axis != "row" or a.weights is None or b.weights is None:
        return
    moved = np.flatnonzero(a.wrong != b.wrong)
    if len(moved) < 2 or a.wrong.any() == b.wrong.any():
        return
    right, wrong = (a, b) if b.wrong.any() else (b, a)
    sources = []
    for row in moved.tolist():
        same = [r for r in moved.tolist() if same_output(right, r, wrong, row)]
        if len(same) != 1:
            return
        sources.append(same[0])
    if sorted(sources) == moved.tolist():
        text = f"path {wrong.name}: rows {moved.tolist()} hold the outputs of rows {sources}"
        rows = tuple(moved.tolist())
        facts = {"reading": "rows permuted", "rows_from": sources}
        yield Found(Finding.LAYOUT_PERMUTATION, text, rows, wrong.name, facts)


def _local_ids(judged: JudgedCase) -> Iterator[Found]:
    ranks = judged.case.ranks
    if judged.case.leading_axis != "row" or ranks is None or judged.case.experts % ranks:
        return
    width = judged.case.experts // ranks
    a, b = judged.a, judged.b
    if (b.ids == a.ids % width).all() and (b.ids != a.ids).any():
        text = f"path b returns ids inside a rank's {width} experts, without the rank's offset"
        rows = listed((a.ids != b.ids).any(axis=1))
        facts = {"reading": "rank-local ids"}
        yield Found(Finding.LAYOUT_PERMUTATION, text, rows, "b", facts)


def _told_or_seen_map(judged: JudgedCase) -> Iterator[Found]:
    case, a, b = judged.case, judged.a, judged.b
    if case.leading_axis == "rank":
        return
    if case.map is not None:
        yield from _told_map(judged, case.map)
        return
    # Without a map: the same weights under other ids, by one map for every row.
    if a.weights is None or b.weights is None or a.invalid.any() or b.invalid.any():
        return
    moved = id_permutation(a.ids, b.ids)
    if moved is None or not judged.weights_fit(b.weights, a.weights.astype(np.float64)).all():
        return
    one_wrong = a.weights_wrong.any() != b.weights_wrong.any()
    repeated = a.ids.size > len(moved) or case.rows > 1
    if one_wrong and repeated:
        wrong = a if a.weights_wrong.any() else b
        text = f"path {wrong.name} holds the right weights under other ids: {_arrows(moved)}"
        rows = listed((a.ids != b.ids).any(axis=1))
        yield Found(Finding.ID_PERMUTATION, text, rows, wrong.name, {"id_map": moved})


def _told_map(judged: JudgedCase, told: Mapping[int, tuple[int, ...]]) -> Iterator[Found]:
    for wrong, right in ((judged.b, judged.a), (judged.a, judged.b)):
        if not (wrong.invalid | wrong.differs | wrong.weights_wrong).any():
            continue
        for name, mapping in _maps(told):
            if (wrong.ids != right.ids).any() and _is_mapped(right.ids, wrong.ids, mapping):
                used = np.unique(right.ids).tolist()
                moved = {e: mapping[e][0] for e in used if e in mapping}
                text = (
                    f"path {wrong.name}'s ids are {name} of path {right.name}'s: "
                    f"{_arrows(moved)}; logical and physical ids are mixed"
                )
                rows = listed(~same_as_expected(wrong.ids, right.ids))
                yield Found(Finding.ID_PERMUTATION, text, rows, wrong.name, {"id_map": moved})
                return
            if _weights_are_mapped(judged, wrong, mapping):
                text = f"path {wrong.name}'s weights are those of {name} of its ids"
                rows = listed(wrong.weights_wrong)
                yield Found(Finding.ID_PERMUTATION, text, rows, wrong.name)
                return


def _maps(
    told: Mapping[int, tuple[int, ...]],
) -> Iterator[tuple[str, Mapping[int, tuple[int, ...]]]]:
    yield "the map", told
    inverse: dict[int, tuple[int, ...]] = {}
    for logical, several in told.items():
        for physical in several:
            inverse[physical] = (*inverse.get(physical, ()), logical)
    yield "the inverse map", inverse
    yield (
        "the map twice",
        {k: tuple(q for p in several for q in told.get(p, ())) for k, several in told.items()},
    )


def _is_mapped(ids: I64, mapped: I64, mapping: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether each row of ``mapped`` holds one image of each id in ``ids``; shared ids stay."""
    for row, images in zip(ids.tolist(), mapped.tolist(), strict=True):
        free = list(images)
        for expert in row:
            image = next((e for e in mapping.get(expert, (expert,)) if e in free), None)
            if image is None:
                return False
            free.remove(image)
    return True


def _weights_are_mapped(
    judged: JudgedCase, path: JudgedPath, mapping: Mapping[int, tuple[int, ...]]
) -> bool:
    """Whether the weights were gathered with mapped ids from scores in logical order."""
    if not path.weights_wrong.any():
        return False
    images = [[(*mapping.get(e, ()), -1)[0] for e in row] for row in path.routed.tolist()]
    # A map may hold numbers that are no expert, and none of ours to hold.
    if not all(0 <= e < judged.case.experts for row in images for e in row):
        return False
    other = np.array(images, np.int64)
    expected = rule_weights(other, path.reference.scores, judged.case.scoring)
    return bool(judged.weights_fit(path.routed_weights, expected).all())


def _arrows(moved: Mapping[int, int], most: int = 6) -> str:
    shown = [f"{a} -> {b}" for a, b in moved.items() if a != b]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")


def _never_selected(judged: JudgedCase) -> Iterator[Found]:
    case = judged.case
    for path in (judged.b, judged.a):
        right = path.reference
        rows = path.set_wrong
        # Where nobody tells of a capacity, one row proves little; several rows or a pad prove more.
        told = case.capacity is not None or case.pad_to is not None
        if path.invalid.any() or np.count_nonzero(rows) < (1 if told else 2):
            continue
        for name, ids in first_candidates(case, right, int(path.routed.max())):
            if not permuted_layout(path.routed, right.ids, ids):
                continue
            lost = sorted(set(right.ids[rows].ravel().tolist()) - set(path.routed.ravel().tolist()))
            text = f"path {path.name} selects from {name}; experts {lost} are never chosen"
            facts = {"reading": name, "never_selected": lost}
            yield Found(Finding.NEVER_SELECTED, text, listed(rows), path.name, facts)
            break


def misread_findings(judged: JudgedCase) -> Iterator[Found]:
    """Yield what a wrong place explains: of inputs read, of rows or ids written.

    The first cause that explains a case is told; what it was told of comes before what is guessed.
    """
    for seek in (_misread, _local_ids, _told_or_seen_map, _moved_rows, _never_selected):
        found = list(seek(judged))
        if found:
            yield from found
            return
