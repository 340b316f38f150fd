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

from engine.beam import Beam, Beams
from engine.config import EngineConfig
from engine.host import HostTier
from engine.kv import KVManager, Obstacle
from engine.plan import Code, Decision, Decisions, StepPlan, slots_of
from engine.policies import make_policy
from engine.request import SamplingParams, Sequence, Status
from engine.runner import Sampled
from engine.waiting import WaitingQueue


@dataclass
class Draft:
    """A plan in the making: tokens per sequence, the budget left, decisions so far."""

    step: int
    budget: float
    tokens: dict[Sequence, int] = field(default_factory=dict)
    copies: dict[Sequence, tuple[int, int]] = field(default_factory=dict)
    swap_out: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    swap_in: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
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
        recomputed_tokens: KV tokens dropped by preemption and not found again in a prefix index.
        prefix_hits: tokens found in the prefix index, at first admission and on resuming.
        born: branches that began with the last commit.
        died: beams that nobody goes on with since the last commit.
        regrouped: (beam, the beam it leaves, its new token) of the last commit.
    """

    def __init__(self, config: EngineConfig, kv: KVManager, host: HostTier | None = None) -> None:
        self.config = config
        self.kv = kv
        self.host = host if host is not None else HostTier(0, 0, 0)
        self.policy = make_policy(config.policy)
        self.waiting = WaitingQueue(config.order)
        self.running: list[Sequence] = []
        self.more_to_come = False
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.prefix_hits = {"first": 0, "resumed": 0}
        self.born: list[Sequence] = []
        self.died: list[Sequence] = []
        self.regrouped: list[tuple[str, str, int]] = []
        self._searches: dict[str, Beams] = {}
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
                    self._write_down(seq, draft)
                    draft.tokens[seq] = num_tokens
                    draft.budget -= num_tokens
                    break
                victim = self._victim()
                whole = [victim, *self._mates(victim, self.running)] if victim.is_beam else [victim]
                for each in sorted(whole, key=lambda s: s.branch, reverse=True):
                    self._preempt(each, by=seq, draft=draft)

    def admit(self, draft: Draft) -> None:
        """Let the queue in from its head until somebody cannot enter."""
        promised = self.kv.promised(self.running)
        while (seq := self.waiting.head) is not None:
            mates = self._mates(seq, self.waiting) if seq.is_beam else []
            along = sum(self.kv.lacking(mate) for mate in mates)
            draft.obstacle = self._obstacle(seq, draft, promised + along, slots=1 + seq.branches_due + len(mates))
            if draft.obstacle is not None:
                return
            self.waiting.pop()
            self._enter(seq, draft)
            for mate in mates:  # beams come back together, whatever budget is left
                self.waiting.remove(mate)
                self._enter(mate, draft)
            promised = self.kv.promised(self.running) if mates else promised + self.kv.lacking(seq)

    def _enter(self, seq: Sequence, draft: Draft) -> None:
        """Give a sequence that has left the queue its slots, its blocks and what is left of the budget."""
        code = Code.ADMITTED if seq.status is Status.WAITING else Code.RESUMED
        if seq.host_table:
            self._swap_in(seq, draft)
        else:
            self._look_up(seq, draft)
        num_tokens = int(min(seq.num_missing_tokens, draft.budget))
        blocks = self.kv.allocate(seq, num_tokens)
        if blocks is None:
            raise RuntimeError(f"the manager found room for {seq.id} and then had none")
        seq.status, seq.slot, seq.admitted_at = Status.RUNNING, heapq.heappop(self._free_slots), self._admissions
        seq.spare_slots = [heapq.heappop(self._free_slots) for _ in range(seq.branches_due)]
        self._admissions += 1
        self.running.append(seq)
        if num_tokens:
            draft.tokens[seq] = num_tokens
            draft.budget -= num_tokens
        draft.decide(code, seq, slot=seq.slot, tokens=num_tokens, blocks=len(blocks))
        self._write_down(seq, draft)

    def commit(self, plan: StepPlan, sampled: Mapping[str, Sampled], time: float) -> list[Decision]:
        """Book a step that ran: KV computed, tokens sampled, branches begun, finished ones gone with their blocks.

        Args:
            sampled: one result per entry of `plan.sampling`.
            time: the end of the step on the engine's clock.
        """
        events: list[Decision] = []
        self.born = []
        running: list[Sequence] = []
        for seq in self.running:
            num_tokens = plan.num_scheduled_tokens.get(seq.id)
            family = [seq]
            if num_tokens is not None:
                seq.num_computed_tokens += num_tokens
                self.kv.publish(seq)
                if seq.id in plan.sampling and seq.is_beam:
                    seq.offer = sampled[seq.id]
                elif seq.id in plan.sampling:
                    family += self._fork(seq, plan.step, events)
            running += family
        self.running = running
        self.regrouped, self.died = [], []
        for beams in self._complete_beams():
            self._advance(beams, plan.step, time, events)
        running = self.running
        for seq in running:
            if seq.id in plan.sampling and not seq.is_beam:
                seq.token_ids.append(sampled[seq.id].token_id)
                seq.output_times.append(time)
        for seq in running:
            drawn = seq.id in plan.sampling and not seq.is_beam
            reason = self._finish_reason(seq, sampled[seq.id]) if drawn else None
            if reason is not None:
                slot = seq.slot
                self.end(seq, Status.FINISHED, reason)
                detail = {"reason": reason, "tokens": seq.num_output_tokens, "slot": slot}
                events.append(Decision(Code.FINISHED, seq.request_id, seq.id, plan.step, detail))
        self.running = [seq for seq in running if seq.status is Status.RUNNING]
        return events

    def end(self, seq: Sequence, status: Status, reason: str | None) -> None:
        """Give a sequence's blocks and slots back; the caller takes it off its list."""
        self.kv.free(seq)
        if status.is_final and seq.host_table:
            self.host.release(seq.host_table)
            seq.host_table = []
        for slot in (*([] if seq.slot is None else [seq.slot]), *seq.spare_slots):
            heapq.heappush(self._free_slots, slot)
        seq.slot, seq.spare_slots, seq.status, seq.finish_reason = None, [], status, reason
        if status is not Status.SWAPPED:
            seq.offer = None
        if status.is_final:
            self._searches.pop(seq.request_id, None)

    def remove(self, seq: Sequence, status: Status, reason: str) -> None:
        """End a sequence from outside, wherever it is: waiting, preempted or running."""
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self.end(seq, status, reason)

    def _obstacle(self, seq: Sequence, draft: Draft, promised: int, slots: int = 1) -> Obstacle | None:
        """The first reason why the head of the queue cannot enter, None if it can; it takes so many slots."""
        if draft.preempted:
            return Obstacle(Code.NO_BLOCKS, {"needed": self.kv.lacking(seq), "free": self.kv.pool.num_free})
        if len(self._free_slots) < slots:
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
            return min(reversed(self.running), key=lambda seq: (len(seq.block_table), -seq.admitted_at))
        return self.running[-1]

    def _preempt(self, victim: Sequence, *, by: Sequence, draft: Draft) -> None:
        """Move a sequence's KV to the host or drop it, and send it back to the queue; it keeps its reply so far."""
        draft.budget += draft.tokens.pop(victim, 0)
        draft.preempted = True
        pending = draft.copies.pop(victim, None)
        swapped = self.config.preempt == "swap" and self._swap_out(victim, pending, draft)
        lost = 0 if swapped else victim.num_computed_tokens
        draft.decide(Code.PREEMPTED_BY, victim, by=by.request_id, tokens_lost=lost)
        self.preemptions += 1
        self.recomputed_tokens += lost
        self.running.remove(victim)
        self.end(victim, Status.SWAPPED if swapped else Status.PREEMPTED, None)
        if not swapped:
            victim.dropped_tokens, victim.num_computed_tokens = lost, 0
        self.waiting.push_front(victim)

    def _swap_out(self, victim: Sequence, pending: tuple[int, int] | None, draft: Draft) -> bool:
        """Plan the victim's whole table out to the host; False, and nothing planned, if it does not fit there.

        Args:
            pending: a copy planned for it in this step and now dropped: its content is still in the source.
        """
        size = self.kv.block_size
        table = victim.block_table[: -(-victim.num_computed_tokens // size)]
        host = self.host.take(len(table))
        if host is None:
            draft.decide(Code.SWAP_FULL, victim, needed=len(table), free=self.host.num_free)
            return False
        if pending is not None:
            table = [pending[0] if block == pending[1] else block for block in table]
        victim.host_table = host
        self.host.moved_out(host)
        if host:
            draft.swap_out.append((victim.id, tuple(zip(table, host, strict=True))))
        draft.decide(Code.SWAP_OUT, victim, blocks=len(host), bytes=len(host) * self.host.block_bytes)
        return True

    def _swap_in(self, seq: Sequence, draft: Draft) -> None:
        """Take blocks for a swapped sequence's table and plan the move back."""
        host = seq.host_table
        blocks = self.kv.take(len(host))
        if blocks is None:
            raise RuntimeError(f"the manager found room for {seq.id} and then had none")
        seq.block_table, seq.host_table = blocks, []
        draft.swap_in.append((seq.id, tuple(zip(blocks, host, strict=True))))
        self.host.moved_in(host)
        self.host.release(host)
        draft.decide(Code.SWAP_IN, seq, blocks=len(host), bytes=len(host) * self.host.block_bytes)

    def _look_up(self, seq: Sequence, draft: Draft) -> None:
        """Begin a sequence's table with what the prefix index finds, and say what that was."""
        match = self.kv.attach(seq)
        if match is None:
            return
        lookup = "first" if seq.status is Status.WAITING else "resumed"
        tokens = seq.num_computed_tokens
        self.prefix_hits[lookup] += tokens
        self.recomputed_tokens -= min(tokens, seq.dropped_tokens)
        seq.dropped_tokens = 0
        if match.blocks:
            draft.decide(Code.HIT, seq, blocks=len(match.blocks), tokens=tokens, lookup=lookup)
        draft.decide(Code.MISS_AT_BLOCK, seq, block=match.stopped_at, why=match.why, lookup=lookup)

    def _write_down(self, seq: Sequence, draft: Draft) -> None:
        """Put the manager's notes on an allocation among the decisions, and its copy into the plan."""
        for note in self.kv.take_notes():
            draft.decide(note.code, seq, **note.detail)
            if note.code is Code.COW_COPY:
                draft.copies[seq] = (note.detail["source"], note.detail["destination"])

    def _fork(self, seq: Sequence, step: int, events: list[Decision]) -> list[Sequence]:
        """The branches that leave a sequence with its first token."""
        family = []
        for branch in range(1, seq.branches_due + 1):
            child = self._branch(seq, branch)
            self.kv.fork(seq, child)
            family.append(child)
            detail = {"parent": seq.id, "slot": child.slot, "blocks": len(child.block_table)}
            events.append(Decision(Code.FORKED, child.request_id, child.id, step, detail))
        return family

    @staticmethod
    def _mates(seq: Sequence, among: Iterable[Sequence]) -> list[Sequence]:
        """The other beams of a request, in branch order."""
        mates = (other for other in among if other.request_id == seq.request_id and other is not seq)
        return sorted(mates, key=lambda s: s.branch)

    def _complete_beams(self) -> list[list[Sequence]]:
        """The beams of every request all of whose beams have computed their candidates."""
        groups: dict[str, list[Sequence]] = {}
        for seq in self.running:
            if seq.is_beam:
                groups.setdefault(seq.request_id, []).append(seq)
        return [group for group in groups.values() if all(seq.offer is not None for seq in group)]

    def _advance(self, group: list[Sequence], step: int, time: float, events: list[Decision]) -> None:
        """One step of a beam search: tables fork and die, or the search is over."""
        first, params = group[0], group[0].request.params
        width = params.beam_width or 1
        search = self._searches.setdefault(first.request_id, Beams(width, first.request.reply_len))
        offers = [
            [c._replace(is_eos=c.is_eos and not params.ignore_eos) for c in seq.offer.candidates] if seq.offer else []
            for seq in group
        ]
        replies = [seq.output_token_ids for seq in group]
        beams = search.advance(replies, offers, ends=params.stop_token_ids)
        for seq in group:
            seq.offer = None
        if not search.over:
            self._regroup(group, beams, step, time, events)
            return
        del self._searches[first.request_id]
        self.running = [seq for seq in self.running if seq not in group]
        while len(group) < len(search.finished):  # it ended before it had spread
            group.append(self._branch(first, len(group)))
        self._retire(first, group[len(search.finished) :])
        for seq, done in zip(group, search.finished, strict=False):
            slot = seq.slot
            seq.token_ids = [*first.request.prompt_token_ids, *done.tokens]
            seq.output_times = [*seq.output_times, time]
            seq.score = done.score
            self.end(seq, Status.FINISHED, done.reason)
            detail = {"reason": done.reason, "tokens": len(done.tokens), "slot": slot}
            events.append(Decision(Code.FINISHED, seq.request_id, seq.id, step, detail))

    def _regroup(
        self, group: list[Sequence], beams: list[Beam], step: int, time: float, events: list[Decision]
    ) -> None:
        """Let the sequences of a request go on as these beams, best first, each in the blocks of its parent."""
        parents = [(list(seq.token_ids), list(seq.block_table), list(seq.output_times)) for seq in group]
        computed, ids = group[0].num_computed_tokens, [seq.id for seq in group]
        surplus, group = group[len(beams) :], group[: len(beams)]
        last = self.running.index(group[-1]) + 1
        fresh = [self._branch(group[0], branch) for branch in range(len(group), len(beams))]
        self.running[last:last] = fresh
        self.kv.regroup([*group, *fresh], [parents[beam.parent][1] for beam in beams])
        self._retire(group[0], surplus)
        seen: set[int] = set()
        for seq, beam in zip([*group, *fresh], beams, strict=True):
            tokens, _, times = parents[beam.parent]
            seq.token_ids, seq.output_times = [*tokens, beam.token], [*times, time]
            seq.num_computed_tokens, seq.score = computed, beam.score
            self.regrouped.append((seq.id, ids[beam.parent], beam.token))
            if beam.parent in seen:
                detail = {"parent": ids[beam.parent], "slot": seq.slot, "blocks": len(seq.block_table)}
                events.append(Decision(Code.FORKED, seq.request_id, seq.id, step, detail))
            seen.add(beam.parent)

    def _retire(self, first: Sequence, surplus: list[Sequence]) -> None:
        """Beams nobody goes on with: their slots stay with the request."""
        for seq in reversed(surplus):
            self.kv.free(seq)
            first.branches_due += 1
            if seq.slot is not None:
                first.spare_slots.insert(0, seq.slot)
            seq.slot, seq.status, seq.finish_reason = None, Status.FINISHED, "stop"
            self.died.append(seq)
        self.running = [seq for seq in self.running if seq not in surplus]

    def _branch(self, first: Sequence, branch: int) -> Sequence:
        """One more branch of a running request, in one of the slots kept for it."""
        child = Sequence(first.request, first.request_id, branch)
        child.status, child.order, child.admitted_at = Status.RUNNING, first.order, first.admitted_at
        child.slot = first.spare_slots.pop(0)
        first.branches_due -= 1
        self.born.append(child)
        return child

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
        sampling: dict[str, SamplingParams] = {}
        forks: dict[str, str] = {}
        for seq, n in tokens.items():
            if n == seq.num_missing_tokens:
                sampling[seq.id] = seq.request.params
                for branch in range(1, seq.branches_due + 1) if not seq.is_beam else ():
                    child = f"{seq.request_id}/{branch}"
                    sampling[child], forks[child] = seq.request.params, seq.id
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
            sampling=sampling,
            copies=tuple(draft.copies.values()),
            swap_out=tuple(draft.swap_out),
            swap_in=tuple(draft.swap_in),
            forks=forks,
            host_blocks=self.host.host_blocks,
            decisions=Decisions(draft.step, draft.decisions, self.waiting.behind_head()),
        )
