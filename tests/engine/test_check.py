"""`check()` finds a planted corruption of each kind."""

import pytest

from engine import InvariantError, Status
from tests.factories import make_counting_engine, make_engine, make_request


def corrupt_free_queue(e):
    e.pool._next[e.pool._prev[e.pool.num_blocks]] = e.pool._next[e.pool.num_blocks]
    e.pool._next[e.pool._next[e.pool._next[e.pool.num_blocks]]] = e.pool.num_blocks


def corrupt_free_count(e):
    e.pool.num_free += 1


def corrupt_reference(e):
    e.pool._ref[running(e).block_table[0]] += 1


def corrupt_free_but_held(e):
    e.pool._ref[e.pool.free_ids()[0]] = 1


def corrupt_table_entry(e):
    running(e).block_table[0] = running(e, 1).block_table[0]


def corrupt_table_length(e):
    running(e).block_table.append(e.pool.take(1)[0])


def corrupt_computed(e):
    running(e).num_computed_tokens += 50


def corrupt_status(e):
    running(e).status = Status.WAITING


def corrupt_two_queues(e):
    e.scheduler.running.append(e.scheduler.waiting.head)


def corrupt_lost_request(e):
    e.scheduler.waiting.pop()


def corrupt_slot(e):
    running(e).slot = running(e, 1).slot


def corrupt_finish_reason(e):
    running(e).finish_reason = "length"


def corrupt_runner_table(e):
    seq_id = running(e).id
    e.last_plan.block_tables[seq_id] = (9, *e.last_plan.block_tables[seq_id][1:])


def corrupt_leak(e):
    e.pool.take(1)


def running(engine, index=0):
    return engine.scheduler.running[index]


@pytest.mark.parametrize("corrupt", [f for name, f in sorted(globals().items()) if name.startswith("corrupt_")])
def test_finds(corrupt):
    engine = make_engine(num_blocks=12, max_num_seqs=2)
    for i in range(4):
        engine.submit(make_request(5 + i, 9))
    engine.step()
    engine.step()
    engine.check()
    corrupt(engine)
    with pytest.raises(InvariantError):
        engine.check()


def test_finds_a_wrong_free_run():
    engine = make_counting_engine(num_blocks=20, block_size=1, kv="oracle")
    engine.submit(make_request(4, 4))
    engine.step()
    engine.check()
    engine.kv._free_runs[0] = (9, 11)
    with pytest.raises(InvariantError):
        engine.check()
