"""Faults of the top-k: its loop, its masks, its tie rule, what it writes as ids."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.contract import F32, I32, Launch, Path, Routed
from ..fault import Fault, Step, always
from ..loops import (
    exchanged,
    first_of_largest,
    normalised,
    picked,
    rounds,
    scores_and_keys,
    top_k,
    write,
    write_selection,
)
from ..scenes import (
    EXACT_TIES,
    GROUPS,
    MANY_ROWS,
    MINUS_INFINITY,
    NAN,
    NARROW_GAPS,
    NEGATIVE_BIAS,
    SELECT,
    SIGNED_ZEROS,
)

_INDEX_EPSILON: Final = np.float32(3e-7)
_BLOCK: Final = 96


def _repeats_when_the_rest_is_masked(clean: Path, launch: Launch, out: Routed) -> None:
    """A winner is masked with -inf, which the experts that are left have too."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    write_selection(launch, out, scores, rounds(keys, launch.geometry.top_k))


def _initial_candidate(clean: Path, launch: Launch, out: Routed) -> None:
    """Every round starts from the candidate (id 0, key -1): nothing below -1 can replace it."""

    def argmax(keys: F32) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], F32]:
        ids, best = first_of_largest(keys)
        return np.where(best > -1.0, ids, 0), np.maximum(best, np.float32(-1.0))

    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    write_selection(launch, out, scores, rounds(keys, launch.geometry.top_k, argmax))


def _sentinel(value: int | None) -> Step:
    """Slots start with an id that is none; only a key above -inf replaces it."""

    def step(clean: Path, launch: Launch, out: Routed) -> None:
        none = launch.geometry.experts if value is None else value

        def argmax(keys: F32) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], F32]:
            ids, best = first_of_largest(keys)
            return np.where(best > -np.inf, ids, none), best

        scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
        write_selection(launch, out, scores, rounds(keys, launch.geometry.top_k, argmax))

    return step


def _int32_in_int64(clean: Path, launch: Launch, out: Routed) -> None:
    """The kernel writes 4 bytes an id; the caller reads the buffer as 8 bytes an id."""
    before = out.ids.astype(np.int64)
    clean.run(launch, out)
    for rank in range(launch.ranks):
        buffer = before[rank]
        buffer.reshape(-1).view(np.int32)[: out.ids[rank].size] = out.ids[rank].reshape(-1)
        # The cast of the consumer keeps the low half of every 8 bytes.
        out.ids[rank] = buffer.astype(np.int32)


def _int64_in_int32(clean: Path, launch: Launch, out: Routed) -> None:
    """The kernel writes 8 bytes an id into a buffer that is read as 4 bytes an id."""
    clean.run(launch, out)
    for rank in range(launch.ranks):
        wide = out.ids[rank].astype(np.int64).reshape(-1).view(np.int32)
        out.ids[rank] = wide[: out.ids[rank].size].reshape(out.ids[rank].shape)


def _nan_row(clean: Path, launch: Launch, out: Routed) -> None:
    """NaN counts as the largest key, and a winner is taken out by comparing keys with its own."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    left = keys.copy()
    ids = np.empty((len(keys), launch.geometry.top_k), np.int32)
    rows = np.arange(len(keys))
    for slot in range(launch.geometry.top_k):
        ids[:, slot] = np.where(np.isnan(left), np.float32(np.inf), left).argmax(axis=1)
        left[left == left[rows, ids[:, slot]][:, None]] = -np.inf
    with np.errstate(invalid="ignore"):
        write_selection(launch, out, scores, ids)


def _nan_wins(clean: Path, launch: Launch, out: Routed) -> None:
    """A NaN logit scores 0 in the weights, but its key is compared as the largest."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    ids = top_k(np.where(np.isnan(keys), np.float32(np.inf), keys), launch.geometry.top_k)
    write_selection(launch, out, np.nan_to_num(scores, nan=0.0), ids)


def _group_scores(keys: F32, groups: int, best: int) -> F32:
    grouped = np.sort(keys.reshape(len(keys), groups, -1), axis=2)
    total: F32 = grouped[:, :, -best:].sum(axis=2, dtype=np.float32)
    return total


