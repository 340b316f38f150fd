"""`Engine`: scheduler, runner and clock, turned step by step.

    submit → [arrive → schedule → run → commit → record]* → None when nothing is left

The engine owns the requests and their states; the scheduler owns who runs, the manager owns the blocks, the runner the
numbers. Everything a page shows is read off the `StepRecord`s this makes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.check import check_engine
from engine.clock import Clock, StepClock
from engine.config import EngineConfig
from engine.errors import CapacityError, InvariantError, ValidationError
from engine.host import HostTier
from engine.kv import make_kv_manager
from engine.metrics import Metrics
from engine.plan import Code, Decision, StepPlan
from engine.request import Request, RequestState, Sequence, Status
from engine.runner import CountingRunner, Limits, Runner, Sampled
from engine.scheduler import Scheduler
from engine.trace import Trace
from engine.usage import Usage

ANCHOR_KV_BYTES_PER_TOKEN = 65_536
"""KV bytes of one token of the anchor model (`engine.anchor`), the price of swapping where no model runs."""


@dataclass(frozen=True)
class StepRecord:
    """What one step was.

    Attributes:
        plan: what ran.
        before: refusals, aborts and endings since the step before.
        after: who finished in this step.
        usage: the pool at the forward.
        start, end: on the engine's clock.
        waiting: sequences that still wait after the admissions.
    """

    plan: StepPlan
    before: tuple[Decision, ...]
    after: tuple[Decision, ...]
    usage: Usage
    start: float
    end: float
    waiting: int

    @property
    def step(self) -> int:
        """The step's number; it jumps over idle gaps."""
        return self.plan.step

    @property
    def events(self) -> tuple[Decision, ...]:
        """Everything that happened: what came before, the plan's decisions, who finished."""
        return (*self.before, *self.plan.decisions, *self.after)


