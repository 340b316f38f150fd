"""kv_write: the new keys and values of a step go to their slots in the pool.

tokens  t0  t1  t2  t3           slot n is offset n % b of block n // b;
slots   28  29  −1  36           −1 writes nothing: a padded row has no slot
         │   │       │
        block 7     block 9      one program per token and tile of heads, keys and values together
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import require_aligned, require_pool, require_shape
from kernels.errors import KernelError
from kernels.tiles import power_of_2

ELEMENTS = 2048
"""Numbers a program moves at a time, of keys and of values each."""


@triton.jit
def kv_write_kernel(
    k_ptr,  # [T, KV, D]
    v_ptr,
    pool_k_ptr,
    pool_v_ptr,
    slot_ptr,  # [T]
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_block,
    stride_slot,
    stride_head,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_TILE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if slot >= 0:
        head = tl.program_id(1) * HEAD_TILE + tl.arange(0, HEAD_TILE)[:, None]
        dim = tl.arange(0, D_PAD)[None, :]
        mask = (head < KV_HEADS) & (dim < D)
        to = (slot // BLOCK_SIZE) * stride_block + (slot % BLOCK_SIZE) * stride_slot
        to = tl.multiple_of(to, 16) + head * stride_head + dim
        k = tl.load(k_ptr + token * stride_kt + head * stride_kh + dim, mask=mask)
        v = tl.load(v_ptr + token * stride_vt + head * stride_vh + dim, mask=mask)
        tl.store(pool_k_ptr + to, k, mask=mask)
        tl.store(pool_v_ptr + to, v, mask=mask)


def kv_write(
    key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
) -> None:
    """Write a step's keys and values.

    Args:
        key, value: [T, KV, D].
        keys, values: the pool, [blocks, block_size, KV, D].
        slots: [T] int32 or int64 on the device, checked beforehand with `kernels.paging.check_slots`.

    Raises:
        KernelError: shapes, strides or types do not fit.
    """
    require_pool(keys, values)
    count, (kv_heads, dim) = len(slots), keys.shape[2:]
    for name, tensor in (("key", key), ("value", value)):
        require_shape(name, tensor, (count, kv_heads, dim))
        require_aligned(name, tensor)
        if tensor.dtype != keys.dtype:
            raise KernelError(f"{name} is {tensor.dtype}, the pool {keys.dtype}: they must agree")
    if count == 0:
        return
    fixed = constants(kv_heads, dim, keys.shape[1])
    kv_write_kernel[(count, triton.cdiv(kv_heads, fixed["HEAD_TILE"]))](
        key,
        value,
        keys,
        values,
        slots,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        **fixed,
    )


def constants(kv_heads: int, dim: int, block_size: int) -> dict[str, Any]:
    """What the kernel is compiled for."""
    padded = power_of_2(dim)
    tile = min(power_of_2(kv_heads), max(1, ELEMENTS // padded))
    return {"KV_HEADS": kv_heads, "D": dim, "D_PAD": padded, "BLOCK_SIZE": block_size, "HEAD_TILE": tile}
