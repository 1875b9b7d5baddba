"""Tallies a rank: what each rank would count by itself, whichever chunk it first differs in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neartie.audit.ranked import Ranked

RANKS = 4


class Rows:
    """The rows that were added, in order."""

    def __init__(self, *rows: str) -> None:
        self.rows = list(rows)

    def merge(self, other: Rows) -> None:
        self.rows += other.rows

    def copy(self) -> Rows:
        return Rows(*self.rows)


# Chunk by chunk, the ranks whose bits differ from rank 0's.
CHUNKS = st.lists(st.sets(st.integers(1, RANKS - 1)), max_size=6)


def added(chunk: int, differing: set[int]) -> dict[int, Rows]:
    return {rank: Rows(f"chunk {chunk} of rank {rank}") for rank in {0, *differing}}


def counted(chunks: list[set[int]], first: int = 0) -> Ranked[Rows]:
    found = Ranked(RANKS, Rows())
    for chunk, differing in enumerate(chunks, first):
        found.add(added(chunk, differing))
    return found


def of_rank(found: Ranked[Rows], rank: int) -> list[str]:
    return found.own[rank].rows if rank in found.own else found.first.rows


@given(CHUNKS, st.integers(0, 6))
def test_each_rank_has_its_own_rows_however_chunks_are_merged(
    chunks: list[set[int]], cut: int
) -> None:
    merged = counted(chunks[:cut])
    merged.merge(counted(chunks[cut:], len(chunks[:cut])))
    for rank in range(RANKS):
        alone = [
            f"chunk {chunk} of rank {rank if rank in differing else 0}"
            for chunk, differing in enumerate(chunks)
        ]
        assert of_rank(counted(chunks), rank) == of_rank(merged, rank) == alone
    assert set(merged.own) == set().union(*chunks)
    ranks = range(RANKS) if merged.own else [0]
    pooled = merged.pooled().rows
    assert sorted(pooled) == sorted(row for rank in ranks for row in of_rank(merged, rank))
