"""The scheduler: what enters this step?

There is no prefill phase and no decode phase. Each sequence has computed tokens chasing known tokens, and a step gives
each of them some number of tokens under a budget (the rule of vLLM v1). Chunked prefill, mixed steps and resumption
after preemption are then one case. `schedule` makes a `StepPlan`, a runner executes it, `commit` books the result:

    plan = scheduler.schedule(step)
    sampled = runner.run(plan)
    events = scheduler.commit(plan, sampled, time)
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.kv import KVManager, Obstacle
from engine.plan import Code, Decision, Decisions, StepPlan, slots_of
from engine.policies import make_policy
from engine.request import Sequence, Status
from engine.runner import Sampled
from engine.waiting import WaitingQueue


@dataclass
class Draft:
    """A plan in the making: tokens per sequence, the budget left, decisions so far."""

    step: int
    budget: float
    tokens: dict[Sequence, int] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    obstacle: Obstacle | None = None
    preempted: bool = False

    def decide(self, code: Code, seq: Sequence, **detail: object) -> None:
        self.decisions.append(Decision(code, seq.request_id, seq.id, self.step, detail))


class Scheduler:
    """Waiting and running sequences over one KV manager.

    Attributes:
        waiting: the queue, head first.
        running: admitted sequences in order of admission.
        more_to_come: True while requests are known to arrive later (static batching waits for them).
        preemptions: how often a sequence was preempted.
        recomputed_tokens: KV tokens dropped by preemption.
    """

    def __init__(self, config: EngineConfig, kv: KVManager) -> None:
        self.config = config
        self.kv = kv
        self.policy = make_policy(config.policy)
        self.waiting = WaitingQueue(config.order)
        self.running: list[Sequence] = []
        self.more_to_come = False
        self.preemptions = 0
        self.recomputed_tokens = 0
        self._free_slots = list(range(config.max_num_seqs))
        self._admissions = 0

    def schedule(self, step: int) -> StepPlan:
        """Plan one step; an empty plan if nothing can run now."""
        draft = Draft(step, self.config.max_num_batched_tokens or float("inf"))
        self.policy.fill(self, draft)
        return self._freeze(draft)

    def grow(self, draft: Draft, sequences: Iterable[Sequence]) -> None:
        """Give running sequences, in order of admission, what they lack; out of blocks, preempt."""
        for seq in list(sequences):
            while seq.status is Status.RUNNING:
                num_tokens = int(min(seq.num_missing_tokens, draft.budget))
                if num_tokens == 0:
                    break
                if self.kv.allocate(seq, num_tokens) is not None:
                    draft.tokens[seq] = num_tokens
                    draft.budget -= num_tokens
                    break
                self._preempt(self._victim(), by=seq, draft=draft)

    def admit(self, draft: Draft) -> None:
        """Let the queue in from its head until somebody cannot enter."""
        promised = sum(self.kv.lacking(seq) for seq in self.running)
        while (seq := self.waiting.head) is not None:
            draft.obstacle = self._obstacle(seq, draft, promised)
            if draft.obstacle is not None:
                return
            num_tokens = int(min(seq.num_missing_tokens, draft.budget))
            blocks = self.kv.allocate(seq, num_tokens)
            if blocks is None:
                raise RuntimeError(f"the manager found room for {seq.id} and then had none")
            self.waiting.pop()
            code = Code.RESUMED if seq.status is Status.PREEMPTED else Code.ADMITTED
            seq.status, seq.slot, seq.admitted_at = Status.RUNNING, heapq.heappop(self._free_slots), self._admissions
            self._admissions += 1
            self.running.append(seq)
            draft.tokens[seq] = num_tokens
            draft.budget -= num_tokens
            promised += self.kv.lacking(seq)
            draft.decide(code, seq, slot=seq.slot, tokens=num_tokens, blocks=len(blocks))

    def commit(self, plan: StepPlan, sampled: Mapping[str, Sampled], time: float) -> list[Decision]:
        """Book a step that ran: KV computed, tokens sampled, finished sequences gone with their blocks.

        Args:
            sampled: one result per entry of `plan.sampling`.
            time: the end of the step on the engine's clock.
        """
        events: list[Decision] = []
        for seq in self.running:
            num_tokens = plan.num_scheduled_tokens.get(seq.id)
            if num_tokens is None:
                continue
            seq.num_computed_tokens += num_tokens
            if seq.id in plan.sampling:
                result = sampled[seq.id]
                seq.token_ids.append(result.token_id)
                seq.output_times.append(time)
                reason = self._finish_reason(seq, result)
                if reason is not None:
                    slot = seq.slot
                    self.end(seq, Status.FINISHED, reason)
                    detail = {"reason": reason, "tokens": seq.num_output_tokens, "slot": slot}
                    events.append(Decision(Code.FINISHED, seq.request_id, seq.id, plan.step, detail))
        if events:
            self.running = [seq for seq in self.running if seq.status is Status.RUNNING]
        return events

    def end(self, seq: Sequence, status: Status, reason: str | None) -> None:
        """Give a running sequence's blocks and slot back; the caller takes it off its list."""
        self.kv.free(seq)
        if seq.slot is not None:
            heapq.heappush(self._free_slots, seq.slot)
        seq.slot, seq.status, seq.finish_reason = None, status, reason

    def remove(self, seq: Sequence, status: Status, reason: str) -> None:
        """End a sequence from outside, wherever it is: waiting, preempted or running."""
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self.end(seq, status, reason)

    def _obstacle(self, seq: Sequence, draft: Draft, promised: int) -> Obstacle | None:
        """The first reason why the head of the queue cannot enter, None if it can."""
        if draft.preempted:
            return Obstacle(Code.NO_BLOCKS, {"needed": self.kv.lacking(seq), "free": self.kv.pool.num_free})
        if not self._free_slots:
            return Obstacle(Code.SLOTS, {"slots": self.config.max_num_seqs})
        if draft.budget < 1:
            return Obstacle(Code.BUDGET, {"budget": self.config.max_num_batched_tokens})
        return self.kv.obstacle(seq, promised, self.config.watermark_blocks if self.running else 0)

    def _victim(self) -> Sequence:
        """Who is preempted next, by the rule of the configuration."""
        rule = self.config.victim_rule
        if rule == "priority":
            return max(self.running, key=lambda seq: (seq.request.priority, seq.order, seq.id))
        if rule == "fewest_blocks":
            return min(self.running, key=lambda seq: (len(seq.block_table), -seq.admitted_at))
        return self.running[-1]

    def _preempt(self, victim: Sequence, *, by: Sequence, draft: Draft) -> None:
        """Drop a sequence's KV and send it back to the queue; it keeps its reply so far."""
        draft.budget += draft.tokens.pop(victim, 0)
        draft.preempted = True
        draft.decide(Code.PREEMPTED_BY, victim, by=by.request_id, tokens_lost=victim.num_computed_tokens)
        self.preemptions += 1
        self.recomputed_tokens += victim.num_computed_tokens
        self.running.remove(victim)
        self.end(victim, Status.PREEMPTED, None)
        victim.num_computed_tokens = 0
        self.waiting.push_front(victim)

    @staticmethod
    def _finish_reason(seq: Sequence, result: Sampled) -> str | None:
        """Why the reply ends with this token, None if it goes on."""
        params = seq.request.params
        if result.token_id in params.stop_token_ids or (result.is_eos and not params.ignore_eos):
            return "stop"
        if seq.num_output_tokens >= params.max_tokens:
            return "length"
        return "stop" if seq.num_output_tokens >= seq.request.reply_len else None

    def _freeze(self, draft: Draft) -> StepPlan:
        """The draft as a plan, with the waiting codes as they stand at the end."""
        head = self.waiting.head
        if head is not None:
            obstacle = self._obstacle(head, draft, 0) if draft.preempted else draft.obstacle
            if obstacle is not None:
                draft.decide(obstacle.code, head, **obstacle.detail)
        size = self.kv.block_size
        tokens = draft.tokens
        return StepPlan(
            step=draft.step,
            block_size=size,
            num_blocks=self.kv.pool.num_blocks,
            num_scheduled_tokens={seq.id: n for seq, n in tokens.items()},
            num_computed_tokens={seq.id: seq.num_computed_tokens for seq in tokens},
            token_ids={
                seq.id: tuple(seq.token_ids[seq.num_computed_tokens : seq.num_computed_tokens + n])
                for seq, n in tokens.items()
            },
            block_tables={seq.id: tuple(seq.block_table) for seq in tokens},
            slot_mapping={
                seq.id: slots_of(seq.block_table, seq.num_computed_tokens, n, size) for seq, n in tokens.items()
            },
            sampling={seq.id: seq.request.params for seq, n in tokens.items() if n == seq.num_missing_tokens},
            decisions=Decisions(draft.step, draft.decisions, self.waiting.behind_head()),
        )
