"""`PagedKV`: blocks on demand (PagedAttention; Kwon et al., SOSP 2023, section 4).

A sequence takes one more block when its last one is full, from anywhere in the pool; its table keeps the logical order:

    tokens   0 1 2 3 | 4 5 6 7 | 8 9 . .        b = 4
    table       11        8         4           three physical blocks, two slots of tail waste
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.kv import Obstacle, blocks_for
from engine.plan import Code
from engine.pool import BlockPool
from engine.request import Request, Sequence
from engine.usage import Usage


class PagedKV:
    """Table length is always ceil(tokens with KV / b); waste is below one block a sequence."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.block_size = block_size

    def demand(self, request: Request) -> int:
        """Blocks for p + max_tokens − 1 tokens: the last sampled token is never put through the model."""
        return blocks_for(request.prompt_len + request.params.max_tokens - 1, self.block_size)

    def lacking(self, seq: Sequence) -> int:
        return max(0, blocks_for(seq.num_tokens, self.block_size) - len(seq.block_table))

    def obstacle(self, seq: Sequence, promised: int, watermark: int) -> Obstacle | None:
        needed = blocks_for(seq.num_tokens, self.block_size)
        free = self.pool.num_free - promised
        if free < needed:
            return Obstacle(Code.NO_BLOCKS, {"needed": needed, "free": free})
        if free < needed + watermark:
            return Obstacle(Code.WATERMARK, {"needed": needed, "free": free, "watermark": watermark})
        return None

    def allocate(self, seq: Sequence, num_tokens: int) -> list[int] | None:
        needed = blocks_for(seq.num_computed_tokens + num_tokens, self.block_size) - len(seq.block_table)
        if needed <= 0:
            return []
        blocks = self.pool.take(needed)
        if blocks is not None:
            seq.block_table.extend(blocks)
        return blocks

    def free(self, seq: Sequence) -> None:
        while seq.block_table:
            self.pool.release(seq.block_table.pop())

    def usage(self, written: Iterable[tuple[Sequence, int]], head: Sequence | None) -> Usage:
        live = sum(tokens for _, tokens in written)
        held = self.pool.num_held
        return Usage(
            live=live,
            tail_waste=held * self.block_size - live,
            reserved=0,
            hole=0,
            free=self.pool.num_free * self.block_size,
            held_blocks=held,
        )
