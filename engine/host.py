"""`HostTier`: swap space behind the pool, and a disk behind the host's memory, both in blocks of the pool's size.

A victim's whole table moves, or none of it. Blocks 0 … host_blocks − 1 lie in the host's memory, the next `disk_blocks`
on its disk; memory is taken first. The tier counts what moved and prices it: bytes exactly, milliseconds by the
bandwidth of the link (derived; what a runner really took is measured there).
"""

from __future__ import annotations

from heapq import heappop, heappush

from engine.errors import EngineError

PCIE_BYTES_PER_SECOND = 64e9
"""PCIe 5.0 x16, one direction, as quoted for an H100's host link."""
DISK_BYTES_PER_SECOND = 7e9
"""A PCIe 4.0 x4 NVMe disk, sequential, as such disks are sold."""


class HostTier:
    """Block ids of host and disk, lowest first.

    Args:
        host_blocks, disk_blocks: sizes, 0 for none.
        block_bytes: bytes of one block, all layers.

    Attributes:
        bytes_out, bytes_in: moved so far, in bytes.
        seconds: what the moves take at the bandwidths above.
    """

    def __init__(self, host_blocks: int, disk_blocks: int, block_bytes: int) -> None:
        self.host_blocks, self.disk_blocks, self.block_bytes = host_blocks, disk_blocks, block_bytes
        self._size = host_blocks + disk_blocks
        self._held: set[int] = set()
        self._returned: list[int] = []  # a heap of ids below _fresh
        self._fresh = 0  # ids from here on were never taken
        self.bytes_out = self.bytes_in = 0
        self.seconds = 0.0

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return self._size - len(self._held)

    def free_ids(self) -> list[int]:
        """The free ids, in the order of taking. O(blocks): for tests and displays."""
        return [*sorted(self._returned), *range(self._fresh, self._size)]

    def take(self, count: int) -> list[int] | None:
        """The `count` lowest free ids; None, and no change, if there are fewer."""
        if count > self.num_free:
            return None
        taken = [heappop(self._returned) for _ in range(min(count, len(self._returned)))]
        fresh = count - len(taken)
        taken += range(self._fresh, self._fresh + fresh)
        self._fresh += fresh
        self._held.update(taken)
        return taken

    def release(self, ids: list[int]) -> None:
        """Give ids back.

        Raises:
            EngineError: one of them is free already; nothing has changed then.
        """
        if not self._held.issuperset(ids) or len(set(ids)) != len(ids):
            raise EngineError(f"host blocks {ids} are released twice")
        self._held.difference_update(ids)
        for block in ids:
            heappush(self._returned, block)

    def moved_out(self, ids: list[int]) -> None:
        """Count a move from the device."""
        self.bytes_out += len(ids) * self.block_bytes
        self._price(ids)

    def moved_in(self, ids: list[int]) -> None:
        """Count a move to the device."""
        self.bytes_in += len(ids) * self.block_bytes
        self._price(ids)

    def _price(self, ids: list[int]) -> None:
        on_disk = sum(block >= self.host_blocks for block in ids)
        self.seconds += len(ids) * self.block_bytes / PCIE_BYTES_PER_SECOND
        self.seconds += on_disk * self.block_bytes / DISK_BYTES_PER_SECOND
