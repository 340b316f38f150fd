"""Prefix caches, forks and swapping on exact ids: the traps of engines that share blocks (numbered as in that list)."""

import pytest

from engine import CapacityError, FakeRunner, Status, ValidationError
from engine.plan import Code
from tests.factories import codes, make_counting_engine, make_engine, make_request, run_checked

SIZES = [1, 3, 4, 16, 256]
HOT = {"temperature": 1.0}


def finish(engine, prompt, max_tokens=1, **fields):
    """Run a request to its end; its table at the last forward."""
    rid = engine.submit(make_request(prompt, max_tokens, **fields))
    tables = [r.plan.block_tables[f"{rid}/0"] for r in run_checked(engine) if f"{rid}/0" in r.plan.block_tables]
    return list(tables[-1])


def events(record, code):
    return [e for e in record.events if e.code is code]


@pytest.mark.parametrize("size", SIZES)
def test_4_a_hit_leaves_at_least_one_token_to_compute(size):
    engine = make_engine(num_blocks=8, block_size=size, prefix="hash")
    finish(engine, 2 * size)
    engine.submit(make_request(2 * size, 1, request_id="same"))
    record = engine.step()
    assert record.plan.num_scheduled_tokens == {"same/0": size}
    assert record.plan.num_computed_tokens == {"same/0": size}
    assert codes(record, "same") == ["HIT", "MISS_AT_BLOCK", "ADMITTED", "FINISHED"]
    assert events(record, Code.HIT)[0].detail == {"blocks": 1, "tokens": size, "lookup": "first"}
    assert events(record, Code.MISS_AT_BLOCK)[0].detail["why"] == "last_token"
    engine.submit(make_request(2 * size + 1, 1, request_id="longer"))
    assert engine.step().plan.num_scheduled_tokens == {"longer/0": 1}
    engine.check()


def test_6_preempting_itself_it_finds_its_blocks_again():
    engine = make_engine(num_blocks=3, block_size=4, prefix="hash", max_num_seqs=2)
    engine.submit(make_request([1, 2, 3], 8, request_id="B"))
    engine.submit(make_request(range(50, 58), 4, request_id="A"))
    records = []
    while not records or not events(records[-1], Code.PREEMPTED_BY):
        records.append(engine.step())
        engine.check()
    (gone,) = events(records[-1], Code.PREEMPTED_BY)
    assert (gone.request_id, gone.detail["by"]) == ("A", "A")
    seq = engine.requests["A"].sequences[0]
    assert (seq.status, seq.num_tokens, gone.detail["tokens_lost"]) == (Status.PREEMPTED, 9, 8)
    assert engine.kv.num_cached_free == 2
    engine.abort("B")
    record = engine.step()
    assert record.plan.num_scheduled_tokens == {"A/0": 1}
    assert len(record.plan.block_tables["A/0"]) == 3
    assert engine.metrics.recomputed_tokens == 0
    assert engine.metrics.prefix_hits == {"first": 0, "resumed": 8}  # 14: counted apart
    run_checked(engine)


def test_9_an_entry_goes_when_its_block_is_used_again():
    engine = make_engine(num_blocks=1, block_size=4, prefix="hash")
    finish(engine, [1, 2, 3, 4])
    finish(engine, [5, 6, 7, 8])
    assert engine.kv.index.content(0) == (5, 6, 7, 8)
    assert engine.kv.index.match([1, 2, 3, 4, 9]).blocks == ()
    assert engine.kv.index.match([5, 6, 7, 8, 9]).blocks == (0,)


def test_10_nobody_hits_what_this_step_computes():
    engine = make_engine(num_blocks=10, block_size=4, prefix="hash", max_num_batched_tokens=8)
    engine.submit(make_request(8, 2, request_id="A"))
    engine.submit(make_request(8, 2, request_id="B"))
    first, second = engine.step(), engine.step()
    assert first.plan.num_scheduled_tokens == {"A/0": 8}
    assert second.plan.num_scheduled_tokens == {"A/0": 1, "B/0": 4}
    together = make_engine(num_blocks=10, block_size=4, prefix="hash")
    for name in "AB":
        together.submit(make_request(8, 2, request_id=name))
    assert together.step().plan.num_scheduled_tokens == {"A/0": 8, "B/0": 8}
    run_checked(together)


