"""Traces: replayed exactly, read back equal, the same bytes for the same seed; exports and lanes."""

import contextlib
import csv
import io
import json
import random

import pytest

from engine import CapacityError, CountingRunner, Engine, EngineConfig, FakeRunner, Trace, ValidationError
from engine.config import POLICIES
from engine.export import to_chrome, to_csv
from engine.simulate import simulate
from engine.workload import from_lengths, real64
from tests.factories import make_request


def busy_engine(runner, policy="continuous", kv="paged", order="fcfs", seed=1):
    """A run with everything in it: refusals, arrivals, aborts, chunks, preemption."""
    rng = random.Random(seed)
    engine = Engine(
        EngineConfig(
            num_blocks=9, block_size=3, max_num_seqs=4, max_num_batched_tokens=7, policy=policy, kv=kv, order=order
        ),
        runner=runner,
    )
    records = []
    for i in range(25):
        with contextlib.suppress(CapacityError):
            engine.submit(
                make_request(rng.randint(1, 14), rng.randint(1, 15), priority=rng.randint(0, 2), arrival=i * 1.5)
            )
    while True:
        if rng.random() < 0.05:
            engine.abort(rng.choice(sorted(engine.requests)))
        record = engine.step()
        if record is None:
            return engine, records
        records.append(record)


@pytest.mark.parametrize("order", ["fcfs", "priority"])
@pytest.mark.parametrize("kv", ["paged", "oracle"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_step_comes_back(policy, kv, order):
    engine, records = busy_engine(FakeRunner(), policy, kv, order)
    again = list(engine.trace.records())
    assert len(again) == len(records) > 30
    for before, after in zip(records, again, strict=True):
        assert after == before
    read = Trace.from_json(engine.trace.to_json())
    assert read == engine.trace
    assert list(read.records()) == records


def test_same_seed_same_bytes():
    first, _ = busy_engine(FakeRunner())
    second, _ = busy_engine(FakeRunner())
    other, _ = busy_engine(FakeRunner(), seed=2)
    assert first.trace.to_json() == second.trace.to_json()
    assert first.trace.to_json() != other.trace.to_json()


def test_schedules_agree_whatever_runs():
    fake, _ = busy_engine(FakeRunner())
    counting, _ = busy_engine(CountingRunner())
    assert fake.trace.same_schedule(counting.trace)
    assert fake.trace != counting.trace
    static, _ = busy_engine(CountingRunner(), policy="static")
    assert not static.trace.same_schedule(counting.trace)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', "null"])
def test_rubbish_is_no_trace(text):
    with pytest.raises(ValidationError):
        Trace.from_json(text)


def cells(lanes):
    """(slot, step) of every segment and of every idle run."""
    segs = [lanes["segs"][i : i + 5] for i in range(0, len(lanes["segs"]), 5)]
    idle = [lanes["idle"][i : i + 4] for i in range(0, len(lanes["idle"]), 4)]
    busy = [(s, t) for s, start, length, *_ in segs for t in range(start, start + length)]
    empty = [(s, t) for s, start, length, _ in idle for t in range(start, start + length)]
    return busy, empty


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_cover_every_cell_once(policy):
    engine, _ = busy_engine(FakeRunner(), policy)
    lanes = engine.trace.lanes()
    busy, empty = cells(lanes)
    everything = [(s, t) for s in range(lanes["slots"]) for t in range(lanes["span"])]
    assert sorted(busy + empty) == everything
    assert lanes["useful_cells"] == engine.metrics.useful_cells
    assert lanes["utilisation"] == engine.metrics.utilisation(4)
    json.dumps(lanes)


def test_lanes_of_the_real_lengths():
    lanes = simulate(real64(), policy="static", slots=8).trace.lanes()
    assert (lanes["steps"], lanes["span"], lanes["requests"]) == (2116, 2116, 64)
    idle = [lanes["idle"][i : i + 4] for i in range(0, len(lanes["idle"]), 4)]
    kinds = {k: sum(gap[2] for gap in idle if gap[3] == k) for k in (0, 1, 2)}
    assert sum(kinds.values()) == 8 * 2116 - 9939
    assert kinds[2] == 0
    assert [entry[:3] for entry in lanes["log"][8:10]] == [[0, 8, "SLOTS"], [1, 8, "WAIT_BATCH"]]


def test_lanes_know_why_a_slot_is_empty():
    workload = from_lengths([3, 1])
    late = type(workload)((workload.items[0], workload.items[1].__class__(output_tokens=1, arrival=9)), "late")
    lanes = simulate(late, slots=1).trace.lanes()
    assert lanes["idle"] == [0, 3, 6, 2]


def test_a_static_gap_in_which_somebody_waits_is_idle():
    workload = from_lengths([1, 1]).with_bursts(1, 6)
    lanes = simulate(workload, slots=2, policy="static").trace.lanes()
    assert lanes["span"] == 7
    assert lanes["idle"] == [0, 0, 6, 0, 1, 0, 6, 0]
    assert lanes["waiting"] == [[0, 1], [6, 0]]
    assert lanes["running"] == [[0, 0], [6, 2]]


def test_csv_and_chrome_exports():
    engine, _ = busy_engine(FakeRunner())
    rows = list(csv.DictReader(io.StringIO(to_csv(engine.trace))))
    assert len(rows) == len(engine.trace.rows["seq"])
    assert sum(r["sampled"] != "" for r in rows) == engine.metrics.useful_cells
    chrome = json.loads(to_chrome(engine.trace))["traceEvents"]
    assert all(e["ph"] in "MXCi" and "pid" in e for e in chrome)
    assert all(e["dur"] > 0 for e in chrome if e["ph"] == "X")
    assert {e["name"] for e in chrome if e["ph"] == "i"} >= {"ADMITTED", "FINISHED", "PREEMPTED_BY"}
