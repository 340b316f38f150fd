"""`Strip`: who sat in which slot during the last steps, kept up to date step by step.

The kinds of cells are those of `engine.lanes`, which tells the same of a whole trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine.engine import StepRecord
from engine.lanes import GENERATING, PREFILL, RECOMPUTE
from engine.plan import Code


class Strip:
    """The last `window` steps.

    Attributes:
        step: the next step's number, 0 before the first.
        segments: [slot, start, length, number of the request, kind], in order of their start.
        notches: [slot, step] where a segment ended by preemption, `step` being the first without it.
    """

    def __init__(self, window: int = 240) -> None:
        self.window = window
        self.step = 0
        self.segments: deque[list[int]] = deque()
        self.notches: deque[list[int]] = deque()
        self._open: dict[int, list[int]] = {}
        self._slots: dict[str, int] = {}
        self._furthest: dict[str, int] = {}

    def add(self, record: StepRecord, number_of: Callable[[str], int]) -> None:
        """Take in a record.

        Args:
            number_of: from a request's id to its number.
        """
        for event in record.before:
            self._gone(event.seq_id)
        for decision in record.plan.decisions.spelled:
            if decision.code is Code.PREEMPTED_BY:
                slot = self._slots.pop(decision.seq_id, None)
                if slot is not None:
                    self.notches.append([slot, record.step])
            elif "slot" in decision.detail:
                self._slots[decision.seq_id] = decision.detail["slot"]
        plan = record.plan
        for seq_id, tokens in plan.num_scheduled_tokens.items():
            first, furthest = plan.num_computed_tokens[seq_id], self._furthest.get(seq_id, 0)
            kind = GENERATING if seq_id in plan.sampling else RECOMPUTE if first < furthest else PREFILL
            self._furthest[seq_id] = max(furthest, first + tokens)
            self._cell(self._slots[seq_id], record.step, number_of(seq_id.rpartition("/")[0]), kind)
        for event in record.after:
            self._gone(event.seq_id)
        if not plan.is_empty:
            self.step = record.step + 1
            self._trim()

    def _cell(self, slot: int, step: int, number: int, kind: int) -> None:
        last = self._open.get(slot)
        if last is not None and last[1] + last[2] == step and last[3:] == [number, kind]:
            last[2] += 1
        else:
            self._open[slot] = [slot, step, 1, number, kind]
            self.segments.append(self._open[slot])

    def _gone(self, seq_id: str) -> None:
        self._slots.pop(seq_id, None)
        self._furthest.pop(seq_id, None)

    def _trim(self) -> None:
        begin = self.step - self.window
        if self.segments and self.segments[0][1] + self.segments[0][2] <= begin:
            self.segments = deque(s for s in self.segments if s[1] + s[2] > begin)
        while self.notches and self.notches[0][1] < begin:
            self.notches.popleft()
