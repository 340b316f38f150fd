"""block_copy: whole blocks from one place to another, for copy-on-write and for swapping out and in.

    pairs  (3 → 7) (3 → 8)             source ┌───┬───┬───┬─3─┬───┐        destination: the same tensor (copy-on-write)
                                              └───┴───┴───┴─┬─┴───┘        or another one (swap; host memory if pinned)
    program (pair, piece): PIECE numbers                    ├──► block 7
                                                            └──► block 8
All copies of a call happen at once: a block that is written must not also be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import require_aligned
from kernels.errors import KernelError

PIECE = 2048
"""Numbers a program moves."""


@triton.jit
def block_copy_kernel(from_ptr, to_ptr, pair_ptr, stride_from, stride_to, NUMBERS: tl.constexpr, PIECE: tl.constexpr):
    pair = tl.program_id(0)
    source = tl.load(pair_ptr + 2 * pair).to(tl.int64)
    destination = tl.load(pair_ptr + 2 * pair + 1).to(tl.int64)
    at = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    mask = at < NUMBERS
    moved = tl.load(from_ptr + source * stride_from + at, mask=mask)
    tl.store(to_ptr + destination * stride_to + at, moved, mask=mask)


def block_copy(source: torch.Tensor, destination: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy blocks.

    Args:
        source, destination: [blocks, block_size, KV, D], each block dense; may be the same tensor.
        pairs: (source block, destination block).

    Raises:
        KernelError: a block that is not there, written twice, or read and written in one call; tensors that differ.
    """
    if not pairs:
        return
    check_pairs(source, destination, pairs)
    launch(source, destination, torch.tensor(pairs, dtype=torch.int32, device=destination.device))


def check_pairs(source: torch.Tensor, destination: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Raise `KernelError` if `pairs` cannot be copied between the two tensors."""
    if source.shape[1:] != destination.shape[1:] or source.dtype != destination.dtype:
        raise KernelError("source and destination must agree in block shape and type")
    for name, tensor in (("source", source), ("destination", destination)):
        require_aligned(name, tensor)
        if not tensor[0].is_contiguous():
            raise KernelError(f"the blocks of {name} must be dense: copy it with .contiguous()")
    sources, destinations = {a for a, _ in pairs}, {b for _, b in pairs}
    for name, ids, tensor in (("source", sources, source), ("destination", destinations, destination)):
        if min(ids) < 0 or max(ids) >= len(tensor):
            raise KernelError(f"{name} blocks {min(ids)} to {max(ids)}: there are blocks 0 to {len(tensor) - 1}")
    if len(destinations) < len(pairs):
        raise KernelError("a block is written twice: give each copy its own")
    if source.data_ptr() == destination.data_ptr() and sources & destinations:
        raise KernelError(f"blocks {sorted(sources & destinations)} are both read and written: copy in two calls")


def launch(source: torch.Tensor, destination: torch.Tensor, pairs: torch.Tensor) -> None:
    """Start the kernel on pairs [N, 2] int32 that lie on the device. No checks."""
    fixed = constants(source[0].numel())
    grid = (len(pairs), triton.cdiv(fixed["NUMBERS"], PIECE))
    block_copy_kernel[grid](source, destination, pairs, source.stride(0), destination.stride(0), **fixed)


def constants(numbers: int) -> dict[str, Any]:
    """What the kernel is compiled for: numbers in a block."""
    return {"NUMBERS": numbers, "PIECE": PIECE}
