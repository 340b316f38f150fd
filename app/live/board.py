"""`Board`: what the shared engine's page shows, kept up to date by the engine's records, and the frame made of it.

It reads the engine and decides nothing. Requests have running numbers beside their ids, as the numbers give them their
colours.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.live.models import Model
from app.live.rates import Rates, in_ms
from app.live.strip import Strip
from engine.engine import Engine, StepRecord
from engine.lanes import HAPPENED, News
from engine.model.text import TextStream
from engine.plan import Decision
from engine.request import RequestState
from engine.usage import PARTS, Usage

FINISHED = 12
LOG = 12


@dataclass
class Entry:
    """One request as the page knows it."""

    number: int
    state: RequestState
    prompt: str
    stream: TextStream
    submitted: float
    times: list[float] = field(default_factory=list)
    read: int = 0
    told: dict[str, Any] | None = None  # the last word on a request that is over

    @property
    def is_over(self) -> bool:
        return self.state.finish_reason is not None

    def text(self) -> str:
        """The reply so far, in whole characters."""
        output = self.state.sequences[0].output_token_ids
        if len(output) > self.read:
            self.stream.add(output[self.read :])
            self.read = len(output)
        if self.is_over:
            self.stream.end()
        return self.stream.text

    def tell(self) -> dict[str, Any]:
        """As it goes over the wire."""
        if self.told is not None:
            return self.told
        seq, request = self.state.sequences[0], self.state.request
        gaps = [b - a for a, b in zip(self.times, self.times[1:], strict=False)]
        told = {
            "number": self.number,
            "id": self.state.id,
            "name": request.name,
            "prompt": self.prompt,
            "text": self.text(),
            "status": str(seq.status),
            "reason": seq.finish_reason,
            "prompt_tokens": request.prompt_len,
            "output_tokens": seq.num_output_tokens,
            "max_tokens": request.params.max_tokens,
            "ttft_ms": in_ms(t - self.submitted for t in self.times[:1]),
            "itl_ms": in_ms(gaps),
            "slot": seq.slot,
            "table": list(seq.block_table),
            "computed": seq.num_computed_tokens,
        }
        self.told = told if self.is_over else None
        return told


class Board:
    """Watches one engine.

    Args:
        engine: read only while it is at rest.
        model: whose words the tokens are.
        entries: requests of an engine before, which stay on show.
    """

    def __init__(self, engine: Engine, model: Model, entries: Iterable[Entry] = ()) -> None:
        self.engine = engine
        self.model = model
        self.strip = Strip()
        self.rates = Rates()
        self._entries: dict[str, Entry] = {entry.state.id: entry for entry in entries}
        self._log: deque[list[Any]] = deque(maxlen=LOG)
        self._news = News()
        self._usage: Usage | None = None
        self._head: Decision | None = None

    def add(self, number: int, state: RequestState, prompt: str) -> None:
        """A request was submitted just now."""
        self._entries[state.id] = Entry(number, state, prompt, self.model.text(), time.perf_counter())
        self._drop_old()

    def hear(self, record: StepRecord, step_seconds: float) -> None:
        """Take in what the engine did; called with the engine at rest."""
        now = time.perf_counter()
        self.strip.add(record, self.number_of)
        for event in (*record.before, *record.plan.decisions.spelled, *record.after):
            if self._news.has(event.code, event.request_id, event.detail):
                self._log.append([event.step, self.number_of(event.request_id), str(event.code), dict(event.detail)])
        if not record.plan.is_empty:
            self._usage = record.usage
            self.rates.step(now, step_seconds, len(record.plan.sampling))
            self._head = next((d for d in record.plan.decisions.spelled if d.code not in HAPPENED), None)
        for seq_id in record.plan.sampling:
            entry = self._entries[seq_id.rpartition("/")[0]]
            self.rates.token(now, entry.submitted, entry.times)
            entry.times.append(now)
        if record.after or record.before:
            self._drop_old()

    def number_of(self, request_id: str) -> int:
        """The running number of a request."""
        entry = self._entries.get(request_id)
        return entry.number if entry is not None else int(request_id)

    def entries(self) -> list[Entry]:
        """All that run or wait and the last finished, newest last."""
        return sorted(self._entries.values(), key=lambda entry: entry.number)

    def frame(self) -> dict[str, Any]:
        """Everything of the page that comes from the engine; called with the engine at rest."""
        config = self.engine.config
        return {
            "engine": {
                "slots": config.max_num_seqs,
                "num_blocks": config.num_blocks,
                "block_size": config.block_size,
                "policy": config.policy,
                "max_model_len": config.max_model_len,
            },
            "step": self.strip.step,
            "window": self.strip.window,
            "segs": [value for segment in self.strip.segments for value in segment],
            "notches": [value for notch in self.strip.notches for value in notch],
            "requests": [entry.tell() for entry in self.entries()],
            "blocks": self._blocks(),
            "usage": self._usage_told(),
            "queue": self._queue(),
            "log": list(self._log),
            "rates": self.rates.tell(time.perf_counter()),
        }

    def _blocks(self) -> list[int]:
        """Per block: the request's number (−1 if it is free), token slots filled, tables that hold it."""
        size, pool = self.engine.config.block_size, self.engine.pool
        flat = [-1, 0, 0] * pool.num_blocks
        for seq in self.engine.scheduler.running:
            for i, block in enumerate(seq.block_table):
                filled = min(size, max(0, seq.num_computed_tokens - i * size))
                flat[3 * block : 3 * block + 3] = self.number_of(seq.request_id), filled, pool.ref(block)
        return flat

    def _usage_told(self) -> dict[str, int]:
        """The pool at the last step's forward; all free before the first and once nothing is left."""
        usage, slots = self._usage, self.engine.config.num_blocks * self.engine.config.block_size
        parts = {part: getattr(usage, part, 0) for part in PARTS}
        if usage is None or not self.engine.scheduler.running:
            parts = {**dict.fromkeys(parts, 0), "free": slots}
        return {**parts, "pool_slots": slots}

    def _queue(self) -> dict[str, Any]:
        """Who is next and why it waits (code None: it came after the last step), and who stands behind."""
        waiting = [seq.id.rpartition("/")[0] for seq in self.engine.scheduler.waiting]
        waiting += self.engine.future_requests
        if not waiting:
            return {"head": None, "behind": []}
        numbers = [self.number_of(request_id) for request_id in waiting]
        why = self._head if self._head is not None and self._head.request_id == waiting[0] else None
        head = {
            "number": numbers[0],
            "code": str(why.code) if why else None,
            "detail": dict(why.detail) if why else {},
        }
        return {"head": head, "behind": numbers[1:]}

    def _drop_old(self) -> None:
        over = [entry for entry in self._entries.values() if entry.is_over]
        if len(over) > FINISHED:
            over.sort(key=lambda entry: (entry.times[-1] if entry.times else entry.submitted, entry.number))
            for entry in over[:-FINISHED]:
                del self._entries[entry.state.id]
