"""Scenarios that broke engines of this kind, restated small, on exact ids (numbered as in the list of traps)."""

import pytest

from engine import CapacityError, FakeRunner, Status, ValidationError
from engine.plan import slots_of
from tests.factories import (
    CorruptingRunner,
    codes,
    make_counting_engine,
    make_engine,
    make_request,
    run_checked,
    undisturbed,
)

SIZES = [1, 3, 4, 16, 256]


def test_1_a_request_beyond_the_pool_is_refused_at_submit():
    engine = make_engine(num_blocks=2)
    with pytest.raises(CapacityError) as caught:
        engine.submit(make_request(8, 4))
    assert caught.value.reason == "TOO_BIG"
    state = engine.requests[caught.value.request_id]
    assert state.finish_reason == "refused"
    assert state.sequences[0].status is Status.REFUSED
    assert engine.step() is None
    engine.check()


def test_1_exactly_the_pool_is_accepted():
    engine = make_engine(num_blocks=2)
    rid = engine.submit(make_request(5, 4))  # KV for 8 tokens
    run_checked(engine)
    assert engine.requests[rid].finish_reason == "length"


def test_2_a_refused_one_does_not_block_the_next():
    engine = make_engine(num_blocks=2)
    with pytest.raises(CapacityError):
        engine.submit(make_request(9, 4, request_id="A"))
    engine.submit(make_request(3, 4, request_id="B"))
    record = engine.step()
    assert list(record.plan.num_scheduled_tokens) == ["B/0"]
    assert codes(record) == ["TOO_BIG", "ADMITTED"]


def test_3_the_watermark_never_holds_an_empty_engine():
    engine = make_engine(num_blocks=10, watermark=0.2)
    engine.submit(make_request(36, 1, request_id="head"))
    assert engine.config.watermark_blocks == 2
    assert codes(engine.step(), "head")[0] == "ADMITTED"


def test_3_the_watermark_holds_the_second_and_says_so():
    for kv, size in (("paged", 4), ("oracle", 4)):
        engine = make_counting_engine(num_blocks=10, block_size=size, watermark=0.2, kv=kv)
        engine.submit(make_request(19, 2, request_id="A"))
        engine.submit(make_request(14, 2, request_id="B"))
        assert codes(engine.step(), "B") == ["WATERMARK"], kv
        run_checked(engine)


def test_5_a_chunked_prompt_takes_the_third_block_exactly_at_position_8():
    engine = make_engine(num_blocks=10, max_num_batched_tokens=4)
    engine.submit(make_request(8, 3, request_id="A"))
    seen = []
    while (record := engine.step()) is not None:
        engine.check()
        plan = record.plan
        seen.append((plan.num_scheduled_tokens["A/0"], plan.block_tables["A/0"], len(plan.sampling)))
    assert seen == [(4, (0,), 0), (4, (0, 1), 1), (1, (0, 1, 2), 1), (1, (0, 1, 2), 1)]


def test_5_a_full_last_block_has_no_tail():
    engine = make_engine(num_blocks=10, max_num_batched_tokens=4)
    engine.submit(make_request(8, 3))
    assert engine.step().usage.tail_waste == 0
    assert engine.step().usage.tail_waste == 0
    assert engine.step().usage.tail_waste == 3


def test_7_allocate_is_all_or_nothing():
    engine = make_engine(num_blocks=4)
    engine.submit(make_request(7, 9, request_id="A"))
    engine.step()
    seq = engine.requests["A"].sequences[0]
    before = (engine.pool.free_ids(), list(seq.block_table), [engine.pool.ref(i) for i in range(4)])
    assert engine.kv.allocate(seq, 13) is None  # 20 tokens: three more blocks, two are free
    assert before == (engine.pool.free_ids(), seq.block_table, [engine.pool.ref(i) for i in range(4)])


