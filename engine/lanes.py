"""`lanes`: the swimlane's view of a trace: who sat in which slot when, what stood idle and why, and the log.

JSON-ready, run-length coded, and all a page needs: it draws and adds nothing. Slots, requests and steps count from 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.plan import Code

if TYPE_CHECKING:
    from engine.trace import Trace

GENERATING, PREFILL, RECOMPUTE = 0, 1, 2
IDLE, TAIL, EARLY = 0, 1, 2
"""Why a slot is empty: somebody waits or a batch is unfinished; the queue is empty for good; nobody is there yet."""

HAPPENED = {Code.ADMITTED, Code.RESUMED, Code.PREEMPTED_BY, Code.FINISHED, Code.ABORTED, Code.TOO_BIG}
"""Codes of what happened; a log names each. The others say why somebody waits."""
_VOLATILE = ("free", "waiting")
"""Details whose change alone is no news."""


def lanes(trace: Trace) -> dict[str, Any]:
    """The swimlane of a trace.

    Returns:
        a dict with `policy`, `slots`, `steps` (forwards), `span` (last step number + 1), `utilisation`,
        `useful_cells`, `requests` (how many), `lengths` and `arrivals` per request,
        `segs`, flat [slot, start, length, request, kind]* with kind 0 generating, 1 prefill only, 2 recompute,
        `idle`, flat [slot, start, length, kind]* with the kinds above,
        `running` and `waiting`, change points [step, count],
        `log`, [step, request, code, detail], a waiting code only where it changes.
    """
    steps, slots = trace.steps, trace.config["max_num_seqs"]
    span = steps["step"][-1] + 1 if steps["step"] else 0
    request_of = {r["id"]: i for i, r in enumerate(trace.requests)}
    owner = [request_of[seq_id.rpartition("/")[0]] for seq_id in trace.sequences]
    segments, useful = _segments(trace, owner)
    running, waiting = _counts(trace, owner, span)
    number = len(steps["step"])
    return {
        "policy": trace.config["policy"],
        "slots": slots,
        "steps": number,
        "span": span,
        "utilisation": useful / (slots * number) if number else 0.0,
        "useful_cells": useful,
        "requests": len(trace.requests),
        "lengths": [r["output_len"] or r["params"]["max_tokens"] for r in trace.requests],
        "arrivals": [r["arrival"] for r in trace.requests],
        "segs": [value for segment in segments for value in segment],
        "idle": [value for gap in _idle(trace, segments, waiting, slots) for value in gap],
        "running": _changes(running),
        "waiting": _changes(waiting),
        "log": _log(trace, owner),
    }


def _segments(trace: Trace, owner: list[int]) -> tuple[list[list[int]], int]:
    """Runs of cells of one request and kind in one slot, and the number of useful cells."""
    rows = trace.rows
    segments: list[list[int]] = []
    last: dict[int, list[int]] = {}
    furthest = [0] * len(trace.sequences)
    useful = row = 0
    for step, count in zip(trace.steps["step"], trace.steps["rows"], strict=True):
        for r in range(row, row + count):
            seq, slot, first = rows["seq"][r], rows["slot"][r], rows["first"][r]
            if rows["sampled"][r] >= 0:
                kind, useful = GENERATING, useful + 1
            else:
                kind = RECOMPUTE if first < furthest[seq] else PREFILL
            furthest[seq] = max(furthest[seq], first + rows["tokens"][r])
            open_one = last.get(slot)
            if open_one and open_one[1] + open_one[2] == step and open_one[3:] == [owner[seq], kind]:
                open_one[2] += 1
            else:
                last[slot] = [slot, step, 1, owner[seq], kind]
                segments.append(last[slot])
        row += count
    return segments, useful


def _counts(trace: Trace, owner: list[int], span: int) -> tuple[list[int], list[int]]:
    """Sequences running and waiting at every step, skipped ones included.

    A step is skipped while nothing can run (static batching that waits for a full batch, or nobody is there); nobody
    leaves the queue meanwhile, so it has whoever waited before and whoever came since.
    """
    gone = {owner[event[3]] for event in trace.events if event[2] in (Code.TOO_BIG, Code.ABORTED)}
    running, waiting, ran = [0] * span, [0] * span, [False] * span
    for i, request in enumerate(trace.requests):
        if i not in gone and request["arrival"] <= span - 1:
            waiting[math.ceil(request["arrival"])] += 1  # whoever comes at this step; made a total below
    for step, rows, still in zip(*(trace.steps[name] for name in ("step", "rows", "waiting")), strict=True):
        running[step], waiting[step], ran[step] = rows, still, True
    for step in range(1, span):
        if not ran[step]:
            waiting[step] += waiting[step - 1]
    return running, waiting


def _idle(trace: Trace, segments: list[list[int]], waiting: list[int], slots: int) -> list[list[int]]:
    """The cells nobody sat in, by reason."""
    span = len(waiting)
    last_arrival = max((r["arrival"] for r in trace.requests), default=0)
    reasons = [IDLE if count else EARLY for count in waiting]
    for step, start in zip(trace.steps["step"], trace.steps["start"], strict=True):
        if not waiting[step] and start >= last_arrival:
            reasons[step] = TAIL
    by_slot: list[list[tuple[int, int]]] = [[] for _ in range(slots)]
    for slot, start, length, *_ in segments:
        by_slot[slot].append((start, start + length))
    changes = [s for s in range(1, span) if reasons[s] != reasons[s - 1]]
    gaps: list[list[int]] = []
    for slot, busy in enumerate(by_slot):
        at = 0
        for start, end in (*busy, (span, span)):
            cuts = [at, *(c for c in changes if at < c < start), start] if at < start else []
            gaps.extend([slot, a, b - a, reasons[a]] for a, b in itertools.pairwise(cuts))
            at = end
    return gaps


def _changes(values: list[int]) -> list[list[int]]:
    """[step, value] wherever the value changes."""
    return [[step, value] for step, value in enumerate(values) if step == 0 or values[step - 1] != value]


def _log(trace: Trace, owner: list[int]) -> list[list[Any]]:
    """Every event, but a waiting code only where it changes."""
    news = News()
    return [
        [step, owner[seq], code, detail]
        for _, _, code, seq, step, detail in trace.events
        if news.has(code, owner[seq], detail)
    ]


class News:
    """Decides which decisions a log shows: whatever happened, and a waiting code only where it changes."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] | None = None

    def has(self, code: str, who: object, detail: Mapping[str, Any]) -> bool:
        """True if a log should have this line; to be asked about every decision, in order."""
        if code in HAPPENED:
            return True
        before, self._last = self._last, (code, who, *((k, v) for k, v in detail.items() if k not in _VOLATILE))
        return self._last != before