class Engine:
    """One engine.

    Args:
        config: how it schedules and stores.
        runner: who executes the plans; counting by default.
        clock: what a step costs; steps by default.
        keep_trace: record every step in `trace` (memory grows with the run).

    Attributes:
        requests: every request submitted, by id.
        pool: the block pool.
        host: swap space. A block's bytes are the runner's `kv_bytes_per_token`, or the anchor model's without one.
        metrics: counters.
        trace: the record of the run.
        is_open: True while more requests may be submitted from outside; a static batch then waits to be full.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner | None = None,
        clock: Clock | None = None,
        *,
        keep_trace: bool = True,
    ) -> None:
        self.config = config
        self.runner: Runner = runner if runner is not None else CountingRunner()
        if hasattr(self.runner, "prepare"):
            self.runner.prepare(config.num_blocks, config.block_size)  # type: ignore[attr-defined]
        self.clock: Clock = clock if clock is not None else StepClock()
        self.kv = make_kv_manager(config)
        self.pool = self.kv.pool
        token_bytes: int = getattr(self.runner, "kv_bytes_per_token", ANCHOR_KV_BYTES_PER_TOKEN)
        self.host = HostTier(config.host_blocks, config.disk_blocks, config.block_size * token_bytes)
        self.scheduler = Scheduler(config, self.kv, self.host)
        self.requests: dict[str, RequestState] = {}
        self.trace = Trace(config, self.clock.unit) if keep_trace else None
        self.is_open = False
        self.last_plan: StepPlan | None = None
        self._metrics = Metrics()
        self._future: list[tuple[float, int, RequestState]] = []
        self._submitted = 0
        self._arrived = 0
        self._pending_events: list[Decision] = []
        self._released = False

    def submit(self, request: Request) -> str:
        """Hand in a request; it waits from its arrival on.

        Returns:
            its id.

        Raises:
            ValidationError: the id is taken or the request is malformed; no trace of it is left.
            CapacityError: it can never fit (TOO_BIG); it stays in `requests` with `finish_reason` "refused".
        """
        if not isinstance(request, Request):
            raise ValidationError(f"submit takes a Request, got {type(request).__name__}")
        request_id = request.request_id or self._new_id()
        if request_id in self.requests:
            raise ValidationError(f"request id {request_id!r} is taken")
        limits: Limits = getattr(self.runner, "limits", Limits())
        self._require_known_tokens(request, limits.vocab_size)
        if (request.params.n > 1 or request.params.beam_width is not None) and self.config.kv != "paged":
            raise ValidationError("n > 1 and beam search need kv='paged': contiguous runs cannot be shared")
        self._submitted += 1
        state = RequestState(request_id, request, [Sequence(request, request_id)], max(request.arrival, self.clock.now))
        self.requests[request_id] = state
        if self.trace is not None:
            self.trace.add_request(state)
        self._act("submit", request_id)
        too_big = self._too_big(request, limits.max_model_len)
        if too_big is not None:
            message, detail = too_big
            seq = state.sequences[0]
            seq.status, seq.finish_reason = Status.REFUSED, "refused"
            self._note(Code.TOO_BIG, seq, detail)
            raise CapacityError(message, reason="TOO_BIG", request_id=request_id)
        heapq.heappush(self._future, (state.arrival, self._submitted, state))
        return request_id

    def step(self) -> StepRecord | None:
        """Run one step.

        Returns:
            its record; a record with an empty plan if work is left but nothing can run now (not counted as a step);
            None when nothing is left.

        Raises:
            Exception: whatever the runner raised. The requests of that plan are over, finish reason "error", their
                blocks are back, and the next call goes on with the others.
        """
        while True:
            self._receive()
            if not self.scheduler.running and not self.scheduler.waiting:
                if not self._future:
                    return None
                self.clock.jump(self._future[0][0])
                continue
            self.scheduler.more_to_come = not self._released and (self.is_open or bool(self._future))
            plan = self.scheduler.schedule(self.clock.step)
            if self._released and any(d.code in (Code.ADMITTED, Code.RESUMED) for d in plan.decisions.spelled):
                self._released = False
            if not plan.is_empty:
                return self._execute(plan)
            if self._future:
                self.clock.jump(self._future[0][0])
                continue
            if not self.is_open:
                raise InvariantError(f"work is left but nothing can run: {plan.decisions!r}")
            return self._unrun(plan)

    def run(self, max_steps: int | None = None) -> int:
        """Step until nothing is left (or nothing can run, or `max_steps`); returns the number of steps."""
        steps = 0
        while max_steps is None or steps < max_steps:
            record = self.step()
            if record is None or record.plan.is_empty:
                break
            steps += 1
        return steps

    def abort(self, some_id: str) -> None:
        """End a request, or one branch by its sequence id, before the next step; its reply so far stays.

        Raises:
            ValidationError: nobody has this id.
        """
        sequences = self._sequences(some_id)
        if some_id not in self.requests and any(seq.is_beam for seq in sequences):
            raise ValidationError(f"{some_id!r} is one beam of a search: abort the whole request")
        for seq in sequences:
            if not seq.status.is_final:
                self._act("abort", seq.id)
                self._end(seq, Status.ABORTED, "abort")
                self._note(Code.ABORTED, seq, {})

    def finish(self, request_id: str) -> None:
        """End a request now as if its reply were complete.

        Raises:
            ValidationError: nobody has this id.
        """
        for seq in self._sequences(request_id):
            if not seq.status.is_final:
                slot = seq.slot
                self._act("finish", seq.id)
                self._end(seq, Status.FINISHED, "stop")
                self._note(Code.FINISHED, seq, {"reason": "stop", "tokens": seq.num_output_tokens, "slot": slot})

    def release(self) -> None:
        """Let those who wait now start without waiting for a full batch; nothing to a policy that waits for none."""
        if self.scheduler.waiting or self._future:
            self._act("release", None)
            self._released = True

    def between_steps(self) -> StepRecord:
        """The engine as it stands, as a record with an empty plan; `before` says what happened since the last one."""
        step = self.clock.step
        return self._unrun(StepPlan(step, self.config.block_size, self.pool.num_blocks, {}, {}, {}, {}, {}, {}))

    def forget(self, request_id: str) -> None:
        """Drop a finished request from `requests`.

        Raises:
            ValidationError: nobody has this id, or it is not over.
        """
        if not all(seq.status.is_final for seq in self._sequences(request_id)):
            raise ValidationError(f"request {request_id!r} is not over: abort it first")
        del self.requests[request_id]

    def check(self) -> None:
        """Verify every invariant; raises `InvariantError` with what is wrong."""
        check_engine(self)

    def block_tables(self) -> dict[str, list[int]]:
        """{sequence id: [block ids]} of the running sequences, in order of admission."""
        return {seq.id: list(seq.block_table) for seq in self.scheduler.running}

    @property
    def metrics(self) -> Metrics:
        """The counters so far."""
        self._metrics.preemptions = self.scheduler.preemptions
        self._metrics.recomputed_tokens = self.scheduler.recomputed_tokens
        self._metrics.prefix_hits = dict(self.scheduler.prefix_hits)
        self._metrics.bytes_swapped = self.host.bytes_out + self.host.bytes_in
        return self._metrics

    @property
    def has_work(self) -> bool:
        """True while anything is unfinished."""
        return bool(self._future or self.scheduler.running or self.scheduler.waiting)

    @property
    def future_requests(self) -> list[str]:
        """Ids of requests that have not arrived yet."""
        return [state.id for _, _, state in sorted(self._future)]

    @property
    def num_unfinished(self) -> int:
        """Sequences that run, wait or have not arrived."""
        return len(self.scheduler.running) + len(self.scheduler.waiting) + len(self._future)

    @property
    def next_arrival(self) -> float:
        """When the next request that was submitted ahead of its time will arrive; infinite without one."""
        return self._future[0][0] if self._future else math.inf

    def _receive(self) -> None:
        """Let everybody in whose time has come."""
        while self._future and self._future[0][0] <= self.clock.now:
            state = heapq.heappop(self._future)[2]
            for seq in state.sequences:
                if not seq.status.is_final:
                    seq.order = self._arrived
                    self._arrived += 1
                    self.scheduler.waiting.push(seq)

    def _execute(self, plan: StepPlan) -> StepRecord:
        usage, waiting = self._usage(plan), len(self.scheduler.waiting)
        start = self.clock.now
        sampled = self._run(plan)
        self.clock.advance(plan)
        slots = {} if self.trace is None else {seq.id: seq.slot for seq in self.scheduler.running}
        finished = tuple(self.scheduler.commit(plan, sampled, self.clock.now))
        for seq in self.scheduler.born:
            self.requests[seq.request_id].sequences.append(seq)
        for seq in self.scheduler.died:
            self.requests[seq.request_id].sequences.remove(seq)
        self.last_plan = plan
        self._metrics.count(usage, len(plan.sampling), waiting > 0)
        record = StepRecord(plan, self._take_events(), finished, usage, start, self.clock.now, waiting)
        if self.trace is not None:
            self.trace.add_step(record, sampled, slots, self.scheduler.waiting.journal, self.scheduler.regrouped)
        self.scheduler.waiting.journal.clear()
        return record

    def _run(self, plan: StepPlan) -> Mapping[str, Sampled]:
        """Let the runner execute the plan. If it fails, everybody planned ends here: their KV is in doubt."""
        try:
            sampled = self.runner.run(plan)
            missing = [seq_id for seq_id in plan.sampling if seq_id not in sampled]
            if missing:
                raise InvariantError(f"the runner gave no token for {', '.join(missing)}")
        except BaseException:
            beams = {s.request_id for s in self.scheduler.running if s.is_beam and s.id in plan.num_scheduled_tokens}
            for seq in [
                s for s in self.scheduler.running if s.id in plan.num_scheduled_tokens or s.request_id in beams
            ]:
                self._end(seq, Status.ABORTED, "error")
                self._note(Code.ABORTED, seq, {"reason": "error"})
            raise
        return sampled

    def _unrun(self, plan: StepPlan) -> StepRecord:
        """A record of no step. What happened before it goes into the trace now, for the next step that runs."""
        now, before = self.clock.now, self._take_events()
        if self.trace is not None:
            self.trace.add_events(len(self.trace), 0, before)
        return StepRecord(plan, before, (), self._usage(plan), now, now, len(self.scheduler.waiting))

    def _act(self, action: str, some_id: str | None) -> None:
        """Somebody outside acted: only on an open engine is that not foreseen by the workload."""
        if self.is_open and self.trace is not None:
            self.trace.actions.append([self.clock.step, action, some_id])

    def _take_events(self) -> tuple[Decision, ...]:
        events = tuple(self._pending_events)
        self._pending_events.clear()
        return events

    def _usage(self, plan: StepPlan) -> Usage:
        scheduled = plan.num_scheduled_tokens
        written = ((seq, seq.num_computed_tokens + scheduled.get(seq.id, 0)) for seq in self.scheduler.running)
        return self.kv.usage(written, self.scheduler.waiting.head)

    def _end(self, seq: Sequence, status: Status, reason: str) -> None:
        if seq.order < 0:  # it has not arrived yet
            self._future = [entry for entry in self._future if seq not in entry[2].sequences]
            heapq.heapify(self._future)
            seq.status, seq.finish_reason = status, reason
        else:
            self.scheduler.remove(seq, status, reason)

    def _note(self, code: Code, seq: Sequence, detail: dict[str, object]) -> None:
        self._pending_events.append(Decision(code, seq.request_id, seq.id, self.clock.step, detail))

    def _sequences(self, some_id: str) -> Iterable[Sequence]:
        if some_id in self.requests:
            return list(self.requests[some_id].sequences)
        owner = self.requests.get(some_id.rpartition("/")[0]) if isinstance(some_id, str) else None
        found = [seq for seq in owner.sequences if seq.id == some_id] if owner is not None else []
        if not found:
            raise ValidationError(f"no request or sequence has the id {some_id!r}")
        return found

    def _new_id(self) -> str:
        number = self._submitted
        while str(number) in self.requests:
            number += 1
        return str(number)

    @staticmethod
    def _require_known_tokens(request: Request, vocab_size: int | None) -> None:
        ids = (*request.prompt_token_ids, *request.params.stop_token_ids)
        if vocab_size is not None and max(ids) >= vocab_size:
            raise ValidationError(
                f"token id {max(ids)} is unknown: the model's vocabulary has {vocab_size} ids, 0 to {vocab_size - 1}"
            )

    def _too_big(self, request: Request, model_limit: int | None) -> tuple[str, dict[str, object]] | None:
        """Why the request can never run, None if it can."""
        limit = min((n for n in (self.config.max_model_len, model_limit) if n is not None), default=None)
        total = request.prompt_len + request.params.max_tokens
        if limit is not None and total > limit:
            whose = "max_model_len is" if limit == self.config.max_model_len else "the model's context is"
            return (
                f"prompt {request.prompt_len} + max_tokens {request.params.max_tokens} = {total} tokens, but "
                f"{whose} {limit}: shorten the prompt or the reply",
                {"needed": total, "limit": limit, "rule": "max_model_len"},
            )
        branches = request.params.beam_width or request.params.n
        if branches > self.config.max_num_seqs:
            return (
                f"{branches} replies or beams at once need as many slots, the engine has {self.config.max_num_seqs}: "
                "ask for fewer or configure more slots",
                {"needed": branches, "limit": self.config.max_num_seqs, "rule": "slots"},
            )
        demand = self.kv.demand(request) * (request.params.beam_width or 1)
        if demand > self.pool.num_blocks:
            return (
                f"the request needs {demand} blocks of {self.config.block_size} at full length, the whole pool has "
                f"{self.pool.num_blocks}: shorten it or enlarge the pool",
                {"needed": demand, "limit": self.pool.num_blocks, "rule": "num_blocks"},
            )
        return None
