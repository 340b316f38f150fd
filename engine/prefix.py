"""`PrefixIndex`: which finished blocks begin a prompt. Here the protocol; each index is a file of its own.

    hash       one entry per block, keyed by its tokens and everything before them (vLLM)     engine/hash_chain.py
    radix      a tree of token runs that share their beginnings (SGLang)                      engine/radix.py
    snapshot   blocks as above, but a hit must end where a recurrent state was kept (hybrid)  engine/snapshot.py

An index knows blocks that are full and computed, held or free. It does not hold them: a free block keeps its content
and its entry until it is taken for something else, so the pool's free queue is the list of least recent use, and as
tables are released last block first, tails go before beginnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Match:
    """What a look-up found.

    Attributes:
        blocks: the blocks that hold the beginning of the tokens, in table order.
        stopped_at: logical block at which the match stopped, `len(blocks)`.
        why: `absent` (nobody computed this block, or it was evicted), `partial` (the tokens end inside this block),
            `last_token` (all is there, but the last token must be computed to sample from it), `snapshot` (the blocks
            are there, but no state was kept there).
    """

    blocks: tuple[int, ...]
    stopped_at: int
    why: str


class PrefixIndex(Protocol):
    """Finds computed blocks by their content."""

    def match(self, tokens: Sequence[int]) -> Match:
        """The longest known beginning of `tokens`, in whole blocks, at most len(tokens) − 1 tokens."""
        ...

    def publish(self, seq_id: str, tokens: Sequence[int], table: Sequence[int]) -> None:
        """A step has computed `tokens`, the first of this sequence, into the blocks of `table`: enter the full ones.

        A block whose content is known already keeps its own place and is not entered.
        """
        ...

    def forget(self, seq_id: str) -> None:
        """The sequence gives its table back; its entries stay."""
        ...

    def drop(self, block_id: int) -> tuple[int, ...]:
        """The block is about to be overwritten: its entry goes.

        Returns:
            the blocks whose entries went, this one first: none if it had no entry; more than one where others hung
            below it (`radix`), which may be held, free, or about to be overwritten too.
        """
        ...

    def __contains__(self, block_id: int) -> bool:
        """True if the block has an entry."""
        ...

    def content(self, block_id: int) -> tuple[int, ...]:
        """All tokens from the beginning to the end of this block, for checks. KeyError without an entry."""
        ...

    def __len__(self) -> int:
        """Number of entries."""
        ...


def longest(num_tokens: int, block_size: int) -> tuple[int, str]:
    """How many blocks a look-up of so many tokens may hit at most, and why no more."""
    blocks = (num_tokens - 1) // block_size
    return blocks, "last_token" if num_tokens % block_size == 0 else "partial"


def make_prefix_index(config: EngineConfig) -> PrefixIndex | None:
    """The index that `config.prefix` names, None for `none`."""
    if config.prefix == "none":
        return None
    from engine.hash_chain import HashChainIndex
    from engine.radix import RadixIndex
    from engine.snapshot import SnapshotIndex

    if config.prefix == "hash":
        return HashChainIndex(config.block_size)
    if config.prefix == "radix":
        return RadixIndex(config.block_size)
    return SnapshotIndex(config.block_size, config.snapshot_tokens or config.block_size)
