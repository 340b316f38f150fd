"""The three batching policies, each a few lines over the scheduler's two moves, `grow` and `admit`.

Continuous    iteration-level scheduling (Orca; Yu et al., OSDI 2022) with chunked prefill, as vLLM v1 does it
Static        a batch starts together and ends together
PrefillFirst  prompts before replies; a step holds one kind only
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from engine.kv import Obstacle
from engine.plan import Code

if TYPE_CHECKING:
    from engine.scheduler import Draft, Scheduler


class Policy(Protocol):
    """Who may enter a step."""

    def fill(self, scheduler: Scheduler, draft: Draft) -> None:
        """Plan tokens for this step into the draft."""
        ...


class Continuous:
    """Running sequences first, then whoever fits, at every step."""

    def fill(self, scheduler: Scheduler, draft: Draft) -> None:
        scheduler.grow(draft, scheduler.running)
        scheduler.admit(draft)


class PrefillFirst:
    """Prefill only while anybody can be admitted or is mid-prompt, otherwise decode only."""

    def fill(self, scheduler: Scheduler, draft: Draft) -> None:
        scheduler.grow(draft, [seq for seq in scheduler.running if seq.is_prefilling])
        scheduler.admit(draft)
        if not draft.tokens:
            scheduler.grow(draft, scheduler.running)


class Static:
    """Admits only when nothing runs, and only when B wait or nobody else will come."""

    def fill(self, scheduler: Scheduler, draft: Draft) -> None:
        if scheduler.running:
            scheduler.grow(draft, scheduler.running)
        elif self._is_full(scheduler) or not scheduler.more_to_come:
            scheduler.admit(draft)
            return
        waiting = len(scheduler.waiting)
        draft.obstacle = Obstacle(Code.WAIT_BATCH, {"running": len(scheduler.running), "waiting": waiting})

    @staticmethod
    def _is_full(scheduler: Scheduler) -> bool:
        """Whether those who wait, with all their branches, take every slot."""
        seats = accumulate(1 + seq.branches_due for seq in scheduler.waiting)
        return any(taken >= scheduler.config.max_num_seqs for taken in seats)


def make_policy(name: str) -> Policy:
    """The policy of that name."""
    return {"continuous": Continuous, "static": Static, "prefill_first": PrefillFirst}[name]()
