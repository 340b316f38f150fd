"""`WaitingQueue`: who waits, in the engine's order; a preempted sequence goes back to the front.

Every change is also written into a journal, from which a trace tells who stood behind whom at any step.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from engine.request import Sequence


class WaitingQueue:
    """First come, first served, or by (priority, arrival).

    Attributes:
        journal: changes since it was last emptied, as (operation, sequence id); operations are `back`, `front`,
            `sorted` and `out`.
    """

    def __init__(self, order: str) -> None:
        self.order = order
        self.journal: list[tuple[str, str]] = []
        self._fifo: deque[Sequence] = deque()
        self._sorted: list[tuple[int, int, str, Sequence]] = []

    def __len__(self) -> int:
        return len(self._fifo) or len(self._sorted)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._fifo) if self.order == "fcfs" else (entry[3] for entry in self._sorted)

    @property
    def head(self) -> Sequence | None:
        """Who is next, None if nobody waits."""
        return next(iter(self), None)

    def push(self, seq: Sequence) -> None:
        """Somebody new arrives."""
        self._insert(seq, front=False)

    def push_front(self, seq: Sequence) -> None:
        """A preempted sequence comes back: to the front, or to its place by priority."""
        self._insert(seq, front=True)

    def pop(self) -> Sequence:
        """The head leaves the queue."""
        seq = self._fifo.popleft() if self.order == "fcfs" else self._sorted.pop(0)[3]
        self.journal.append(("out", seq.id))
        return seq

    def remove(self, seq: Sequence) -> None:
        """Somebody leaves from anywhere in the queue."""
        if self.order == "fcfs":
            self._fifo.remove(seq)
        else:
            del self._sorted[bisect_left(self._sorted, self._key(seq))]
        self.journal.append(("out", seq.id))

    def _insert(self, seq: Sequence, *, front: bool) -> None:
        if self.order == "priority":
            insort(self._sorted, self._key(seq))
            self.journal.append(("sorted", seq.id))
        elif front:
            self._fifo.appendleft(seq)
            self.journal.append(("front", seq.id))
        else:
            self._fifo.append(seq)
            self.journal.append(("back", seq.id))

    @staticmethod
    def _key(seq: Sequence) -> tuple[int, int, str, Sequence]:
        return (seq.request.priority, seq.order, seq.id, seq)
