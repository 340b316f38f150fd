"""`SnapshotIndex`: hits for a model whose linear-attention layers keep one running state a sequence.

KV of a block stays as it was written, so attention can begin after any block; the state is overwritten by every token
and can be restored only where a copy was kept. A hit therefore is the minimum of both groups of layers:

    blocks known   [0 1 2 3 4 5]           b = 4: 24 tokens
    states kept           ^       ^        at 12 and 24
    a prompt that shares 5 blocks          blocks 5, states 3: hit 3, stopped by `snapshot`

States are kept at every multiple of `snapshot_tokens`, and where a look-up found more blocks than states: prompts
part there, so the sequence that had to compute up to it keeps a state, and the next one hits.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import require_int
from engine.errors import ValidationError
from engine.hash_chain import HashChainIndex
from engine.prefix import Match


class SnapshotIndex:
    """Looks blocks up in a hash chain, then goes back to the last state.

    Args:
        block_size: b.
        snapshot_tokens: every how many tokens a state is kept, a multiple of b.

    Attributes:
        snapshots: the blocks at whose end a state is kept, each with that position in tokens.

    Raises:
        ValidationError: snapshot_tokens is not a positive multiple of b.
    """

    def __init__(self, block_size: int, snapshot_tokens: int) -> None:
        require_int("snapshot_tokens", snapshot_tokens, minimum=1)
        if snapshot_tokens % block_size:
            raise ValidationError(
                f"snapshot_tokens must be a multiple of block_size {block_size}, got {snapshot_tokens}"
            )
        self.block_size = block_size
        self.snapshot_tokens = snapshot_tokens
        self.snapshots: dict[int, int] = {}
        self._kv = HashChainIndex(block_size)
        self._branches: set[int] = set()  # entered blocks at whose end a look-up wanted a state
        self._published: dict[str, int] = {}  # blocks of the sequences at work

    def match(self, tokens: Sequence[int]) -> Match:
        """Remembers the end of the known blocks as a branch point if no state is there."""
        found = self._kv.match(tokens)
        hit = len(found.blocks)
        while hit and found.blocks[hit - 1] not in self.snapshots:
            hit -= 1
        if hit == len(found.blocks):
            return found
        self._branches.add(found.blocks[-1])
        return Match(found.blocks[:hit], hit, "snapshot")

    def publish(self, seq_id: str, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Enter the blocks, and keep states at multiples and at branch points.

        A sequence has a state to keep only where it computed. What it hit are the entered blocks themselves; what it
        computed is new, or a second block beside the entered one.
        """
        self._kv.publish(seq_id, tokens, table)
        full = len(tokens) // self.block_size
        for index in range(self._published.get(seq_id, 0), full):
            block, end = self._kv.entry(seq_id, index), (index + 1) * self.block_size
            if block is None:
                continue
            if end % self.snapshot_tokens == 0 or (block in self._branches and table[index] != block):
                self.snapshots[block] = end
                self._branches.discard(block)
        self._published[seq_id] = full

    def forget(self, seq_id: str) -> None:
        self._kv.forget(seq_id)
        self._published.pop(seq_id, None)

    def drop(self, block_id: int) -> tuple[int, ...]:
        self.snapshots.pop(block_id, None)
        self._branches.discard(block_id)
        return self._kv.drop(block_id)

    def content(self, block_id: int) -> tuple[int, ...]:
        return self._kv.content(block_id)

    def __contains__(self, block_id: object) -> bool:
        return block_id in self._kv

    def __len__(self) -> int:
        return len(self._kv)
