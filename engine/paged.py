"""`PagedKV`: blocks on demand (PagedAttention; Kwon et al., SOSP 2023, section 4).

A sequence takes one more block when its last one is full, from anywhere in the pool; its table keeps the logical order:

    tokens   0 1 2 3 | 4 5 6 7 | 8 9 . .        b = 4
    table       11        8         4           three physical blocks, two slots of tail waste

Tables may share blocks: the branches of one request all of its prompt, different requests what a prefix index finds.
Full blocks are never written again; a shared last block that is not full is copied by whoever writes into it first,
and the last one to hold it writes in place (copy-on-write):

    a [0 1]   b [0 1]   c [0 1]     block 1 is held three times and half full
    a [0 2]   b [0 3]   c [0 1]     a and b copied it, c went on in it
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.kv import Note, Obstacle, blocks_for
from engine.plan import Code
from engine.pool import BlockPool
from engine.prefix import Match, PrefixIndex
from engine.request import Request, Sequence
from engine.usage import Usage


class PagedKV:
    """Table length is always ceil(tokens with KV / b); waste is below one block a sequence.

    Attributes:
        index: the prefix index over computed blocks, None without one.
    """

    def __init__(self, pool: BlockPool, block_size: int, index: PrefixIndex | None = None) -> None:
        self.pool = pool
        self.block_size = block_size
        self.index = index
        self.num_cached_free = 0
        self._notes: list[Note] = []
        self._published: dict[str, int] = {}  # full blocks of sequences at work that the index has been told of

    def demand(self, request: Request) -> int:
        """Blocks for p + max_tokens − 1 tokens: the last sampled token is never put through the model."""
        return blocks_for(request.prompt_len + request.params.max_tokens - 1, self.block_size)

    def lacking(self, seq: Sequence) -> int:
        return max(0, blocks_for(seq.num_tokens, self.block_size) - len(seq.block_table))

    def promised(self, sequences: Iterable[Sequence]) -> int:
        """Blocks these running sequences still lack for their known tokens, copies of shared last blocks included."""
        lacking, writers = 0, dict[int, int]()
        for seq in sequences:
            lacking += self.lacking(seq)
            if self._shares_last(seq):
                writers[seq.block_table[-1]] = writers.get(seq.block_table[-1], 0) + 1
        return lacking + sum(min(count, self.pool.ref(block) - 1) for block, count in writers.items())

    def obstacle(self, seq: Sequence, promised: int, watermark: int) -> Obstacle | None:
        needed = blocks_for(seq.num_tokens, self.block_size)
        if not seq.host_table:
            needed -= sum(not self.pool.is_free(block) for block in self._match(seq).blocks)
        free = self.pool.num_free - promised
        if free < needed:
            return Obstacle(Code.NO_BLOCKS, {"needed": needed, "free": free})
        if free < needed + watermark:
            return Obstacle(Code.WATERMARK, {"needed": needed, "free": free, "watermark": watermark})
        return None

    def attach(self, seq: Sequence) -> Match | None:
        """Begin the table of a sequence that enters with the blocks the index finds; None without an index."""
        if self.index is None:
            return None
        match = self._match(seq)
        for block in match.blocks:
            if self.pool.is_free(block):
                self.pool.take_ids([block])
                self.num_cached_free -= 1
            else:
                self.pool.share(block)
        seq.block_table.extend(match.blocks)
        seq.num_computed_tokens = len(match.blocks) * self.block_size
        return match

    def allocate(self, seq: Sequence, num_tokens: int) -> list[int] | None:
        needed = blocks_for(seq.num_computed_tokens + num_tokens, self.block_size) - len(seq.block_table)
        copies = self._shares_last(seq)
        if needed + copies <= 0:
            return []
        blocks = self.take(needed + copies)
        if blocks is None:
            return None
        if copies:
            source, destination = seq.block_table[-1], blocks.pop(0)
            seq.block_table[-1] = destination
            self._release(source)
            self._notes.append(Note(Code.COW_COPY, {"source": source, "destination": destination}))
        seq.block_table.extend(blocks)
        return blocks

    def take(self, count: int) -> list[int] | None:
        """So many blocks off the free queue, what the index knew of them gone; None, and no change, if too few."""
        blocks = self.pool.take(count)
        if blocks and self.index is not None:
            for gone in [gone for block in blocks for gone in self.index.drop(block)]:
                self.num_cached_free -= gone in blocks or self.pool.is_free(gone)
                self._notes.append(Note(Code.EVICTED, {"block": gone}))
        return blocks

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child` begin with everything `parent` has computed, in the same blocks."""
        for block in parent.block_table:
            self.pool.share(block)
        child.block_table = list(parent.block_table)
        child.num_computed_tokens = parent.num_computed_tokens

    def regroup(self, sequences: list[Sequence], tables: list[list[int]]) -> None:
        for table in tables:
            for block in table:
                self.pool.share(block)
        for seq, table in zip(sequences, tables, strict=True):
            self.free(seq)
            seq.block_table = list(table)

    def publish(self, seq: Sequence) -> None:
        """A step has computed the sequence as far as it says: the index may hand out its full blocks."""
        full = seq.num_computed_tokens // self.block_size
        if self.index is not None and full > self._published.get(seq.id, 0):
            self.index.publish(seq.id, seq.token_ids[: full * self.block_size], seq.block_table)
            self._published[seq.id] = full

    def free(self, seq: Sequence) -> None:
        while seq.block_table:
            self._release(seq.block_table.pop())
        if self.index is not None:
            self.index.forget(seq.id)
            self._published.pop(seq.id, None)

    def take_notes(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes

    def usage(self, written: Iterable[tuple[Sequence, int]], head: Sequence | None) -> Usage:
        held, size = self.pool.num_held, self.block_size
        holders = [(seq.block_table, tokens) for seq, tokens in written]
        if sum(len(table) for table, _ in holders) == held:
            live = sum(tokens for _, tokens in holders)
        else:  # somebody shares: every block counts once, as far as any of its holders has written
            filled: dict[int, int] = {}
            for table, tokens in holders:
                for index, block in enumerate(table):
                    filled[block] = max(filled.get(block, 0), min(size, tokens - index * size))
            live = sum(filled.values())
        return Usage(
            live=live,
            tail_waste=held * size - live,
            reserved=0,
            hole=0,
            free=self.pool.num_free * size,
            held_blocks=held,
            cached=self.num_cached_free * size,
        )

    def _match(self, seq: Sequence) -> Match:
        return self.index.match(seq.token_ids) if self.index is not None else Match((), 0, "absent")

    def _shares_last(self, seq: Sequence) -> bool:
        """True if the next token goes into a block that others hold too."""
        table = seq.block_table
        return bool(table) and seq.num_computed_tokens < len(table) * self.block_size and self.pool.ref(table[-1]) > 1

    def _release(self, block: int) -> None:
        if self.pool.release(block) and self.index is not None and block in self.index:
            self.num_cached_free += 1