def test_10_chunks_are_hit_as_far_as_they_are_computed():
    engine = make_engine(num_blocks=10, block_size=4, prefix="hash", max_num_batched_tokens=4)
    engine.submit(make_request(8, 1, request_id="A"))
    assert engine.step().plan.num_scheduled_tokens == {"A/0": 4}
    engine.submit(make_request(8, 1, request_id="B"))
    records = run_checked(engine)
    entered = next(r for r in records if "ADMITTED" in codes(r, "B"))
    assert entered.plan.num_scheduled_tokens == {"B/0": 4}
    assert entered.plan.block_tables["B/0"][0] == 0


def test_12_tails_are_evicted_first():
    engine = make_engine(num_blocks=4, block_size=4, prefix="hash")
    assert finish(engine, 16) == [0, 1, 2, 3]
    engine.submit(make_request([7], 1, request_id="one"))
    record = engine.step()
    assert [e.detail["block"] for e in events(record, Code.EVICTED)] == [3]
    assert "EVICTED(3)" in repr(record.events)
    assert engine.kv.index.match([*range(100, 116), 5]).blocks == (0, 1, 2)


def test_12_golden_run():
    engine = make_engine(num_blocks=10, block_size=4, prefix="hash")
    shared = list(range(20))
    engine.submit(make_request([*shared[:10], *range(50, 55)], 4, request_id="R0"))
    engine.submit(make_request([*shared[:10], *range(60, 64)], 2, request_id="R1", arrival=3))
    assert engine.step().plan.block_tables["R0/0"] == (0, 1, 2, 3)
    engine.step()
    assert engine.step().plan.block_tables["R0/0"] == (0, 1, 2, 3, 4)
    assert engine.step().plan.block_tables["R1/0"] == (0, 1, 5, 6)
    assert engine.pool.free_ids() == [7, 8, 9, 4, 3, 2]
    run_checked(engine)
    assert engine.pool.free_ids() == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    prompt = [*shared[:10], 50, 51, *range(80, 97)]
    engine.submit(make_request(prompt, 1, request_id="R2"))
    record = engine.step()
    assert record.plan.block_tables["R2/0"] == (0, 1, 2, 7, 8, 9, 4, 3)
    assert [e.detail["block"] for e in events(record, Code.EVICTED)] == [3]
    assert record.plan.num_scheduled_tokens == {"R2/0": 17}
    engine.check()


def test_15_a_cached_block_is_not_used():
    engine = make_engine(num_blocks=6, prefix="hash")
    finish(engine, 9, 3)
    now = engine.between_steps().usage
    assert (now.live, now.held_blocks, now.free, now.cached) == (0, 0, 24, 8)
    assert len(engine.kv.index) == 2


@pytest.mark.parametrize("prefix", ["hash", "radix", "snapshot"])
def test_23_a_prefix_that_ends_inside_a_block_a_hundred_times(prefix):
    engine = make_engine(num_blocks=7, block_size=4, prefix=prefix)
    for turn in range(100):
        finish(engine, [*range(10), 1000 + turn], 3)
        assert engine.pool.num_free + engine.pool.num_held == 7
        assert engine.kv.num_cached_free <= engine.pool.num_free


def test_16_the_last_to_write_writes_in_place():
    engine = make_engine(num_blocks=10, block_size=4)
    engine.submit(make_request(6, 4, params={"n": 3, **HOT}, request_id="r"))
    first = engine.step()
    assert codes(first, "r") == ["ADMITTED", "FORKED", "FORKED"]
    assert engine.block_tables() == {"r/0": [0, 1], "r/1": [0, 1], "r/2": [0, 1]}
    assert (engine.pool.ref(0), engine.pool.ref(1)) == (3, 3)
    assert len({output[0] for output in engine.requests["r"].outputs}) == 3
    second = engine.step()
    assert second.plan.copies == ((1, 2), (1, 3))
    assert engine.block_tables() == {"r/0": [0, 2], "r/1": [0, 3], "r/2": [0, 1]}
    assert second.usage.live == 4 + 3 * 3
    run_checked(engine)
    assert engine.requests["r"].finish_reasons == ["length"] * 3


