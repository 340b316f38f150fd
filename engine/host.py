"""`HostTier`: swap space behind the pool, and a disk behind the host's memory, both in blocks of the pool's size.

A victim's whole table moves, or none of it. Blocks 0 … host_blocks − 1 lie in the host's memory, the next `disk_blocks`
on its disk; memory is taken first. The tier counts what moved and prices it: bytes exactly, milliseconds by the
bandwidth of the link (derived; what a runner really took is measured there).
"""

from __future__ import annotations

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
        self._free = list(range(host_blocks + disk_blocks))
        self.bytes_out = self.bytes_in = 0
        self.seconds = 0.0

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return len(self._free)

    def free_ids(self) -> list[int]:
        """The free ids, in the order of taking."""
        return list(self._free)

    def take(self, count: int) -> list[int] | None:
        """The `count` lowest free ids; None, and no change, if there are fewer."""
        if count > len(self._free):
            return None
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def release(self, ids: list[int]) -> None:
        """Give ids back.

        Raises:
            EngineError: one of them is free already.
        """
        if set(ids) & set(self._free) or len(set(ids)) != len(ids):
            raise EngineError(f"host blocks {ids} are released twice")
        self._free = sorted([*self._free, *ids])

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
