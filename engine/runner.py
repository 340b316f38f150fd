"""`Runner`: who executes a plan. Here the protocol, and `CountingRunner`, which executes nothing.

A runner gets a `StepPlan` and returns one `Sampled` for every entry of `plan.sampling`; it never sees a scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from engine.plan import StepPlan


class Sampled(NamedTuple):
    """A row's result: the token and its natural log-probability."""

    token_id: int
    logprob: float = 0.0


class Runner(Protocol):
    """Executes plans."""

    def run(self, plan: StepPlan) -> Mapping[str, Sampled]:
        """Compute the scheduled tokens and sample where the plan says so: {sequence id: result}."""
        ...


class CountingRunner:
    """No model: every sampled token is 0, and replies end at the length their request says.

    Enough to count steps, slots and blocks exactly; a scheduler cannot tell it from a model.
    """

    def run(self, plan: StepPlan) -> dict[str, Sampled]:
        return dict.fromkeys(plan.sampling, Sampled(0))