def test_16_a_prompt_of_whole_blocks_copies_nothing():
    engine = make_engine(num_blocks=10, block_size=4)
    engine.submit(make_request(8, 5, params={"n": 3, **HOT}))
    assert not any(record.plan.copies for record in run_checked(engine))


def test_16_every_branch_writes_what_it_writes_alone():
    wide = make_engine(num_blocks=40, block_size=4)
    rid = wide.submit(make_request(6, 9, params={"n": 3, **HOT}))
    run_checked(wide)
    for fields in ({"prefix": "hash"}, {"preempt": "swap", "host_blocks": 4}, {}):
        tight = make_engine(num_blocks=6, block_size=4, max_num_seqs=3, **fields)
        tight.submit(make_request(6, 9, params={"n": 3, **HOT}, request_id=rid))
        run_checked(tight)
        assert tight.metrics.preemptions > 0
        assert tight.requests[rid].outputs == wide.requests[rid].outputs


def test_17_finish_and_abort_in_one_step():
    engine = make_engine(num_blocks=4)
    engine.submit(make_request(4, 1, request_id="A"))
    engine.step()
    engine.abort("A")
    engine.abort("A")
    assert sorted(engine.pool.free_ids()) == [0, 1, 2, 3]
    engine.check()


def test_18_one_branch_is_aborted_and_its_siblings_go_on():
    whole = make_engine(num_blocks=20)
    rid = whole.submit(make_request(6, 6, params={"n": 3, **HOT}))
    run_checked(whole)
    engine = make_engine(num_blocks=20)
    engine.submit(make_request(6, 6, params={"n": 3, **HOT}, request_id=rid))
    engine.step()
    engine.step()
    engine.abort(f"{rid}/1")
    run_checked(engine)
    state = engine.requests[rid]
    assert state.finish_reasons == ["length", "abort", "length"]
    assert len(state.outputs[1]) == 2
    assert [state.outputs[k] for k in (0, 2)] == [whole.requests[rid].outputs[k] for k in (0, 2)]
    assert engine.pool.num_free == 20


def test_18_abort_while_swapped_gives_the_host_back():
    engine = make_engine(num_blocks=3, preempt="swap", host_blocks=3)
    engine.submit(make_request(6, 6, request_id="A"))
    engine.submit(make_request(4, 6, request_id="B"))
    while engine.requests["B"].sequences[0].status is not Status.SWAPPED:
        engine.step()
    assert engine.host.num_free < 3
    engine.abort("B")
    engine.check()
    assert engine.host.num_free == 3
    run_checked(engine)


def test_19_swapped_out_nothing_is_computed_twice():
    engine = make_counting_engine(num_blocks=4, preempt="swap", host_blocks=3)
    engine.submit(make_request(6, 6, request_id="A"))
    engine.submit(make_request(5, 6, request_id="B"))
    records = run_checked(engine)
    computed = sum(r.plan.num_scheduled_tokens.get("B/0", 0) for r in records)
    assert computed == 5 + 6 - 1
    assert engine.metrics.recomputed_tokens == 0
    out, back = ([e for r in records for e in events(r, code)] for code in (Code.SWAP_OUT, Code.SWAP_IN))
    assert len(out) == len(back) == engine.metrics.preemptions == 1
    assert engine.metrics.bytes_swapped == out[0].detail["bytes"] + back[0].detail["bytes"]
    assert out[0].detail == {"blocks": 2, "bytes": 2 * 4 * 65_536}


