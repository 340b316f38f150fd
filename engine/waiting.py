"""`WaitingQueue`: who waits, in the engine's order; a preempted sequence goes back to the front.

First come, first served is kept as a short front (those sent back) and a list that only grows at its end, so that a
snapshot of who stands behind whom costs nothing however long the queue is. Every change is also written into a
journal, from which a trace tells the same.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as AbstractSequence
from itertools import islice
from typing import overload

from engine.request import Sequence


class Snapshot(AbstractSequence[str]):
    """Ids of the sequences in a queue at one moment, made when looked at."""

    __slots__ = ("_back", "_front", "_start", "_stop")

    def __init__(self, front: tuple[Sequence, ...], back: list[Sequence], start: int, stop: int) -> None:
        self._front, self._back, self._start, self._stop = front, back, start, stop

    def __len__(self) -> int:
        return len(self._front) + self._stop - self._start

    def __iter__(self) -> Iterator[str]:
        yield from (seq.id for seq in self._front)
        yield from (seq.id for seq in islice(self._back, self._start, self._stop))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return tuple(self)[index]


class WaitingQueue:
    """First come, first served, or by (priority, arrival).

    Attributes:
        journal: changes since it was last emptied, as (operation, sequence id); operations are `back`, `front`,
            `sorted` and `out`.
    """

    def __init__(self, order: str) -> None:
        self.order = order
        self.journal: list[tuple[str, str]] = []
        self._front: deque[Sequence] = deque()
        self._back: list[Sequence] = []
        self._start = 0  # of what is left of _back

    def __len__(self) -> int:
        return len(self._front) + len(self._back) - self._start

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._front
        yield from islice(self._back, self._start, None)

    @property
    def head(self) -> Sequence | None:
        """Who is next, None if nobody waits."""
        if self._front:
            return self._front[0]
        return self._back[self._start] if self._start < len(self._back) else None

    def behind_head(self) -> Snapshot:
        """Everybody but the head, as they stand now."""
        if self._front:
            return Snapshot(tuple(self._front)[1:], self._back, self._start, len(self._back))
        return Snapshot((), self._back, min(self._start + 1, len(self._back)), len(self._back))

    def push(self, seq: Sequence) -> None:
        """Somebody new arrives: at the back, or in their place by priority."""
        if self.order == "priority":
            self._insert_sorted(seq)
        else:
            self._back.append(seq)
            self.journal.append(("back", seq.id))

    def push_front(self, seq: Sequence) -> None:
        """A preempted sequence comes back: to the front, or to its place by priority."""
        if self.order == "priority":
            self._insert_sorted(seq)
        else:
            self._front.appendleft(seq)
            self.journal.append(("front", seq.id))

    def pop(self) -> Sequence:
        """The head leaves the queue."""
        if self._front:
            seq = self._front.popleft()
        else:
            seq = self._back[self._start]
            self._start += 1
            if self._start > 1024 and self._start > len(self._back) // 2:
                self._back, self._start = self._back[self._start :], 0
        self.journal.append(("out", seq.id))
        return seq

    def remove(self, seq: Sequence) -> None:
        """Somebody leaves from anywhere in the queue."""
        if seq in self._front:
            self._front.remove(seq)
        else:
            self._back = [other for other in islice(self._back, self._start, None) if other is not seq]
            self._start = 0
        self.journal.append(("out", seq.id))

    def _insert_sorted(self, seq: Sequence) -> None:
        """Into a copy, as snapshots may still look at the list."""
        self._back, self._start = self._back[self._start :], 0
        insort(self._back, seq, key=_rank)
        self.journal.append(("sorted", seq.id))


def _rank(seq: Sequence) -> tuple[int, int, str]:
    return (seq.request.priority, seq.order, seq.id)
