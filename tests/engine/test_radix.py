"""RadixIndex: the shape of the tree, locks and eviction. What it has in common with the others: test_hash_chain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pool import BlockPool
from engine.radix import RadixIndex
from tests.engine.test_hash_chain import check_tree, entered


def shape(index):
    """Label and blocks of every node, parents first."""
    return [(node.label, node.blocks) for node in index.nodes()]


def all_locks(index):
    return sum(node.locks for node in index.nodes())


def test_insert_match_lock_evict():
    index = entered(RadixIndex(4), range(12), [0, 1, 2])
    assert index.match((*range(8), 99)).blocks == (0, 1)
    place = index.lock(range(8))
    assert [(node.label, node.locks) for node in index.nodes()] == [(tuple(range(8)), 1), (tuple(range(8, 12)), 0)]
    assert len({node.used for node in index.nodes()}) == 1
    assert index.evict(99) == [2]
    assert len(index) * 4 == 8
    assert index.match(range(12)).blocks == (0, 1)
    index.unlock(place)
    assert index.evict(99) == [1, 0]
    assert len(index) == 0
    assert not list(index.nodes())
    assert not index.root.children
    index.unlock(place)
    assert index.root.locks == 0


def test_each_childs_key_is_the_first_page_of_its_label():
    index = entered(RadixIndex(4), range(12), [0, 1, 2])
    entered(index, (*range(8), 50, 51, 52, 53), [0, 1, 3])
    entered(index, (*range(4), 60, 61, 62, 63), [0, 4])
    assert shape(index) == [
        (tuple(range(4)), [0]),
        (tuple(range(4, 8)), [1]),
        (tuple(range(8, 12)), [2]),
        ((50, 51, 52, 53), [3]),
        ((60, 61, 62, 63), [4]),
    ]
    check_tree(index)


def test_runs_part_between_blocks_only():
    index = entered(RadixIndex(4), range(8), [0, 1])
    entered(index, (0, 1, 2, 9, 4, 5, 6, 7), [2, 3])
    assert shape(index) == [(tuple(range(8)), [0, 1]), ((0, 1, 2, 9, 4, 5, 6, 7), [2, 3])]


def test_a_leaf_grows_in_place_also_by_another_sequence():
    index = RadixIndex(2)
    for tokens in range(2, 41):
        index.publish("a", range(tokens), list(range(20)))
    index.forget("a")
    entered(index, range(44), list(range(22)), "b")
    assert shape(index) == [(tuple(range(44)), list(range(22)))]


def test_a_step_costs_the_new_blocks_and_not_the_length():
    class Counting(list):
        reads = 0

        def __getitem__(self, at):
            Counting.reads += 1
            return super().__getitem__(at)

    index, tokens, table = RadixIndex(4), Counting(range(4000)), list(range(1000))
    index.publish("a", tokens, table)
    before = Counting.reads
    tokens.extend(range(4000, 4004))
    index.publish("a", tokens, [*table, 1000])
    assert Counting.reads - before == 1
    assert len(index) == 1001


def test_splits_keep_lock_counts_right():
    index = RadixIndex(2)
    index.publish("a", range(8), [0, 1, 2, 3])
    first = index.lock(range(8))
    second = index.lock(range(4))
    assert [(node.blocks, node.locks) for node in index.nodes()] == [([0, 1], 3), ([2, 3], 2)]
    index.publish("b", (0, 1, 70, 71), [0, 9])
    assert [(n.blocks, n.locks) for n in index.nodes()] == [([0], 4), ([1], 3), ([2, 3], 2), ([9], 1)]
    assert index.evict(99) == []
    index.unlock(second)
    index.forget("b")
    assert index.evict(99) == [9]
    index.forget("a")
    assert index.evict(99) == []
    index.unlock(first)
    assert all_locks(index) == 0
    assert index.evict(99) == [3, 2, 1, 0]


def test_sequences_at_work_lock_what_they_published():
    index = RadixIndex(2)
    index.publish("a", range(8), [0, 1, 2, 3])
    index.publish("b", range(4), [0, 1])
    index.forget("a")
    assert index.evict(1) == []  # b stands in the middle of the run, which is locked as a whole until runs part
    index.publish("b", (*range(4), 80, 81), [0, 1, 4])
    assert index.evict(99) == [3, 2]
    index.forget("b")
    assert all_locks(index) == 0
    assert index.evict(99) == [4, 1, 0]


@pytest.mark.parametrize("goes_on_with", [(2, 3), (90, 91)])
def test_a_sequence_in_the_upper_half_of_a_split_goes_on_from_there(goes_on_with):
    index = RadixIndex(1)
    entered(index, range(6), list(range(6)))
    index.publish("b", (0, 1), [0, 1])
    index.publish("c", (0, 1, 2, 3, 80), [0, 1, 2, 3, 8])
    assert index.evict(99) == []  # the lower half has kept the lock until b moves
    index.publish("b", (0, 1, *goes_on_with), [0, 1, 6, 7])
    check_tree(index)
    assert index.match((0, 1, *goes_on_with, 0)).blocks == ((0, 1, 2, 3) if goes_on_with == (2, 3) else (0, 1, 6, 7))
    assert index.evict(99) == [5, 4]
    index.forget("b")
    index.forget("c")
    assert all_locks(index) == 0


def test_the_least_recently_used_leaf_goes_first_and_its_tail_first():
    index = entered(RadixIndex(2), (1, 1, 2, 2, 3, 3), [0, 1, 2])
    entered(index, (1, 1, 4, 4, 5, 5), [0, 3, 4])
    entered(index, (6, 6), [5])
    index.match((1, 1, 2, 2, 3, 3, 0))
    assert index.evict(1) == [4]
    assert index.evict(2) == [3, 5]
    assert index.evict(0) == []
    assert index.evict(9) == [2, 1, 0]


def test_publishing_is_use():
    index = RadixIndex(2)
    index.publish("a", (1, 1), [0])
    index.publish("b", (2, 2), [1])
    index.publish("a", (1, 1, 3, 3), [0, 2])
    index.forget("a")
    index.forget("b")
    assert index.evict(2) == [1, 2]


def test_what_hangs_below_a_dropped_block_goes_with_it():
    index = entered(RadixIndex(2), (1, 1, 2, 2, 3, 3), [0, 1, 2])
    entered(index, (1, 1, 2, 2, 4, 4), [0, 1, 3])
    assert sorted(index.drop(1)) == [1, 2, 3]
    assert shape(index) == [((1, 1), [0])]
    entered(index, (1, 1, 2, 2), [0, 7])
    assert index.match((1, 1, 2, 2, 3, 3, 0)).blocks == (0, 7)


@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_a_sequence_whose_path_was_dropped_enters_nothing_more_and_leaves_no_lock(blocks):
    index = RadixIndex(2)
    index.publish("a", range(6), [0, 1, 2])
    index.publish("b", range(2 * blocks), [5, 6, 7, 8])  # stands on a's blocks, which its table does not hold
    index.forget("a")
    assert index.drop(1) == ((1, 2, 8) if blocks == 4 else (1, 2))
    other = (0, 1, *range(90, 88 + 2 * blocks))
    entered(index, other, [0, 11, 12, 13], "c")  # as long as what was published of b
    index.publish("b", range(12), [5, 6, 7, 8, 9, 10])
    check_tree(index)
    assert len(index) == blocks
    assert index.match((*other, 0)).blocks == (0, 11, 12, 13)[:blocks]
    assert index.match(range(12)).blocks == (0,)
    index.forget("b")
    assert all_locks(index) == 0


def test_what_grows_beyond_a_lock_is_not_locked_by_it():
    index = entered(RadixIndex(2), range(4), [0, 1])
    place = index.lock(range(4))
    entered(index, range(8), [0, 1, 2, 3], "b")
    assert index.evict(99) == [3, 2]
    index.unlock(place)
    assert index.evict(99) == [1, 0]


def test_a_drop_beyond_a_sequence_in_the_middle_of_a_run_leaves_it_its_part():
    index = RadixIndex(2)
    index.publish("a", range(8), [0, 1, 2, 3])
    index.publish("b", range(4), [0, 1])
    index.forget("a")
    assert index.drop(2) == (2, 3)
    index.publish("b", range(6), [0, 1, 4])
    check_tree(index)
    assert index.match(range(8)).blocks == (0, 1, 4)
    index.forget("b")
    assert all_locks(index) == 0


def test_a_hundred_retracts_leak_neither_blocks_nor_locks():
    pool, index = BlockPool(4), RadixIndex(4)
    prompt = tuple(range(10))  # not a multiple of the page
    for _ in range(100):
        table = list(index.match(prompt).blocks)
        pool.take_ids(table)
        new = pool.take(3 - len(table))
        for block in new:
            index.drop(block)
        table += new
        index.publish("a", prompt, table)
        for block in reversed(table):
            pool.release(block)
        index.forget("a")
        cached = sum(pool.is_free(block) and block in index for block in range(4))
        assert pool.num_held + pool.num_free == 4
        assert cached == len(index) == 2
        assert all_locks(index) == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), max_size=8)), max_size=40))
def test_what_is_locked_is_never_evicted(actions):
    index, fresh, held = RadixIndex(2), iter(range(10_000)), []
    for kind, tokens in actions:
        if kind == 0:
            known = index.match([*tokens, 0]).blocks
            entered(index, tokens, [*known, *(next(fresh) for _ in range(4))])
        elif kind == 1:
            place = index.lock(tokens)
            held.append((index.match([*tokens, 0]).blocks[: place.depth], place))
        elif kind == 2 and held:
            index.unlock(held.pop()[1])
        else:
            before = len(index)
            evicted = index.evict(len(tokens))
            assert before - len(index) == len(evicted) == len(set(evicted)) <= len(tokens)
            assert not any(block in index for block in evicted)
        assert all(block in index for blocks, _ in held for block in blocks)
    locked = {block for blocks, _ in held for block in blocks}
    index.evict(10_000)
    assert {block for node in index.nodes() for block in node.blocks} == locked
    for _, place in held:
        index.unlock(place)
    assert all_locks(index) == 0
    index.evict(10_000)
    assert len(index) == 0
