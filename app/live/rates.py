"""`Rates`: what is read off a clock while an engine runs. Times are `time.perf_counter` seconds.

tokens_per_second   tokens sampled in the last five seconds ÷ 5, or ÷ the time since the first if that is shorter
ttft                first token − submit, median of the last replies that began
itl                 gap between two tokens of one reply, waits by preemption included, median of the last gaps
step                time inside a step, median of the last steps
history             tokens of each of the last 60 whole seconds, oldest first, none from before the first token
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Any

SPAN = 60
RECENT = 5.0


class Rates:
    """Measured while it runs; all None before the first token."""

    def __init__(self) -> None:
        self._ttft: deque[float] = deque(maxlen=20)
        self._gaps: deque[float] = deque(maxlen=200)
        self._steps: deque[float] = deque(maxlen=60)
        self._sampled: deque[tuple[float, int]] = deque()
        self._first: float | None = None
        self._last: float | None = None
        self._seconds: dict[int, int] = {}

    def step(self, now: float, seconds: float, tokens: int) -> None:
        """A step of so many seconds ended and sampled so many tokens."""
        self._steps.append(seconds)
        if not tokens:
            return
        if self._first is None:
            self._first = now - seconds
        self._last = now
        self._sampled.append((now, tokens))
        while self._sampled[0][0] < now - RECENT:
            self._sampled.popleft()
        second = math.floor(now)
        self._seconds[second] = self._seconds.get(second, 0) + tokens
        for old in [s for s in self._seconds if s < second - SPAN]:
            del self._seconds[old]

    def token(self, now: float, submitted: float, times: list[float]) -> None:
        """A reply got a token; `times` are those of its tokens before."""
        if times:
            self._gaps.append(now - times[-1])
        else:
            self._ttft.append(now - submitted)

    def tell(self, now: float) -> dict[str, Any]:
        """As it goes over the wire."""
        rate, history = None, []
        if self._first is not None:
            recent = sum(tokens for time, tokens in self._sampled if time > now - RECENT)
            rate = recent / min(RECENT, max(now - self._first, 1e-9))
            end = math.floor(now)
            begin = max(end - SPAN, math.floor(self._first))
            history = [self._seconds.get(second, 0) for second in range(begin, end)]
        return {
            "tokens_per_second": rate if rate is None else round(rate, 1),
            "ttft_ms": in_ms(self._ttft),
            "itl_ms": in_ms(self._gaps),
            "step_ms": in_ms(self._steps),
            "history": history,
        }

    def seconds_to_change(self, now: float) -> float | None:
        """When `tell` changes by time alone; None once the last minute is empty."""
        if self._last is None or math.floor(self._last) < math.floor(now) - SPAN:
            return None
        return math.floor(now) + 1 - now


def in_ms(seconds: Iterable[float]) -> float | None:
    """The median in milliseconds, None of nothing."""
    values = list(seconds)
    return round(median(values) * 1000, 3) if values else None
