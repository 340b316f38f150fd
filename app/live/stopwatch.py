"""`Stopwatch`: when one visitor's requests came, began and went on, in real seconds, pauses and pace included.

seconds   first request in to last token so far
ttft      first token − arrival; one that arrives at a later step arrives when that step begins
itl       gap between two tokens of one reply
step      time inside a step
"""

from __future__ import annotations

import time
from typing import Any

from app.live.rates import in_ms
from engine.engine import StepRecord


class Stopwatch:
    """Started when the requests are handed in.

    Args:
        arrivals: the arrival of each request, in steps, by request id.
    """

    def __init__(self, arrivals: dict[str, float]) -> None:
        self._start = self._end = time.perf_counter()
        self._to_come = sorted(((arrival, rid) for rid, arrival in arrivals.items() if arrival > 0), reverse=True)
        self._came = {rid: self._start for rid, arrival in arrivals.items() if arrival <= 0}
        self._last: dict[str, float] = {}
        self._ttft: list[float] = []
        self._gaps: list[float] = []
        self._steps: list[float] = []
        self.tokens = 0

    def step(self, record: StepRecord, seconds: float) -> None:
        """A step ended just now and took so many seconds."""
        now = self._end = time.perf_counter()
        self._steps.append(seconds)
        while self._to_come and self._to_come[-1][0] <= record.step:
            self._came[self._to_come.pop()[1]] = now - seconds
        for seq_id in record.plan.sampling:
            rid = seq_id.rpartition("/")[0]
            if rid in self._last:
                self._gaps.append(now - self._last[rid])
            else:
                self._ttft.append(now - self._came[rid])
            self._last[rid] = now
        self.tokens += len(record.plan.sampling)

    def tell(self) -> dict[str, Any]:
        """As it goes over the wire; medians are None of nothing."""
        seconds = self._end - self._start
        return {
            "seconds": round(seconds, 3),
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / seconds, 1) if self.tokens and seconds > 0 else None,
            "ttft_ms": in_ms(self._ttft),
            "itl_ms": in_ms(self._gaps),
            "step_ms": in_ms(self._steps),
        }
