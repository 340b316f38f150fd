"""Policies, order, victims, arrivals, and what each decision says."""

import pytest

from engine import Engine, EngineConfig, Request, SamplingParams, Status, StepClock, ValidationError
from engine.workload import real64
from tests.factories import PUBLISHED, codes, make_counting_engine, make_engine, make_request, run_checked


def test_a_reply_of_l_tokens_takes_l_steps_and_p_plus_l_minus_1_kv():
    engine = make_engine()
    rid = engine.submit(make_request(5, 7))
    records = run_checked(engine)
    assert len(records) == 7
    assert records[-1].usage.live == 5 + 7 - 1
    assert len(engine.requests[rid].outputs[0]) == 7


def test_a_slot_freed_by_a_finish_is_taken_in_the_next_step():
    engine = make_counting_engine(max_num_seqs=1)
    engine.submit(make_request(1, 2, request_id="A"))
    engine.submit(make_request(1, 1, request_id="B"))
    records = run_checked(engine)
    assert [list(r.plan.num_scheduled_tokens) for r in records] == [["A/0"], ["A/0"], ["B/0"]]
    assert codes(records[0], "B") == ["SLOTS"]


def test_static_waits_for_its_batch():
    engine = make_counting_engine(policy="static", max_num_seqs=2)
    for rid, length in (("A", 3), ("B", 1), ("C", 1)):
        engine.submit(make_request(1, length, request_id=rid))
    records = run_checked(engine)
    assert [list(r.plan.num_scheduled_tokens) for r in records] == [["A/0", "B/0"], ["A/0"], ["A/0"], ["C/0"]]
    assert codes(records[1], "C") == ["WAIT_BATCH"]
    assert engine.metrics.utilisation(2) == 5 / 8


def test_static_waits_for_b_requests_while_more_will_come():
    engine = make_counting_engine(policy="static", max_num_seqs=2)
    engine.submit(make_request(1, 1, request_id="A"))
    engine.submit(make_request(1, 1, request_id="B", arrival=7.5))
    engine.submit(make_request(1, 1, request_id="C", arrival=9))
    records = run_checked(engine)
    assert [(r.step, list(r.plan.num_scheduled_tokens)) for r in records] == [(8, ["A/0", "B/0"]), (9, ["C/0"])]


def test_branches_count_when_a_static_batch_fills():
    engine = make_counting_engine(policy="static", max_num_seqs=4)
    engine.is_open = True
    hot = {"temperature": 1.0}
    engine.submit(make_request(1, 2, request_id="A", params={**hot, "n": 2}))
    assert engine.step().plan.is_empty
    engine.submit(make_request(1, 2, request_id="B", params={**hot, "n": 2}))
    assert list(engine.step().plan.num_scheduled_tokens) == ["A/0", "B/0"]


def test_an_open_static_engine_says_that_it_waits():
    engine = make_counting_engine(policy="static", max_num_seqs=2)
    engine.is_open = True
    engine.submit(make_request(1, 1, request_id="A"))
    record = engine.step()
    assert record.plan.is_empty
    assert codes(record) == ["WAIT_BATCH"]
    assert engine.metrics.steps == 0
    engine.is_open = False
    assert not engine.step().plan.is_empty


def test_idle_gaps_cost_no_step():
    engine = make_counting_engine()
    engine.submit(make_request(1, 2, arrival=0.2))
    engine.submit(make_request(1, 1, arrival=100))
    records = run_checked(engine)
    assert [r.step for r in records] == [1, 2, 100]
    assert engine.metrics.steps == 3


def test_prefill_first_never_mixes():
    engine = make_counting_engine(policy="prefill_first", num_blocks=50, max_num_seqs=3, max_num_batched_tokens=6)
    for i in range(6):
        engine.submit(make_request(5 + i, 3))
    for record in run_checked(engine):
        plan = record.plan
        decodes = [s for s, n in plan.num_scheduled_tokens.items() if n == 1 and plan.num_computed_tokens[s] >= 10]
        prefills = [s for s, n in plan.num_scheduled_tokens.items() if n > 1]
        assert not (decodes and prefills)
    assert engine.metrics.useful_cells == 18


def test_admission_keeps_what_others_still_lack():
    """A is mid-prompt and has 1 of 3 blocks; B must leave it the other two."""
    engine = make_counting_engine(num_blocks=4, max_num_batched_tokens=6)
    engine.submit(make_request(12, 1, request_id="A"))
    engine.submit(make_request(8, 1, request_id="B"))
    engine.step()
    assert codes(engine.step(), "B")[0] in ("BUDGET", "NO_BLOCKS")
    run_checked(engine)
    assert engine.metrics.preemptions == 0