def test_without_room_on_the_host_it_is_dropped_and_says_so():
    engine = make_engine(num_blocks=4, preempt="swap", host_blocks=1)
    engine.submit(make_request(6, 6, request_id="A"))
    engine.submit(make_request(5, 6, request_id="B"))
    records = run_checked(engine)
    full = [e for r in records for e in events(r, Code.SWAP_FULL)]
    assert full[0].detail == {"needed": 2, "free": 1}
    assert engine.metrics.recomputed_tokens > 0


def test_a_disk_takes_what_the_host_cannot():
    engine = make_engine(num_blocks=4, preempt="swap", host_blocks=1, disk_blocks=4)
    engine.submit(make_request(6, 6, request_id="A"))
    engine.submit(make_request(5, 6, request_id="B"))
    records = run_checked(engine)
    assert [host for r in records for _, pairs in r.plan.swap_out for _, host in pairs] == [0, 1]
    assert {r.plan.host_blocks for r in records} == {1}


def test_branches_take_their_slots_from_admission_on():
    engine = make_engine(num_blocks=20, max_num_seqs=4, max_num_batched_tokens=4)
    engine.submit(make_request(8, 3, params={"n": 3, **HOT}, request_id="wide"))
    engine.submit(make_request(2, 3, params={"n": 2, **HOT}, request_id="next"))
    engine.step()
    record = engine.step()
    assert codes(record, "next") == ["SLOTS"]
    records = run_checked(engine)
    assert engine.requests["next"].finish_reasons == ["length", "length"]
    assert any("ADMITTED" in codes(r, "next") for r in records)


def test_more_replies_than_slots_are_refused_and_greedy_copies_are_an_error():
    engine = make_engine(max_num_seqs=2)
    with pytest.raises(CapacityError) as caught:
        engine.submit(make_request(2, 2, params={"n": 3, **HOT}))
    assert caught.value.reason == "TOO_BIG"
    with pytest.raises(ValidationError):
        make_request(2, 2, params={"n": 2})
    with pytest.raises(ValidationError):
        make_engine(kv="max").submit(make_request(2, 2, params={"n": 2, **HOT}))


def test_a_trace_with_hits_forks_and_swaps_is_read_back_and_replayed():
    engine = make_engine(num_blocks=7, block_size=4, max_num_seqs=4, prefix="hash", preempt="swap", host_blocks=3)
    for turn in range(5):
        engine.submit(make_request(6 + turn, 7, params={"n": 2, **HOT}))
    records = run_checked(engine)
    trace = type(engine.trace).from_json(engine.trace.to_json())
    assert trace == engine.trace
    assert list(trace.records()) == records
    assert any(r.plan.swap_in for r in records)
    assert any(r.plan.copies for r in records)


@pytest.mark.parametrize("preempt", ["recompute", "swap"])
def test_watermark_and_preemption_are_priced_on_one_trace(preempt):
    def run(watermark):
        engine = make_counting_engine(
            num_blocks=40, block_size=4, max_num_seqs=16, watermark=watermark, preempt=preempt, host_blocks=40
        )
        for i in range(40):
            engine.submit(make_request(range(1000 * i, 1000 * i + 6 + i % 5), 10 + i % 7))
        run_checked(engine)
        return engine.metrics

    eager, careful = run(0.0), run(0.05)
    assert min(eager.preemptions, careful.preemptions) > 0
    assert (eager.recomputed_tokens == 0) == (preempt == "swap")
    assert (eager.bytes_swapped > 0) == (preempt == "swap")


def test_the_runner_reads_swapped_cells_where_the_plan_puts_them():
    class Forgetful(FakeRunner):
        def run(self, plan):
            from dataclasses import replace

            return super().run(replace(plan, swap_in=(), swap_out=()))

    texts = []
    for runner in (FakeRunner(), Forgetful()):
        engine = make_engine(num_blocks=3, preempt="swap", host_blocks=3, runner=runner)
        engine.submit(make_request(6, 6, request_id="A"))
        engine.submit(make_request(range(30, 34), 6, request_id="B"))
        engine.run()
        texts.append(engine.requests["B"].outputs)
    assert texts[0] != texts[1]
