"""Paged and contiguous managers on exact ids and slots."""

import pytest

from engine import CapacityError
from tests.factories import codes, make_counting_engine, make_engine, make_request, run_checked


def submit_all(engine, *pairs):
    return [engine.submit(make_request(p, m, request_id=str(i))) for i, (p, m) in enumerate(pairs, 1)]


def test_lengths_of_the_exercise():
    engine = make_counting_engine(num_blocks=12, block_size=16)
    for length in (7, 16, 31, 48, 63):
        engine.submit(make_request(length, 1))
    record = engine.step()
    assert list(record.plan.block_tables.values()) == [(0,), (1,), (2, 3), (4, 5, 6), (7, 8, 9, 10)]
    assert record.usage.tail_waste == 11
    assert record.usage.held_blocks == 11


@pytest.mark.parametrize(("kv", "total"), [("max", 128), ("pow2", 54), ("oracle", 44)])
def test_reservations_trap_27(kv, total):
    limit = {"max_model_len": 32} if kv == "max" else {}
    engine = make_counting_engine(num_blocks=200, block_size=1, kv=kv, **limit)
    submit_all(engine, (5, 3), (6, 9), (3, 2), (10, 6))
    record = engine.step()
    assert record.usage.held_blocks == total
    assert record.usage.live == 24


def test_pow2_is_capped_by_the_limit():
    engine = make_counting_engine(num_blocks=200, block_size=1, kv="pow2", max_model_len=16)
    engine.submit(make_request(6, 9))
    assert engine.step().usage.held_blocks == 16


def test_paged_counts_of_the_same_requests():
    """48 slots in final lengths p + o; the engine itself counts p + o − 1: 44 slots held, 40 live."""
    engine = make_counting_engine(num_blocks=50, block_size=4, max_num_seqs=4)
    submit_all(engine, (5, 3), (6, 9), (3, 2), (10, 6))
    final = {}
    for record in run_checked(engine):
        for seq_id, table in record.plan.block_tables.items():
            computed = record.plan.num_computed_tokens[seq_id] + record.plan.num_scheduled_tokens[seq_id]
            final[seq_id] = (len(table) * 4, computed)
    assert sum(slots for slots, _ in final.values()) == 44
    assert sum(live for _, live in final.values()) == 40
    assert sum(-(-(p + o) // 4) * 4 for p, o in ((5, 3), (6, 9), (3, 2), (10, 6))) == 48


def scene(kv, blocks, size):
    engine = make_counting_engine(num_blocks=blocks, block_size=size, kv=kv)
    submit_all(engine, (9, 7), (6, 4), (10, 6))
    for _ in range(4):
        last = engine.step()
        engine.check()
    assert codes(last, "2")[-1] == "FINISHED"
    assert engine.requests["2"].finish_reason == "length"
    engine.submit(make_request(9, 3, request_id="4"))
    record = engine.step()
    engine.check()
    return engine, record


def test_scripted_scene_contiguous():
    engine, record = scene("max", 48, 1)
    assert "NO_RUN(10)" in repr(record.events)
    assert engine.kv.free_runs == [(16, 10), (42, 6)]
    assert record.usage.hole == 16
    assert record.usage.live == 27  # 56.25% of 48, shown as 56.3%
    assert sorted(engine.block_tables()) == ["1/0", "3/0"]


def test_scripted_scene_paged():
    engine, record = scene("paged", 12, 4)
    assert engine.block_tables()["4/0"] == [11, 8, 4]
    assert record.usage.live == 36
    assert record.usage.live / record.usage.pool_slots == 0.75


def test_contiguous_hole_example():
    """Free slots in runs of 6, 5, 5; twelve are needed: NO_RUN(6), 16 free; paged admits the same request."""
    engine = make_counting_engine(num_blocks=36, block_size=1, kv="oracle")
    lengths = {"a": 6, "x": 10, "b": 5, "y": 10, "c": 5}
    for name, total in lengths.items():
        engine.submit(make_request(total - 2, 2, request_id=name))
    engine.step()
    for name in "abc":
        engine.abort(name)
    engine.check()
    assert [length for _, length in engine.kv.free_runs] == [6, 5, 5]
    engine.submit(make_request(10, 2, request_id="late"))
    record = engine.step()
    assert "NO_RUN(6)" in repr(record.events)
    decision = next(d for d in record.plan.decisions if d.request_id == "late")
    assert decision.detail == {"largest_run": 6, "needed": 12, "free": 16}
    paged = make_counting_engine(num_blocks=9, block_size=4)
    for name in "xy":
        paged.submit(make_request(8, 2, request_id=name))
    paged.step()
    paged.submit(make_request(10, 2, request_id="late"))
    assert "ADMITTED" in codes(paged.step(), "late")


def test_best_fit_takes_the_smallest_run():
    for fit, expected in (("first", 0), ("best", 10)):
        engine = make_counting_engine(num_blocks=20, block_size=1, kv="oracle", fit=fit)
        for name, total in (("a", 6), ("x", 4), ("b", 5), ("y", 5)):
            engine.submit(make_request(total - 2, 2, request_id=name))
        engine.step()
        engine.abort("a")
        engine.abort("b")
        engine.submit(make_request(3, 2, request_id="new"))
        record = engine.step()
        assert record.plan.block_tables["new/0"][0] == expected


@pytest.mark.parametrize("kv", ["paged", "max", "pow2", "oracle"])
def test_usage_always_adds_up(kv):
    engine = make_counting_engine(num_blocks=30, block_size=3, kv=kv, max_num_seqs=4)
    for i in range(12):
        engine.submit(make_request(1 + i % 5, 2 + i % 7, output_len=1 + i % 4))
    for record in run_checked(engine):
        assert record.usage.pool_slots == 90
    assert engine.pool.num_free == 30


def test_refused_when_it_can_never_fit():
    engine = make_engine(num_blocks=3, block_size=1, kv="max")
    with pytest.raises(CapacityError) as caught:
        engine.submit(make_request(2, 2, request_id="big"))
    assert (caught.value.reason, caught.value.request_id) == ("TOO_BIG", "big")
    assert engine.requests["big"].finish_reason == "refused"
    assert engine.step() is None
