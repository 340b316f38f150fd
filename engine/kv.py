"""The protocol every KV manager keeps, and what the two of them share.

A manager is a policy over the `BlockPool`: it decides which blocks a sequence gets and when. All its operations are all
or nothing: `allocate` gives blocks or `None`, and after `None` nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.config import EngineConfig
from engine.plan import Code
from engine.pool import BlockPool
from engine.prefix import Match
from engine.request import Request, Sequence
from engine.usage import Usage


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a sequence cannot enter now: a waiting code and the figures behind it."""

    code: Code
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """What a manager did on the way: COW_COPY {source, destination} or EVICTED {block}."""

    code: Code
    detail: Mapping[str, Any]


class KVManager(Protocol):
    """Policy over the pool."""

    pool: BlockPool
    block_size: int

    def demand(self, request: Request) -> int:
        """Blocks the request holds at full length: it can never run if the pool has fewer."""
        ...

    def lacking(self, seq: Sequence) -> int:
        """Blocks a sequence must still take before all its known tokens have a place."""
        ...

    def promised(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that these running sequences still lack for their known tokens."""
        ...

    def obstacle(self, seq: Sequence, promised: int, watermark: int) -> Obstacle | None:
        """Why the waiting sequence cannot be admitted, None if it can.

        Args:
            promised: blocks that sequences admitted before still lack.
            watermark: blocks to leave free.
        """
        ...

    def allocate(self, seq: Sequence, num_tokens: int) -> list[int] | None:
        """Give `seq` a place for its next `num_tokens` tokens: the new blocks, appended to its table, or None."""
        ...

    def attach(self, seq: Sequence) -> Match | None:
        """Begin the table of a sequence that enters with what a prefix index finds; None without an index."""
        ...

    def publish(self, seq: Sequence) -> None:
        """A step has computed the sequence as far as it says now."""
        ...

    def take(self, count: int) -> list[int] | None:
        """So many free blocks, belonging to no table yet; None, and no change, if there are too few."""
        ...

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child` begin with everything `parent` has computed, in the same blocks."""
        ...

    def regroup(self, sequences: list[Sequence], tables: list[list[int]]) -> None:
        """Give these sequences these tables, made of blocks that they hold already, in place of their own."""
        ...

    def free(self, seq: Sequence) -> None:
        """Take back every block of the sequence, last block first."""
        ...

    def take_notes(self) -> list[Note]:
        """What happened in the calls since the last time this was asked."""
        ...

    def usage(self, written: Iterable[tuple[Sequence, int]], head: Sequence | None) -> Usage:
        """The pool split five ways.

        Args:
            written: every sequence that holds blocks, with its number of written tokens.
            head: the sequence at the head of the waiting queue, None if nobody waits.
        """
        ...


def blocks_for(num_tokens: int, block_size: int) -> int:
    """ceil(num_tokens / block_size)."""
    return -(-num_tokens // block_size)


def make_kv_manager(config: EngineConfig) -> KVManager:
    """The manager that `config.kv` names, over a new pool."""
    from engine.contiguous import ContiguousKV
    from engine.paged import PagedKV
    from engine.prefix import make_prefix_index

    pool = BlockPool(config.num_blocks)
    if config.kv == "paged":
        return PagedKV(pool, config.block_size, make_prefix_index(config))
    return ContiguousKV(pool, config.block_size, reserve=config.kv, fit=config.fit, max_model_len=config.max_model_len)
