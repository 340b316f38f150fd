"""HashChainIndex, and what the three indexes have in common: the same small scenarios, and random work on a small pool.

`World` drives an index as the engine does, over a BlockPool: look up, take hits and new blocks, compute in pieces,
publish, give back. `Naive` says what the index must know, in plain dictionaries from token prefixes to blocks.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.hash_chain import HashChainIndex
from engine.pool import BlockPool
from engine.radix import RadixIndex
from engine.snapshot import SnapshotIndex


def constant_hash(block_size):
    return HashChainIndex(block_size, hash_of=lambda _: 7)


def snapshot_everywhere(block_size):
    return SnapshotIndex(block_size, block_size)


ALL = pytest.mark.parametrize("make", [HashChainIndex, constant_hash, RadixIndex, snapshot_everywhere])


def entered(index, tokens, table, seq_id="a"):
    """Publish a finished sequence."""
    index.publish(seq_id, tokens, table)
    index.forget(seq_id)
    return index


@ALL
@pytest.mark.parametrize("b", [1, 3, 4, 16, 256])
def test_a_hit_leaves_the_last_token_to_compute(make, b):
    index = entered(make(b), range(2 * b), [0, 1])
    found = index.match(range(2 * b))
    assert (found.blocks, found.stopped_at, found.why) == ((0,), 1, "last_token")
    found = index.match(range(2 * b + 1))
    assert (found.blocks, found.stopped_at) == ((0, 1), 2)
    assert found.why == ("last_token" if b == 1 else "partial")
    assert index.match(range(4 * b)).why == "absent"
    assert index.match([0]).blocks == ()


@ALL
def test_only_full_blocks_are_entered_and_each_as_it_fills(make):
    index = make(4)
    index.publish("a", range(7), [5, 9])
    assert len(index) == 1
    assert 5 in index
    assert 9 not in index
    index.publish("a", range(8), [5, 9])
    index.publish("a", range(9), [5, 9, 2])
    assert len(index) == 2
    assert index.content(9) == tuple(range(8))
    assert index.match(range(9)).blocks == (5, 9)
    with pytest.raises(KeyError):
        index.content(2)


@ALL
def test_the_entry_goes_when_the_block_is_reused(make):
    index = entered(make(4), (1, 2, 3, 4), [0])
    assert index.drop(0) == (0,)
    entered(index, (5, 6, 7, 8), [0], "b")
    assert index.match((1, 2, 3, 4, 9)).blocks == ()
    assert index.match((5, 6, 7, 8, 9)).blocks == (0,)
    assert index.drop(3) == ()


@ALL
def test_the_first_of_two_equal_blocks_stands_for_both(make):
    index = make(4)
    index.publish("a", range(4), [0])
    index.publish("b", range(4), [1])
    assert index.match(range(5)).blocks == (0,)
    assert 1 not in index
    assert index.drop(1) == ()
    index.publish("b", range(8), [1, 2])
    assert index.match(range(9)).blocks == (0, 2)
    index.drop(0)
    index.publish("b", range(9), [1, 2, 3])
    assert index.match(range(9)).blocks == ()
    index.forget("b")
    index.publish("b", range(9), [1, 2, 3])
    assert index.match(range(9)).blocks == (1, 2)


@ALL
def test_a_block_has_one_entry(make):
    index = entered(make(2), (1, 1), [0])
    entered(index, (2, 2, 3, 3), [0, 1], "b")
    assert index.content(0) == (1, 1)
    assert index.match((2, 2, 3, 3, 0)).blocks == ()


@ALL
def test_equal_blocks_under_different_beginnings_are_different(make):
    index = entered(make(2), (1, 1, 5, 5), [0, 1])
    entered(index, (2, 2, 5, 5), [2, 3], "b")
    assert index.match((1, 1, 5, 5, 0)).blocks == (0, 1)
    assert index.match((2, 2, 5, 5, 0)).blocks == (2, 3)
    assert index.match((3, 3, 5, 5, 0)).blocks == ()
    assert index.match((5, 5, 5, 5, 0)).blocks == ()


@ALL
def test_the_tail_goes_before_the_beginning(make):
    pool, index = BlockPool(4), make(4)
    table = pool.take(4)
    entered(index, range(16), table)
    for block in reversed(table):
        pool.release(block)
    assert pool.take(1) == [3]
    assert index.drop(3) == (3,)
    assert index.match(range(17)).blocks == (0, 1, 2)


def test_hash_chain_finds_a_child_again_when_its_parent_is_published_anew():
    index = entered(HashChainIndex(2), range(6), [0, 1, 2])
    assert index.drop(0) == (0,)
    assert len(index) == 2
    assert index.match(range(7)).blocks == ()
    entered(index, range(2), [7])
    assert index.match(range(7)).blocks == (7, 1, 2)


def test_hash_chain_says_which_block_stands_for_a_sequences_own():
    index = entered(HashChainIndex(2), range(4), [0, 1])
    index.publish("b", range(6), [5, 6, 7])
    assert [index.entry("b", i) for i in range(3)] == [0, 1, 7]
    index.drop(1)
    assert index.entry("b", 1) is None


class Naive:
    """Token prefixes and their blocks; every look-up and every removal goes through all of them."""

    def __init__(self, block_size, kind, snapshot_tokens=None):
        self.b, self.kind, self.every = block_size, kind, snapshot_tokens
        self.blocks, self.states, self.branches = {}, set(), set()
        self.done, self.cut_off, self.hits = {}, set(), {}

    def match(self, tokens):
        known = 0
        while (known + 1) * self.b < len(tokens) and tokens[: (known + 1) * self.b] in self.blocks:
            known += 1
        hit = known
        if self.kind == "snapshot":
            while hit and tokens[: hit * self.b] not in self.states:
                hit -= 1
            if hit < known:
                self.branches.add(tokens[: known * self.b])
        return tuple(self.blocks[tokens[: (i + 1) * self.b]] for i in range(hit))

    def publish(self, seq_id, tokens, table, hit):
        done = self.done.get(seq_id, ())
        for end in range(len(done) + self.b, len(tokens) + 1, self.b):
            prefix, block = tokens[:end], table[end // self.b - 1]
            if seq_id not in self.cut_off:
                self.blocks.setdefault(prefix, block)
            wanted = self.every and (end % self.every == 0 or prefix in self.branches)
            if wanted and prefix in self.blocks and end > hit * self.b:
                self.states.add(prefix)
                self.branches.discard(prefix)
            self.done[seq_id] = prefix

    def forget(self, seq_id):
        self.done.pop(seq_id, None)
        self.cut_off.discard(seq_id)

    def drop(self, block):
        prefix = next((p for p, b in self.blocks.items() if b == block), None)
        if prefix is None:
            return set()
        gone = {prefix}
        if self.kind == "radix":
            gone = {p for p in self.blocks if p[: len(prefix)] == prefix}
            self.cut_off |= {seq for seq, done in self.done.items() if done[: len(prefix)] == prefix}
        self.states -= gone
        self.branches -= gone
        return {self.blocks.pop(p) for p in gone}


class World:
    """Sequences at work on a small pool, an index, and its naive twin; every answer is compared."""

    def __init__(self, index, naive, num_blocks=8):
        self.index, self.naive, self.pool = index, naive, BlockPool(num_blocks)
        self.b, self.num_blocks = naive.b, num_blocks
        self.written = {}  # block: all tokens up to its end, as last written
        self.at_work = {}  # sequence: tokens, table, hit, tokens computed
        self.started = 0

    def start(self, tokens):
        found, expected = self.index.match(tokens), self.naive.match(tokens)
        assert found.blocks == expected
        assert found.stopped_at == len(expected)
        for block in found.blocks:
            assert self.written[block] == self.index.content(block)
            self.pool.share(block) if self.pool.ref(block) else self.pool.take_ids([block])
        self.started += 1
        computed = len(found.blocks) * self.b
        self.at_work[f"s{self.started}"] = [tokens, list(found.blocks), len(found.blocks), computed]

    def compute(self, seq_id, upto):
        tokens, table, hit, computed = self.at_work[seq_id]
        upto = min(len(tokens), computed + upto)
        taken = self.pool.take(max(0, -(-upto // self.b) - len(table)))
        if taken is None:
            self.finish(seq_id)
            return
        for block in taken:
            gone = self.index.drop(block)
            assert len(set(gone)) == len(gone)
            assert set(gone) == self.naive.drop(block)
            assert not gone or gone[0] == block
        table += taken
        for i in range(computed // self.b, upto // self.b):
            self.written[table[i]] = tokens[: (i + 1) * self.b]
        self.at_work[seq_id][3] = upto
        self.index.publish(seq_id, tokens[:upto], table)
        self.naive.publish(seq_id, tokens[:upto], table, hit)

    def finish(self, seq_id):
        _, table, _, _ = self.at_work.pop(seq_id)
        while table:
            self.pool.release(table.pop())
        self.index.forget(seq_id)
        self.naive.forget(seq_id)

    def check(self):
        known = {block: prefix for prefix, block in self.naive.blocks.items()}
        assert len(self.index) == len(known) <= self.num_blocks
        for block in range(self.num_blocks):
            assert (block in self.index) == (block in known)
        for block, prefix in known.items():
            assert self.index.content(block) == prefix == self.written[block]
        if isinstance(self.index, SnapshotIndex):
            assert self.index.snapshots == {self.naive.blocks[p]: len(p) for p in self.naive.states}
            assert self.index._branches == {self.naive.blocks[p] for p in self.naive.branches}
        if isinstance(self.index, RadixIndex):
            check_tree(self.index)

    def play(self, actions):
        for kind, which, tokens in actions:
            names = sorted(self.at_work)
            if kind == "start" and len(names) < 4:
                self.start(tokens)
            elif names and kind == "finish":
                self.finish(names[which % len(names)])
            elif names:
                self.compute(names[which % len(names)], len(tokens))
            self.check()
        for seq_id in list(self.at_work):
            self.finish(seq_id)
        self.check()
        assert self.pool.num_free == self.num_blocks


def check_tree(index):
    """What holds of every radix tree between operations."""
    counts = {}
    for place in index._places.values():
        node = place.node
        while node is not index.root:
            counts[node] = counts.get(node, 0) + 1
            node = node.parent
    seen = []
    for node in index.nodes():
        assert node.pages
        assert len(node.pages) == len(node.blocks)
        assert all(len(page) == index.block_size for page in node.pages)
        assert node.parent.children[node.label[: index.block_size]] is node
        assert node.start == node.parent.start + len(node.parent.pages)
        assert node.locks == counts.get(node, 0)
        seen += node.blocks
    assert len(seen) == len(set(seen)) == len(index)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["start", "compute", "compute", "finish"]),
        st.integers(0, 3),
        st.lists(st.integers(0, 1), min_size=1, max_size=10).map(tuple),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, st.sampled_from([1, 2, 3]))
def test_agrees_with_plain_dictionaries(actions, b):
    World(HashChainIndex(b), Naive(b, "hash")).play(actions)
    World(constant_hash(b), Naive(b, "hash")).play(actions)
    World(RadixIndex(b), Naive(b, "radix")).play(actions)
    World(SnapshotIndex(b, 2 * b), Naive(b, "snapshot", 2 * b)).play(actions)
