"""`BlockPool`: which blocks are free, and how many tables hold each of the others. It knows nothing of tokens.

The free queue is a doubly linked list laid out in two arrays (as in vLLM's FreeKVCacheBlockQueue), so that taking from
its left end, appending at its right end and pulling a block out of its middle all cost the same, whatever the size:

    sentinel P:  next[P] = first free id,  prev[P] = last free id
    a free id i: prev[i] <- i -> next[i]
    a held id i: next[i] = HELD
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from engine.config import require_int
from engine.errors import EngineError

HELD = -1


class BlockPoolError(EngineError):
    """A block was released that nobody holds, or taken while it is not free: a bug in the caller."""


class BlockPool:
    """Ids 0 … P−1, their reference counts and the free queue, in order 0, 1, … P−1 at the start.

    Args:
        num_blocks: P.
    """

    def __init__(self, num_blocks: int) -> None:
        require_int("num_blocks", num_blocks, minimum=1)
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        end = num_blocks
        self._next = array("q", range(1, num_blocks + 2))
        self._prev = array("q", range(-1, num_blocks))
        self._next[end], self._prev[end], self._prev[0] = 0, end - 1, end
        self._ref = array("l", bytes(array("l").itemsize * num_blocks))

    @property
    def num_held(self) -> int:
        """Blocks with a reference count above 0."""
        return self.num_blocks - self.num_free

    def ref(self, block_id: int) -> int:
        """How many tables (and locks) hold the block; 0 if it is free."""
        return self._ref[block_id]

    def is_free(self, block_id: int) -> bool:
        """True if the block stands in the free queue."""
        return self._next[block_id] != HELD

    def free_ids(self) -> list[int]:
        """The free queue in the order of taking. O(P): for tests and displays."""
        ids, block_id = [], self._next[self.num_blocks]
        while block_id != self.num_blocks:
            ids.append(block_id)
            block_id = self._next[block_id]
        return ids

    def take(self, count: int) -> list[int] | None:
        """Take `count` blocks from the left of the free queue, each with count 1; None, and no change, if too few."""
        if count > self.num_free:
            return None
        taken, first = [], self._next[self.num_blocks]
        for _ in range(count):
            taken.append(first)
            following = self._next[first]
            self._next[first] = HELD
            self._ref[first] = 1
            first = following
        self._next[self.num_blocks] = first
        self._prev[first] = self.num_blocks
        self.num_free -= count
        return taken

    def take_ids(self, block_ids: Iterable[int]) -> list[int]:
        """Take these very blocks out of the free queue, each with count 1.

        Raises:
            BlockPoolError: one of them is not free; nothing has changed then.
        """
        ids = list(block_ids)
        for block_id in ids:
            if not self.is_free(block_id):
                raise BlockPoolError(f"block {block_id} is not free")
        if len(set(ids)) != len(ids):
            raise BlockPoolError(f"a block is named twice in {ids}")
        for block_id in ids:
            before, after = self._prev[block_id], self._next[block_id]
            self._next[before], self._prev[after] = after, before
            self._next[block_id] = HELD
            self._ref[block_id] = 1
        self.num_free -= len(ids)
        return ids

    def share(self, block_id: int) -> None:
        """One more table holds the block.

        Raises:
            BlockPoolError: the block is free.
        """
        if self._ref[block_id] < 1:
            raise BlockPoolError(f"block {block_id} is free and cannot be shared")
        self._ref[block_id] += 1

    def release(self, block_id: int) -> bool:
        """One table less holds the block; at 0 it goes to the right end of the free queue. True if it is free now.

        Raises:
            BlockPoolError: nobody holds it (a double free).
        """
        if self._ref[block_id] < 1:
            raise BlockPoolError(f"block {block_id} is released twice")
        self._ref[block_id] -= 1
        if self._ref[block_id]:
            return False
        end = self.num_blocks
        last = self._prev[end]
        self._next[last], self._prev[block_id] = block_id, last
        self._next[block_id], self._prev[end] = end, block_id
        self.num_free += 1
        return True
