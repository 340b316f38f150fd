"""`Paging`: where the context of every sequence of a step lies, checked once and then used by all layers.

    tables[s]   7  2  9  ·        position p of sequence s is in slot tables[s][p // b] · b + p % b;
    lengths[s]  10                what stands behind the last block is never read

A kernel cannot notice a wrong table: it reads whatever lies there. So tables are checked here, on the host, where they
are made; the kernels trust a `Paging`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels.errors import KernelError


@dataclass(frozen=True)
class Paging:
    """Tables and lengths on the device, with what the host must know of them to choose a launch.

    Attributes:
        tables: block ids, [S, W] int32.
        lengths: positions a sequence attends over, its new ones included, [S] int32; 0 for a padded row.
        block_size: token slots per block.
        longest: the largest of the lengths, or more.
        total: sum of the lengths, or an estimate; only chooses the number of splits.
    """

    tables: torch.Tensor
    lengths: torch.Tensor
    block_size: int
    longest: int
    total: int

    @staticmethod
    def checked(
        tables: Sequence[Sequence[int]] | np.ndarray | torch.Tensor,
        lengths: Sequence[int] | np.ndarray | torch.Tensor,
        block_size: int,
        num_blocks: int,
        device: torch.device | str = "cpu",
    ) -> Paging:
        """Check tables and lengths and bring them to the device.

        Args:
            tables: [S, W] block ids; rows of different length are padded.
            lengths: [S].
            num_blocks: blocks of the pool; valid ids are below.

        Raises:
            KernelError: a length beyond its table, or a block id that is not in the pool.
        """
        count = np.asarray(lengths, dtype=np.int64).reshape(-1)
        table, room = _rectangle(tables)
        if len(table) != len(count):
            raise KernelError(f"{len(table)} tables for {len(count)} lengths: one each is needed")
        used = -(-count // block_size)
        for row in np.flatnonzero((count < 0) | (used > room)):
            raise KernelError(
                f"sequence {row} has length {count[row]}, its table has room for {room[row] * block_size}: "
                "give it more blocks first"
            )
        live = np.arange(table.shape[1]) < used[:, None]
        wrong = live & ((table < 0) | (table >= num_blocks))
        if wrong.any():
            row, at = map(int, np.argwhere(wrong)[0])
            raise KernelError(
                f"entry {at} of table {row} is block {table[row, at]}: the pool has blocks 0 to {num_blocks - 1}"
            )
        return Paging(
            torch.from_numpy(table.astype(np.int32)).to(device),
            torch.from_numpy(count.astype(np.int32)).to(device),
            block_size,
            int(count.max(initial=0)),
            int(count.sum()),
        )


def check_slots(slots: np.ndarray | torch.Tensor, num_slots: int) -> None:
    """Raise `KernelError` unless every slot is one of the pool's, none twice, or −1 for a row that is not written."""
    found = np.asarray(slots)
    wrong = (found < -1) | (found >= num_slots)
    if wrong.any():
        raise KernelError(f"slot {found[wrong][0]}: the pool has slots 0 to {num_slots - 1}, and −1 writes nothing")
    written = found[found >= 0]
    if len(np.unique(written)) != len(written):
        raise KernelError("two tokens go to one slot: each needs its own")


def _rectangle(tables: Sequence[Sequence[int]] | np.ndarray | torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Tables as [S, W], and how many entries each of them has."""
    if isinstance(tables, np.ndarray | torch.Tensor):
        table = np.asarray(tables, dtype=np.int64)
        return table, np.full(len(table), table.shape[1])
    room = np.array([len(ids) for ids in tables], dtype=np.int64)
    table = np.full((len(tables), max(1, int(room.max(initial=0)))), -1, dtype=np.int64)
    for row, ids in enumerate(tables):
        table[row, : len(ids)] = ids
    return table, room
