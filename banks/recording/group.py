"""The ranks that record together: a torch.distributed group, or this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import torch.distributed as dist

from ..errors import InputError
from .background import RecordingError

T = TypeVar("T")


class RankLostError(RecordingError):
    """Another rank ended without a word, or does not answer: this one waits no longer."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank} lost another rank, which ended or does not answer: {reason}")
        self.rank = rank
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the parts."""
        return type(self), (self.rank, self.reason)


class Group:
    """Ranks of one recording.

    Args:
        group: a torch.distributed group; None is the default group where there is one, else this
            process alone; or (rank, ranks) of processes that do not talk here.

    Attributes:
        rank: this process.
        ranks: how many there are.
        talks: whether they tell each other; else each is on its own.

    Raises:
        InputError: no group, or a rank that is none of the ranks.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        _check(group)
        self.talks = not isinstance(group, tuple) and dist.is_available() and dist.is_initialized()
        rank, ranks = (0, 1)
        if isinstance(group, tuple):
            rank, ranks = group
        elif self.talks:
            rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        if not 0 <= rank < ranks:
            raise InputError("rank", rank, f"0..{ranks - 1}", "record group")
        self.rank: Final[int] = rank
        self.ranks: Final[int] = ranks

    def gather(self, value: object) -> list[Any]:
        """Return every rank's value, in the order of ranks (without talk, the own one alone).

        Raises:
            RankLostError: another rank is gone.
        """
        if not self.talks:
            return [value]
        values: list[Any] = [None] * self.ranks
        with self._talking():
            dist.all_gather_object(values, value, group=self._group)
        return values

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Tell of a lost rank in one line: the transport's error has its own source lines in it."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise RankLostError(self.rank, reason[0]) from error

    def together(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns here; raise on every rank where any rank's work raises.

        Raises:
            InputError: this rank's own, or the first other rank's error in words.
            RankLostError: another rank is gone.
        """
        result: T | None = None
        mine: Exception | None = None
        try:
            result = work()
        # Raised again below, when the other ranks know: they would wait for this one for ever.
        except Exception as error:
            mine = error
        words = self.gather(None if mine is None else str(mine))
        if mine is not None:
            raise mine
        for rank, text in enumerate(words):
            if text is not None:
                raise InputError(f"rank {rank}", text, "no error", "record")
        assert result is not None or mine is None
        return result  # type: ignore[return-value]

    def from_first(self, work: Callable[[], T]) -> T:
        """Return on every rank what rank 0's ``work`` returns, or raise what it raises.

        Ranks that do not talk each do the work.
        """
        outcome: tuple[T | None, Exception | None] = (None, None)
        if self.rank == 0 or not self.talks:
            try:
                outcome = (work(), None)
            # As above: every rank raises it.
            except Exception as error:
                outcome = (None, error)
        if self.talks:
            holder: list[Any] = [outcome]
            with self._talking():
                dist.broadcast_object_list(holder, group=self._group, group_src=0)
            outcome = holder[0]
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]  # type: ignore[return-value]


def _check(group: Any) -> None:
    if isinstance(group, tuple):
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in group)
        if len(group) != 2 or not whole:
            raise InputError("group", repr(group)[:60], "(rank, ranks), two numbers", "record")
    elif group is not None:
        there = dist.is_available() and dist.is_initialized()
        if not there or not isinstance(group, dist.ProcessGroup):
            expected = "a torch.distributed group, (rank, ranks), or None"
            raise InputError("group", repr(group)[:60], expected, "record")
