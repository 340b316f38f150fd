"""Any order of submit, step and abort, under every policy and manager, on tight pools: all invariants, every step."""

import contextlib
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine import CapacityError, Engine, EngineConfig, FakeRunner, ValidationError
from engine.config import KV_RULES, ORDERS, POLICIES, PREEMPTS, PREFIXES
from tests.factories import make_request, undisturbed_branches

CONTIGUOUS = {"prefix": "none", "preempt": "recompute"}
CONFIGS = st.builds(
    lambda **fields: EngineConfig(**fields if fields["kv"] == "paged" else {**fields, **CONTIGUOUS}),
    num_blocks=st.integers(2, 9),
    block_size=st.sampled_from([1, 2, 3, 4, 16]),
    max_num_seqs=st.integers(1, 4),
    max_num_batched_tokens=st.one_of(st.none(), st.integers(1, 9)),
    policy=st.sampled_from(POLICIES),
    kv=st.sampled_from(("paged", "paged", *KV_RULES)),
    prefix=st.sampled_from(PREFIXES),
    preempt=st.sampled_from(PREEMPTS),
    host_blocks=st.integers(0, 6),
    disk_blocks=st.integers(0, 2),
    fit=st.sampled_from(["first", "best"]),
    watermark=st.sampled_from([0.0, 0.2, 0.5]),
    order=st.sampled_from(ORDERS),
    victim=st.sampled_from([None, "last", "priority", "fewest_blocks"]),
)


class EngineMachine(RuleBasedStateMachine):
    @initialize(config=CONFIGS)
    def start(self, config):
        self.engine = Engine(config, runner=FakeRunner())
        self.aborted: set[str] = set()
        self.streamed: dict[str, list[list[int]]] = {}

    @rule(prompt=st.integers(1, 12), reply=st.integers(1, 9), priority=st.integers(0, 2), later=st.integers(0, 4))
    def submit(self, prompt, reply, priority, later):
        arrival = self.engine.clock.now + later
        with contextlib.suppress(CapacityError):
            self.engine.submit(make_request(prompt, reply, priority=priority, arrival=arrival))

    @rule(prompt=st.integers(1, 12), reply=st.integers(1, 9), n=st.integers(2, 4))
    def submit_several(self, prompt, reply, n):
        with contextlib.suppress(CapacityError, ValidationError):
            self.engine.submit(make_request(prompt, reply, params={"n": n, "temperature": 1.0}))

    @rule(prompt=st.integers(1, 12), reply=st.integers(1, 7), width=st.integers(1, 3))
    def submit_beams(self, prompt, reply, width):
        with contextlib.suppress(CapacityError, ValidationError):
            self.engine.submit(make_request(prompt, reply, params={"beam_width": width}))

    @rule(count=st.integers(1, 6))
    def step(self, count):
        for _ in range(count):
            record = self.engine.step()
            if record is None:
                assert not self.engine.has_work
                return
            assert record.usage.pool_slots == self.engine.config.num_blocks * self.engine.config.block_size
            assert not record.plan.is_empty
            self.engine.check()

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data())
    def abort(self, data):
        rid = data.draw(st.sampled_from(sorted(self.engine.requests)))
        self.engine.abort(rid)
        self.aborted.add(rid)

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data())
    def abort_one_branch(self, data):
        rid = data.draw(st.sampled_from(sorted(self.engine.requests)))
        seq = data.draw(st.sampled_from([seq.id for seq in self.engine.requests[rid].sequences]))
        with contextlib.suppress(ValidationError):  # one beam of a search
            self.engine.abort(seq)
            self.aborted.add(rid)

    @invariant()
    def consistent(self):
        if hasattr(self, "engine"):
            self.engine.check()
            for rid, state in self.engine.requests.items():
                before = self.streamed.get(rid, [])
                if state.request.params.beam_width is not None:
                    continue  # beams overtake each other
                now = state.outputs
                assert [output[: len(old)] for output, old in zip(now, before, strict=False)] == before
                self.streamed[rid] = now

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        limit = 10_000
        while self.engine.step() is not None:
            self.engine.check()
            limit -= 1
            assert limit, "no progress"
        assert self.engine.pool.num_free == self.engine.config.num_blocks
        assert self.engine.host.num_free == self.engine.config.host_blocks + self.engine.config.disk_blocks
        trace = self.engine.trace
        assert type(trace).from_json(trace.to_json()) == trace
        for rid, state in self.engine.requests.items():
            if state.finish_reason == "length" and rid not in self.aborted:
                assert state.outputs == undisturbed_branches(state.request)


EngineMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestEngineMachine = EngineMachine.TestCase


@pytest.mark.parametrize("kv", KV_RULES)
@pytest.mark.parametrize("policy", POLICIES)
def test_five_thousand_steps(policy, kv):
    """At least 5,000 steps over all policies and managers together (12 × 420), each checked."""
    rng = random.Random(f"{policy}/{kv}")
    engine = Engine(
        EngineConfig(num_blocks=14, block_size=3, max_num_seqs=5, max_num_batched_tokens=9, policy=policy, kv=kv),
        runner=FakeRunner(),
    )
    steps = 0
    while steps < 420:
        if rng.random() < 0.4:
            engine.submit(make_request(rng.randint(1, 15), rng.randint(1, 12), priority=rng.randint(0, 3)))
        if rng.random() < 0.05 and engine.requests:
            engine.abort(rng.choice(sorted(engine.requests)))
        if engine.step() is not None:
            steps += 1
            engine.check()
    if kv == "paged" and policy != "static":
        assert engine.metrics.preemptions > 0