@pytest.mark.parametrize(("victim", "expected"), [("last", "C"), ("priority", "B"), ("fewest_blocks", "C")])
def test_victim_rules(victim, expected):
    engine = make_counting_engine(num_blocks=6, max_num_seqs=3, victim=victim)
    engine.submit(make_request(8, 9, request_id="A", priority=0))
    engine.submit(make_request(8, 9, request_id="B", priority=9))
    engine.submit(make_request(4, 9, request_id="C", priority=1))
    while True:
        events = engine.step().events
        engine.check()
        gone = [e.request_id for e in events if e.code == "PREEMPTED_BY"]
        if gone:
            break
    assert gone[0] == expected


def test_a_planned_victim_leaves_the_plan():
    engine = make_counting_engine(num_blocks=5, max_num_seqs=2, victim="priority")
    engine.submit(make_request(4, 9, request_id="low", priority=9))
    engine.submit(make_request(7, 9, request_id="high", priority=0))
    for record in run_checked(engine):
        gone = {e.seq_id for e in record.events if e.code == "PREEMPTED_BY"}
        assert not gone & set(record.plan.num_scheduled_tokens)


def test_finish_and_forget():
    engine = make_engine()
    engine.submit(make_request(4, 30, request_id="A"))
    engine.step()
    with pytest.raises(ValidationError):
        engine.forget("A")
    engine.finish("A")
    assert engine.requests["A"].finish_reason == "stop"
    assert engine.pool.num_free == 10
    engine.check()
    engine.forget("A")
    assert "A" not in engine.requests


def test_output_len_ends_a_reply_early():
    engine = make_counting_engine()
    engine.submit(make_request(1, 10, output_len=3, request_id="A"))
    run_checked(engine)
    assert len(engine.requests["A"].outputs[0]) == 3
    assert engine.requests["A"].finish_reason == "stop"


@pytest.mark.parametrize(
    "make",
    [
        lambda: SamplingParams(max_tokens=0),
        lambda: SamplingParams(max_tokens=10**12),
        lambda: SamplingParams(temperature=-1),
        lambda: SamplingParams(temperature=float("nan")),
        lambda: SamplingParams(n=2),
        lambda: Request(prompt_token_ids=()),
        lambda: Request(prompt_token_ids=(-1,)),
        lambda: Request(prompt_token_ids="text"),
        lambda: Request(prompt_token_ids=(1,), arrival=-1),
        lambda: EngineConfig(num_blocks=0),
        lambda: EngineConfig(num_blocks=True),
        lambda: EngineConfig(num_blocks=8, watermark=1.0),
        lambda: EngineConfig(num_blocks=8, policy="magic"),
        lambda: EngineConfig(num_blocks=10**12),
    ],
)
def test_bad_parameters_are_refused_with_a_message(make):
    with pytest.raises(ValidationError) as caught:
        make()
    assert len(str(caught.value)) > 15


def test_a_bad_submit_leaves_no_trace():
    engine = make_engine()
    engine.submit(make_request(request_id="A"))
    before = engine.trace.to_json()
    with pytest.raises(ValidationError):
        engine.submit(make_request(request_id="A"))
    assert list(engine.requests) == ["A"]
    assert engine.trace.to_json() == before


@pytest.mark.parametrize(
    ("policy", "slots", "steps", "utilisation"),
    PUBLISHED,
)
def test_published_figures(policy, slots, steps, utilisation):
    config = EngineConfig(num_blocks=1000, max_num_seqs=slots, policy=policy)
    engine = Engine(config, clock=StepClock(), keep_trace=False)
    for request in real64().requests():
        engine.submit(request)
    engine.run()
    assert engine.metrics.steps == steps
    assert round(engine.metrics.utilisation(slots), 4) == utilisation
    assert all(state.sequences[0].status is Status.FINISHED for state in engine.requests.values())


@pytest.mark.parametrize(("slots", "share"), [(12, 48.4), (16, 49.4), (28, 37.4), (32, 45.1)])
def test_static_is_not_monotone_in_b(slots, share):
    engine = Engine(EngineConfig(num_blocks=4000, max_num_seqs=slots, policy="static"), keep_trace=False)
    for request in real64().requests():
        engine.submit(request)
    engine.run()
    assert round(100 * engine.metrics.utilisation(slots), 1) == share