def _from_groups(clean: Path, launch: Launch, out: Routed, *, best: int, fill: float) -> None:
    """The grouped select with its group score (sum of the best keys) and its mask."""
    geometry = launch.geometry
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    chosen = top_k(_group_scores(keys, geometry.groups, best), geometry.top_groups)
    allowed = np.zeros((len(keys), geometry.groups), np.bool_)
    np.put_along_axis(allowed, chosen.astype(np.int64), True, axis=1)
    mask = np.repeat(allowed, geometry.experts // geometry.groups, axis=1)
    ids = top_k(np.where(mask, keys, fill).astype(np.float32), geometry.top_k)
    write_selection(launch, out, scores, ids)


def _masked_with_zero(clean: Path, launch: Launch, out: Routed) -> None:
    _from_groups(clean, launch, out, best=2, fill=0.0)


def _best_of_group(clean: Path, launch: Launch, out: Routed) -> None:
    _from_groups(clean, launch, out, best=1, fill=-np.inf)


def _groups_ignored(clean: Path, launch: Launch, out: Routed) -> None:
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    write_selection(launch, out, scores, top_k(keys, launch.geometry.top_k))


def _index_epsilon(clean: Path, launch: Launch, out: Routed) -> None:
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    steps = np.arange(keys.shape[1], dtype=np.float32) * _INDEX_EPSILON
    later = (keys - steps).astype(np.float32)
    write_selection(launch, out, scores, top_k(later, launch.geometry.top_k))


def _last_slot(clean: Path, launch: Launch, out: Routed) -> None:
    """The list is not sorted, but a better expert replaces what lies in its last slot."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    count = launch.geometry.top_k
    ids = np.tile(np.arange(count, dtype=np.int32), (len(keys), 1))
    ids[:, -1] = count - 1 + np.argmax(keys[:, count - 1 :], axis=1)
    write_selection(launch, out, scores, ids)


def _past_a_block(clean: Path, launch: Launch, out: Routed) -> None:
    """The loop over experts ends after a fixed number of lanes."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    write_selection(launch, out, scores, top_k(keys[:, :_BLOCK], launch.geometry.top_k))


def _higher_id(clean: Path, launch: Launch, out: Routed) -> None:
    """Equal keys go to the higher id, against the bank's contract."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    mirrored: I32 = keys.shape[1] - 1 - top_k(keys[:, ::-1], launch.geometry.top_k)
    write_selection(launch, out, scores, mirrored)


def _negative_zero_below(clean: Path, launch: Launch, out: Routed) -> None:
    """A radix sort of the bits puts -0 below +0."""
    logits = exchanged(clean, launch, out)
    bits = logits.view(np.int32).astype(np.int64)
    line = np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)
    ids = np.argsort(-line, axis=1, kind="stable")[:, : launch.geometry.top_k].astype(np.int32)
    write(out, ids, normalised(picked(logits, ids), launch.scoring))


FAULTS: Final = (
    Fault(
        "duplicates_when_the_rest_is_minus_infinity",
        "a selected expert is masked with -inf and found again where nothing else is above -inf",
        "b12x#225",
        (MINUS_INFINITY,),
        always(_repeats_when_the_rest_is_masked),
        ("breach:duplicate_id",),
    ),
    Fault(
        "initial_candidate",
        "the argmax starts from id 0 with key -1, so keys below -1 all give id 0",
        "vllm#31478",
        (NEGATIVE_BIAS,),
        always(_initial_candidate),
        ("breach:duplicate_id",),
    ),
    Fault(
        "id_out_of_range",
        "a slot that no key above -inf fills keeps the id E",
        "sgl-project/sglang#30079",
        (MINUS_INFINITY,),
        always(_sentinel(None)),
        ("breach:id_out_of_range",),
    ),
    Fault(
        "id_minus_one",
        "a slot that no key above -inf fills keeps the id -1",
        "JustVugg/colibri#563",
        (MINUS_INFINITY,),
        always(_sentinel(-1)),
        ("breach:id_out_of_range",),
    ),
    Fault(
        "int32_in_an_int64_buffer",
        "ids are written as int32 into a buffer that is read as int64",
        "an index type that two kernels disagree on",
        (SELECT,),
        always(_int32_in_int64),
        ("breach:id_out_of_range", "breach:poison_survives"),
        implies=("unwritten_rows",),
    ),
    Fault(
        "int64_in_an_int32_buffer",
        "ids are written as int64 into a buffer that is read as int32",
        "an index type that two kernels disagree on",
        (SELECT,),
        always(_int64_in_int32),
        ("breach:duplicate_id",),
    ),
    Fault(
        "nan_row",
        "a row with a NaN gives the same expert in every slot",
        "vllm#39391",
        (NAN,),
        always(_nan_row),
        ("breach:duplicate_id", "breach:nonfinite_weight"),
    ),
    Fault(
        "nan_wins",
        "an expert whose logit is NaN is selected before every other one",
        "a library's top-k, where NaN is the largest",
        (NAN,),
        always(_nan_wins),
        ("flag:nonfinite_expert_selected", "explained_by:nan_wins"),
    ),
    Fault(
        "masked_with_zero",
        "experts of other groups are masked with 0 where every key is negative",
        "huggingface/transformers#45440",
        (GROUPS,),
        always(_masked_with_zero),
        ("explained_by:group_mask_zero", "flag:wrong_group"),
    ),
    Fault(
        "group_score_of_one",
        "a group's score is its best key, not the sum of its two best",
        "flashinfer#2575",
        (GROUPS,),
        always(_best_of_group),
        ("explained_by:group_best_only",),
    ),
    Fault(
        "groups_ignored",
        "experts are selected from all groups",
        "a port that leaves the groups out",
        (GROUPS,),
        always(_groups_ignored),
        ("explained_by:groups_ignored",),
    ),
    Fault(
        "index_epsilon",
        "a small multiple of the id is subtracted from the key to break ties",
        "sgl-project/sglang#31768",
        (NARROW_GAPS,),
        always(_index_epsilon),
        ("explained_by:index_epsilon_3e-07",),
    ),
    Fault(
        "last_slot_overwritten",
        "an unsorted list of candidates takes its last slot for the weakest",
        "sgl-project/sglang#8125",
        (SELECT,),
        always(_last_slot),
        ("always_selected", "explained_by:last_slot_overwritten"),
    ),
    Fault(
        "experts_past_a_block",
        "the loop over the experts ends after 96 of 128",
        "a lane count fixed for another model",
        (MANY_ROWS,),
        always(_past_a_block),
        ("never_selected", "explained_by:experts_below_96_only"),
    ),
    Fault(
        "higher_id_on_ties",
        "an exact tie goes to the higher id where the bank's contract says lower",
        "vllm#52679",
        (EXACT_TIES,),
        always(_higher_id),
        ("exact_tie", "explained_by:higher_id_on_ties"),
    ),
    Fault(
        "negative_zero_below_zero",
        "a sort of the bits ranks -0 below +0 where the lower id must win",
        "PTO-ISA/SuperNPUBench#78",
        (SIGNED_ZEROS,),
        always(_negative_zero_below),
        ("tie_group", "exact_tie"),
    ),
)
