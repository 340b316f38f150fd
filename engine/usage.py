"""`Usage`: the pool's token slots split five ways, always adding up to the whole pool.

live        written
tail_waste  beyond what will be written in the last block of a table or reservation
reserved    set aside for tokens still to come (contiguous only)
hole        free, but in a run too short for whoever is next (contiguous only, while somebody waits)
free        the rest; `cached` of it still holds content that a prefix index can find
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("live", "tail_waste", "reserved", "hole", "free")
"""The five parts, which add up to the pool."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One moment of the pool, in token slots; `held_blocks` in blocks."""

    live: int
    tail_waste: int
    reserved: int
    hole: int
    free: int
    held_blocks: int
    cached: int = 0

    @property
    def pool_slots(self) -> int:
        """P·b, the sum of the five parts."""
        return self.live + self.tail_waste + self.reserved + self.hole + self.free
