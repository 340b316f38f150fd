"""`ContiguousKV`: one unbroken run of slots per request, reserved on arrival: what paging is measured against.

Three rules say how long the run is, in tokens (the Orca baselines of the vLLM paper, section 6.1):

    max     the model's limit, or prompt + max_tokens where there is none
    pow2    prompt + the reply's true length rounded up to a power of two
    oracle  prompt + the reply's true length

A run is a table of consecutive block ids, so the same scheduler, model and kernels work under it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from engine.kv import Note, Obstacle, blocks_for
from engine.plan import Code
from engine.pool import BlockPool
from engine.prefix import Match
from engine.request import Request, Sequence
from engine.usage import Usage


class ContiguousKV:
    """Runs of ceil(R / b) whole blocks, held until the end.

    Args:
        reserve: the reservation rule, `max`, `pow2` or `oracle`.
        fit: `first` takes the lowest run that is long enough, `best` the smallest, ties at the lowest address.
        max_model_len: the model's limit in tokens, None for none.
    """

    def __init__(
        self, pool: BlockPool, block_size: int, *, reserve: str, fit: str = "first", max_model_len: int | None = None
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.reserve = reserve
        self.fit = fit
        self.max_model_len = max_model_len
        self._free_runs: list[tuple[int, int]] = [(0, pool.num_blocks)]

    @property
    def free_runs(self) -> list[tuple[int, int]]:
        """The free runs as (first block, number of blocks), by address."""
        return list(self._free_runs)

    def reservation(self, request: Request) -> int:
        """R: tokens reserved for the request."""
        limit = self.max_model_len
        if self.reserve == "max":
            return limit if limit is not None else request.prompt_len + request.params.max_tokens
        if self.reserve == "oracle":
            return request.prompt_len + request.reply_len
        rounded = request.prompt_len + (1 << (request.reply_len - 1).bit_length())
        return rounded if limit is None else min(rounded, limit)

    def demand(self, request: Request) -> int:
        return blocks_for(self.reservation(request), self.block_size)

    def lacking(self, seq: Sequence) -> int:
        return 0 if seq.block_table else self.demand(seq.request)

    def promised(self, sequences: Iterable[Sequence]) -> int:
        return sum(self.lacking(seq) for seq in sequences)

    def obstacle(self, seq: Sequence, promised: int, watermark: int) -> Obstacle | None:
        needed = self.demand(seq.request)
        free = self.pool.num_free - promised
        if self._find(needed) is None:
            largest = max((length for _, length in self._free_runs), default=0)
            return Obstacle(Code.NO_RUN, {"largest_run": largest, "needed": needed, "free": free})
        if free < needed + watermark:
            return Obstacle(Code.WATERMARK, {"needed": needed, "free": free, "watermark": watermark})
        return None

    def allocate(self, seq: Sequence, num_tokens: int) -> list[int] | None:
        if seq.block_table:
            fits = seq.num_computed_tokens + num_tokens <= len(seq.block_table) * self.block_size
            return [] if fits else None
        needed = self.demand(seq.request)
        index = self._find(needed)
        if index is None:
            return None
        start, length = self._free_runs[index]
        blocks = self.pool.take_ids(range(start, start + needed))
        if length == needed:
            del self._free_runs[index]
        else:
            self._free_runs[index] = (start + needed, length - needed)
        seq.block_table.extend(blocks)
        return blocks

    def attach(self, seq: Sequence) -> Match | None:
        return None

    def publish(self, seq: Sequence) -> None:
        pass

    def take(self, count: int) -> list[int] | None:
        raise NotImplementedError("contiguous runs belong to one request: nothing is swapped into them")

    def fork(self, parent: Sequence, child: Sequence) -> None:
        raise NotImplementedError("contiguous runs cannot be shared")

    def regroup(self, sequences: list[Sequence], tables: list[list[int]]) -> None:
        raise NotImplementedError("contiguous runs cannot be shared")

    def take_notes(self) -> list[Note]:
        return []

    def free(self, seq: Sequence) -> None:
        if not seq.block_table:
            return
        start, length = seq.block_table[0], len(seq.block_table)
        while seq.block_table:
            self.pool.release(seq.block_table.pop())
        index = bisect_left(self._free_runs, (start, 0))
        if index < len(self._free_runs) and self._free_runs[index][0] == start + length:
            length += self._free_runs.pop(index)[1]
        if index and sum(self._free_runs[index - 1]) == start:
            before, before_length = self._free_runs.pop(index - 1)
            start, length = before, before_length + length
        insort(self._free_runs, (start, length))

    def usage(self, written: Iterable[tuple[Sequence, int]], head: Sequence | None) -> Usage:
        live = reserved = tail_waste = 0
        for seq, tokens in written:
            reservation = self.reservation(seq.request)
            live += tokens
            reserved += reservation - tokens
            tail_waste += len(seq.block_table) * self.block_size - reservation
        hole = 0
        if head is not None:
            needed = self.demand(head.request)
            hole = self.block_size * sum(length for _, length in self._free_runs if length < needed)
        return Usage(
            live=live,
            tail_waste=tail_waste,
            reserved=reserved,
            hole=hole,
            free=self.pool.num_free * self.block_size - hole,
            held_blocks=self.pool.num_held,
        )

    def _find(self, needed: int) -> int | None:
        """Index of the free run to take, None if no run is long enough."""
        fitting = (i for i, (_, length) in enumerate(self._free_runs) if length >= needed)
        if self.fit == "first":
            return next(fitting, None)
        return min(fitting, key=lambda i: self._free_runs[i][1], default=None)
