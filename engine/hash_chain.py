"""`HashChainIndex`: one entry per full block, keyed by its tokens and its parent block's key (as vLLM v1 does it).

    block 0          block 1            block 2
    h0 = H(·, 小明)   h1 = H(h0, 把苹果)   h2 = H(h1, 给了)      equal tokens after another beginning: another key

A hash only says where to look. Whether two blocks are the same is decided by comparing tokens and parents, so a
collision costs time and never shares a wrong block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.prefix import Match, longest


class Key:
    """A block's content: its tokens and the key of the block before it."""

    __slots__ = ("hash", "parent", "tokens")

    def __init__(self, parent: Key | None, tokens: tuple[int, ...], hash_of: Callable[[object], int]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.hash = hash_of((parent.hash if parent is not None else 0, tokens))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        """Same tokens all the way to the beginning; keys of one index share parents, so this ends at once."""
        mine: Key | None = self
        theirs: Key | None = other if isinstance(other, Key) else None
        while mine is not theirs:
            if mine is None or theirs is None or mine.hash != theirs.hash or mine.tokens != theirs.tokens:
                return False
            mine, theirs = mine.parent, theirs.parent
        return True


class HashChainIndex:
    """Looks a prompt up block by block until one is unknown.

    Args:
        block_size: b.
        hash_of: the hash function, of (parent's hash, tokens).
    """

    def __init__(self, block_size: int, hash_of: Callable[[object], int] = hash) -> None:
        self.block_size = block_size
        self._hash_of = hash_of
        self._blocks: dict[Key, tuple[Key, int]] = {}  # with the key as entered, whose parents others share
        self._keys: dict[int, Key] = {}
        self._chains: dict[str, list[Key]] = {}  # of the sequences at work

    def match(self, tokens: Sequence[int]) -> Match:
        most, why = longest(len(tokens), self.block_size)
        blocks: list[int] = []
        parent: Key | None = None
        for index in range(most):
            found = self._blocks.get(self._key(parent, tokens, index))
            if found is None:
                return Match(tuple(blocks), index, "absent")
            parent, block = found
            blocks.append(block)
        return Match(tuple(blocks), most, why)

    def publish(self, seq_id: str, tokens: Sequence[int], table: Sequence[int]) -> None:
        chain = self._chains.setdefault(seq_id, [])
        for index in range(len(chain), len(tokens) // self.block_size):
            key = self._key(chain[-1] if chain else None, tokens, index)
            found = self._blocks.get(key)
            if found is not None:
                key = found[0]
            elif table[index] not in self._keys:
                self._blocks[key] = (key, table[index])
                self._keys[table[index]] = key
            chain.append(key)

    def forget(self, seq_id: str) -> None:
        self._chains.pop(seq_id, None)

    def drop(self, block_id: int) -> tuple[int, ...]:
        key = self._keys.pop(block_id, None)
        if key is None:
            return ()
        del self._blocks[key]
        return (block_id,)

    def entry(self, seq_id: str, index: int) -> int | None:
        """The block entered for what this sequence published as its block `index`; None if that was dropped since."""
        found = self._blocks.get(self._chains[seq_id][index])
        return None if found is None else found[1]

    def content(self, block_id: int) -> tuple[int, ...]:
        parts: list[tuple[int, ...]] = []
        key: Key | None = self._keys[block_id]
        while key is not None:
            parts.append(key.tokens)
            key = key.parent
        return tuple(token for part in reversed(parts) for token in part)

    def __contains__(self, block_id: object) -> bool:
        return block_id in self._keys

    def __len__(self) -> int:
        return len(self._blocks)

    def _key(self, parent: Key | None, tokens: Sequence[int], index: int) -> Key:
        at = index * self.block_size
        return Key(parent, tuple(tokens[at : at + self.block_size]), self._hash_of)
