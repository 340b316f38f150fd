"""BlockPool: order of the free queue, counts, errors that change nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.pool import BlockPool, BlockPoolError


def test_takes_from_the_left_and_returns_to_the_right():
    pool = BlockPool(5)
    assert pool.free_ids() == [0, 1, 2, 3, 4]
    assert pool.take(3) == [0, 1, 2]
    assert pool.release(1)
    assert pool.release(0)
    assert pool.free_ids() == [3, 4, 1, 0]
    assert pool.take(3) == [3, 4, 1]


def test_too_few_blocks_gives_none_and_changes_nothing():
    pool = BlockPool(3)
    pool.take(1)
    before = pool.free_ids(), [pool.ref(i) for i in range(3)], pool.num_free
    assert pool.take(3) is None
    assert before == (pool.free_ids(), [pool.ref(i) for i in range(3)], pool.num_free)


def test_a_block_leaves_the_middle_of_the_queue():
    pool = BlockPool(5)
    assert pool.take_ids([2, 4]) == [2, 4]
    assert pool.free_ids() == [0, 1, 3]
    with pytest.raises(BlockPoolError):
        pool.take_ids([0, 2])
    assert pool.free_ids() == [0, 1, 3]


def test_shared_blocks_are_free_after_the_last_release():
    pool = BlockPool(2)
    pool.take(1)
    pool.share(0)
    assert pool.ref(0) == 2
    assert not pool.release(0)
    assert pool.release(0)
    with pytest.raises(BlockPoolError):
        pool.release(0)
    with pytest.raises(BlockPoolError):
        pool.share(0)


@given(st.lists(st.integers(0, 3), max_size=80))
def test_agrees_with_a_plain_list(actions):
    pool, free, held = BlockPool(6), list(range(6)), []
    for action in actions:
        if action == 0:
            taken = pool.take(2)
            assert taken == (free[:2] if len(free) >= 2 else None)
            if taken:
                held += taken
                free = free[2:]
        elif action == 1 and held:
            block = held.pop(0)
            pool.release(block)
            free.append(block)
        elif action == 2 and free:
            block = free.pop(len(free) // 2)
            held += pool.take_ids([block])
        assert pool.free_ids() == free
        assert pool.num_free == len(free)
