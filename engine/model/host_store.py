"""`HostStore`: the KV of swapped-out blocks, in the host's memory or in files on its disk, with the time it took.

Block ids are those of `engine.host.HostTier`. A block is the concatenation of its keys and values in all layers.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from engine.model.attention import KVPool

Pairs = tuple[tuple[int, int], ...]


class HostStore:
    """Blocks away from the pool.

    Attributes:
        seconds: measured, {"memory", "disk"}, both directions.
        bytes_moved: counted, the same way.
    """

    def __init__(self, pool: KVPool) -> None:
        self._tensors = [*pool.keys, *pool.values]
        self._memory: dict[int, torch.Tensor] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.seconds = {"memory": 0.0, "disk": 0.0}
        self.bytes_moved = {"memory": 0, "disk": 0}

    def put(self, pairs: Pairs, host_blocks: int) -> None:
        """Copy device blocks away, (device, host) each; host ids from `host_blocks` on go to disk."""
        for device, host in pairs:
            begin = time.perf_counter()
            block = torch.cat([tensor[device].reshape(-1) for tensor in self._tensors]).cpu().view(torch.uint8)
            if host < host_blocks:
                self._memory[host] = block
            else:
                block.numpy().tofile(self._path(host))
            self._count(host < host_blocks, block.numel(), begin)

    def get(self, pairs: Pairs, host_blocks: int) -> None:
        """Bring blocks back to the pool, (device, host) each; they are not kept."""
        for device, host in pairs:
            begin = time.perf_counter()
            if host < host_blocks:
                block = self._memory.pop(host)
            else:
                path = self._path(host)
                block = torch.from_numpy(np.fromfile(path, dtype=np.uint8))
                path.unlink()
            numbers = block.view(self._tensors[0].dtype)
            parts = numbers.split([tensor[device].numel() for tensor in self._tensors])
            for tensor, part in zip(self._tensors, parts, strict=True):
                tensor[device].copy_(part.view(tensor.shape[1:]))
            self._count(host < host_blocks, block.numel(), begin)

    def _path(self, host: int) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="kv-")
        return Path(self._folder.name) / str(host)

    def _count(self, in_memory: bool, size: int, begin: float) -> None:
        tier = "memory" if in_memory else "disk"
        self.bytes_moved[tier] += size
        self.seconds[tier] += time.perf_counter() - begin