def test_7_contiguous_allocate_is_all_or_nothing():
    engine = make_counting_engine(num_blocks=10, block_size=1, kv="oracle")
    engine.submit(make_request(4, 2, request_id="A"))
    engine.step()
    late = make_request(4, 2, request_id="B")
    engine.submit(late)
    seq = engine.requests["B"].sequences[0]
    before = engine.pool.free_ids(), engine.kv.free_runs
    assert engine.kv.allocate(seq, 4) is None
    assert before == (engine.pool.free_ids(), engine.kv.free_runs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("policy", ["continuous", "static", "prefill_first"])
def test_8_tight_pools_give_the_undisturbed_text(size, policy):
    blocks = {1: 26, 3: 9, 4: 7, 16: 3, 256: 3}[size]
    engine = make_engine(num_blocks=blocks, block_size=size, max_num_seqs=4, max_num_batched_tokens=7, policy=policy)
    wanted = {}
    for i, (p, m) in enumerate([(9, 8), (3, 9), (12, 5), (1, 12), (7, 2), (5, 9)]):
        prompt = tuple(range(10 * i, 10 * i + p))
        wanted[engine.submit(make_request(prompt, m))] = undisturbed(prompt, m)
    run_checked(engine)
    assert {rid: engine.requests[rid].outputs[0] for rid in wanted} == wanted
    assert engine.pool.num_free == blocks
    if size in (1, 3, 4) and policy != "static":
        assert engine.metrics.preemptions > 0


@pytest.mark.parametrize("when", ["waiting", "mid-chunk", "running", "preempted"])
def test_18_abort_gives_every_block_back(when):
    blocks = 12 if when == "running" else 6
    engine = make_engine(num_blocks=blocks, max_num_batched_tokens=8, max_num_seqs=4)
    engine.submit(make_request(8, 8, request_id="A"))
    engine.submit(make_request(12, 8, request_id="B"))
    if when == "mid-chunk":
        engine.step()
        engine.step()
        assert 0 < engine.requests["B"].sequences[0].num_computed_tokens < 12
    elif when == "running":
        while engine.requests["B"].sequences[0].num_output_tokens < 2:
            engine.step()
    elif when == "preempted":
        while engine.requests["B"].status is not Status.PREEMPTED:
            engine.step()
    kept = list(engine.requests["B"].outputs[0])
    engine.abort("B")
    engine.abort("B")  # a second time is nothing
    engine.check()
    records = run_checked(engine)
    assert "ABORTED" in codes(records[0], "B")
    assert engine.requests["B"].finish_reason == "abort"
    assert engine.requests["B"].outputs[0] == kept
    assert all("B/0" not in r.plan.num_scheduled_tokens for r in records)
    assert engine.requests["A"].outputs[0] == undisturbed(8, 8)
    assert engine.pool.num_free == blocks


def test_18_abort_of_one_that_has_not_arrived_and_of_nobody():
    engine = make_engine()
    engine.submit(make_request(request_id="later", arrival=5))
    engine.abort("later/0")
    assert engine.step() is None
    with pytest.raises(ValidationError):
        engine.abort("nobody")


def test_19_preempted_by_recompute_keeps_its_reply():
    """Prompt 5, three sampled, preempted: 7 KV tokens lost, 8 to compute, the next sample is the fourth."""
    engine = make_engine(num_blocks=4, max_num_seqs=2)
    engine.submit(make_request(6, 7, request_id="A"))
    engine.submit(make_request(5, 6, request_id="B"))
    seq = engine.requests["B"].sequences[0]
    record = None
    while engine.metrics.preemptions == 0:
        record = engine.step()
        engine.check()
    assert codes(record, "B") == ["PREEMPTED_BY", "NO_BLOCKS"]
    assert seq.num_output_tokens == 3
    assert engine.metrics.recomputed_tokens == 7
    assert seq.num_missing_tokens == 8
    kept = list(seq.output_token_ids)
    while seq.status is Status.PREEMPTED:
        record = engine.step()
    assert "RESUMED" in codes(record, "B")
    assert record.plan.num_scheduled_tokens["B/0"] == 8
    assert seq.output_token_ids[:3] == kept
    assert seq.num_output_tokens == 4
    run_checked(engine)
    assert engine.requests["B"].outputs[0] == undisturbed(5, 6)
    assert engine.requests["A"].outputs[0] == undisturbed(6, 7)


def test_19_twice_and_mid_prefill():
    engine = make_engine(num_blocks=5, block_size=2, max_num_seqs=3, max_num_batched_tokens=4)
    for i, (p, m) in enumerate([(3, 6), (2, 7), (4, 5)]):
        engine.submit(make_request(tuple(range(i * 9, i * 9 + p)), m, request_id=f"r{i}"))
    victims = [d.request_id for r in run_checked(engine) for d in r.events if d.code == "PREEMPTED_BY"]
    assert any(victims.count(v) >= 2 for v in set(victims))
    for i, (p, m) in enumerate([(3, 6), (2, 7), (4, 5)]):
        assert engine.requests[f"r{i}"].outputs[0] == undisturbed(tuple(range(i * 9, i * 9 + p)), m)


@pytest.mark.parametrize(("order", "waiting"), [("fcfs", "BCD"), ("priority", "BDC")])
def test_20_two_preempted_in_one_step_go_back_in_order(order, waiting):
    """Three full blocks, all need a fourth: C makes room for A, then B, who asks next, is the last admitted itself."""
    engine = make_engine(num_blocks=3, block_size=4, max_num_seqs=3, order=order)
    for rid, priority in (("A", 0), ("B", 1), ("C", 2)):
        engine.submit(make_request(4, 3, request_id=rid, priority=priority))
    engine.step()
    assert engine.block_tables() == {"A/0": [0], "B/0": [1], "C/0": [2]}
    engine.submit(make_request(1, 2, request_id="D", priority=1))
    record = engine.step()
    engine.check()
    preempted = [(d.request_id, d.detail["by"]) for d in record.events if d.code == "PREEMPTED_BY"]
    assert preempted == [("C", "A"), ("B", "B")]
    assert [seq.request_id for seq in engine.scheduler.waiting] == list(waiting)
    assert codes(record, "B") == ["PREEMPTED_BY", "NO_BLOCKS"]
    assert codes(record, "D") == ["BEHIND_HEAD"]
    assert engine.block_tables() == {"A/0": [0, 2]}
    run_checked(engine)
    assert all(engine.requests[rid].outputs[0] == undisturbed(4, 3) for rid in "ABC")


def test_21_priority_waits_for_a_slot():
    engine = make_counting_engine(num_blocks=100, max_num_seqs=2, order="priority")
    engine.submit(make_request(4, 9, request_id="low1", priority=5))
    engine.submit(make_request(4, 9, request_id="low2", priority=5))
    engine.step()
    engine.submit(make_request(4, 9, request_id="low3", priority=5))
    engine.submit(make_request(4, 2, request_id="high", priority=1))
    record = engine.step()
    assert codes(record, "high") == ["SLOTS"]
    assert codes(record, "low3") == ["BEHIND_HEAD"]
    assert engine.metrics.preemptions == 0


def test_22_chunks_4_4_2_and_one_token_after_the_third():
    engine = make_engine(max_num_batched_tokens=4)
    engine.submit(make_request(10, 1, request_id="A"))
    records = run_checked(engine)
    assert [r.plan.num_scheduled_tokens["A/0"] for r in records] == [4, 4, 2]
    assert [len(r.plan.sampling) for r in records] == [0, 0, 1]


def test_22_a_row_without_budget_is_not_in_the_plan():
    engine = make_engine(num_blocks=20, max_num_batched_tokens=2, max_num_seqs=4)
    for rid in "ABC":
        engine.submit(make_request(1, 4, request_id=rid))
    records = run_checked(engine)
    assert codes(records[0], "C") == ["BUDGET"]
    assert all(sum(r.plan.num_scheduled_tokens.values()) <= 2 for r in records)
    assert all(n > 0 for r in records for n in r.plan.num_scheduled_tokens.values())


@pytest.mark.parametrize("budget", [None, 1, 2, 3, 5, 64])
def test_22_sampling_does_not_depend_on_chunking(budget):
    engine = make_engine(max_num_batched_tokens=budget)
    rid = engine.submit(make_request(10, 5, params={"temperature": 0.7, "seed": 3}))
    run_checked(engine)
    whole = make_engine()
    other = whole.submit(make_request(10, 5, params={"temperature": 0.7, "seed": 3}))
    whole.run()
    assert engine.requests[rid].outputs == whole.requests[other].outputs


def test_24_addresses():
    table = [7, 2, 9]
    assert slots_of(table, 0, 10, 4) == (28, 29, 30, 31, 8, 9, 10, 11, 36, 37)
    assert slots_of(table, 4, 3, 4)[0] == 8
    with pytest.raises(IndexError):
        slots_of(table, 12, 1, 4)


def test_a_wrong_table_entry_changes_the_text():
    def text(runner):
        engine = make_engine(runner=runner)
        engine.submit(make_request(9, 6, request_id="A"))
        engine.run()
        return engine.requests["A"].outputs[0]

    good = text(FakeRunner())
    assert good == undisturbed(9, 6)
    assert text(CorruptingRunner(FakeRunner(), step=2, seq_id="A/0", logical=0, physical=5)) != good
