"""What a run adds up to: counters kept step by step, and the report of `simulate`.

useful cell    a slot × step in which an output token was sampled
utilisation    useful cells ÷ (B × steps)
live share     live token slots ÷ pool slots, averaged over steps
ttft           end of the first token's step − arrival
tpot           (last token − first token) ÷ (tokens − 1), one-token replies left out, waits by preemption included
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from engine.request import RequestState
from engine.usage import PARTS, Usage


@dataclass
class Metrics:
    """Counters of one engine.

    Attributes:
        steps: forwards with at least one token.
        useful_cells: output tokens sampled.
        preemptions: how often a sequence was preempted.
        recomputed_tokens: KV tokens dropped by preemption and not found again.
        prefix_hits: tokens found in the prefix index, at first admission and on resuming.
        bytes_swapped: bytes moved between the pool and the host.
        peak_blocks: most blocks held at a forward.
    """

    steps: int = 0
    useful_cells: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    prefix_hits: dict[str, int] = field(default_factory=lambda: {"first": 0, "resumed": 0})
    bytes_swapped: int = 0
    peak_blocks: int = 0
    _sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*PARTS, "held_blocks"), 0))
    _saturated_steps: int = 0
    _saturated_live: int = 0

    def count(self, usage: Usage, sampled: int, somebody_waits: bool) -> None:
        """Add one step."""
        self.steps += 1
        self.useful_cells += sampled
        self.peak_blocks = max(self.peak_blocks, usage.held_blocks)
        for part in self._sums:
            self._sums[part] += getattr(usage, part)
        if somebody_waits:
            self._saturated_steps += 1
            self._saturated_live += usage.live

    def utilisation(self, slots: int) -> float:
        """Useful cells ÷ (B × steps), 0 without steps."""
        return self.useful_cells / (slots * self.steps) if self.steps else 0.0

    def kv(self, num_blocks: int, block_size: int) -> dict[str, Any]:
        """The pool's five parts averaged over steps, in token slots, and the shares made of them."""
        pool_slots, steps = num_blocks * block_size, max(self.steps, 1)
        saturated = self._saturated_live / self._saturated_steps / pool_slots if self._saturated_steps else None
        return {
            "pool_slots": pool_slots,
            **{part: self._sums[part] / steps for part in PARTS},
            "peak_blocks": self.peak_blocks,
            "live_share": self._sums["live"] / steps / pool_slots,
            "live_share_saturated": saturated,
            "block_share": self._sums["held_blocks"] / steps / num_blocks,
        }


def latencies(requests: Iterable[RequestState], unit: str) -> dict[str, dict[str, Any]]:
    """`ttft` and `tpot` over every reply that has tokens, in the clock's unit."""
    ttft: list[float] = []
    tpot: list[float] = []
    for state in requests:
        for seq in state.sequences:
            times = seq.output_times
            if times:
                ttft.append(times[0] - state.arrival)
            if len(times) > 1:
                tpot.append((times[-1] - times[0]) / (len(times) - 1))
    return {"ttft": summary(ttft, unit), "tpot": summary(tpot, f"{unit}/token")}


def summary(values: list[float], unit: str) -> dict[str, Any]:
    """Mean, median, 95th percentile (linear between ranks) and maximum; None where there is no value."""
    ranked = sorted(values)
    if not ranked:
        return {"mean": None, "p50": None, "p95": None, "max": None, "unit": unit}
    return {
        "mean": fmean(ranked),
        "p50": percentile(ranked, 0.5),
        "p95": percentile(ranked, 0.95),
        "max": ranked[-1],
        "unit": unit,
    }


def percentile(ranked: list[float], share: float) -> float:
    """The value at `share` of a sorted list, linear between neighbours (numpy's default)."""
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)
