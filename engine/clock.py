"""Clocks: what a step costs. Steps, real seconds, or a roofline of the anchor model on one H100 (derived).

A clock has `now`, the time at which the next step starts, and `step`, that step's number; `advance(plan)` is called
after the step ran. `jump(time)` skips an idle gap. Arrivals, and every
latency the engine reports, are in the clock's `unit`.
"""

from __future__ import annotations

import math
import time
from typing import Protocol

from engine.plan import StepPlan


class Clock(Protocol):
    """A time line for one engine."""

    unit: str

    @property
    def now(self) -> float:
        """When the next step starts."""
        ...

    @property
    def step(self) -> int:
        """The next step's number, from 0."""
        ...

    def advance(self, plan: StepPlan) -> None:
        """One step has run."""
        ...

    def jump(self, until: float) -> None:
        """Nothing to do before `until`."""
        ...


class StepClock:
    """Time is the number of the step, from 0; an idle gap jumps to the first whole step at or after the arrival."""

    unit = "steps"

    def __init__(self) -> None:
        self.step = 0

    @property
    def now(self) -> float:
        return self.step

    def advance(self, plan: StepPlan) -> None:
        self.step += 1

    def jump(self, until: float) -> None:
        self.step = max(self.step, math.ceil(until))


class WallClock:
    """Real seconds since the clock was made; idle gaps are slept through."""

    unit = "seconds"

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.step = 0

    @property
    def now(self) -> float:
        return time.perf_counter() - self._start

    def advance(self, plan: StepPlan) -> None:
        self.step += 1

    def jump(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now))


class RooflineClock:
    """Seconds a step would take at least on the anchor: weights once, every KV cell and state of the batch, or the
    arithmetic, whichever is longer (`engine.anchor.step_seconds`). Derived, not measured."""

    unit = "seconds"

    def __init__(self) -> None:
        from engine.anchor import step_seconds

        self._step_seconds = step_seconds
        self.now: float = 0.0
        self.step = 0

    def advance(self, plan: StepPlan) -> None:
        self.step += 1
        context = sum(plan.num_computed_tokens[s] + n for s, n in plan.num_scheduled_tokens.items())
        self.now += self._step_seconds(
            num_sequences=len(plan.num_scheduled_tokens), context_tokens=context, new_tokens=plan.num_tokens
        )

    def jump(self, until: float) -> None:
        self.now = max(self.now, until)


def make_clock(name: str) -> Clock:
    """The clock of that name: `step`, `wall` or `anchor`."""
    return {"step": StepClock, "wall": WallClock, "anchor": RooflineClock}[name]()
