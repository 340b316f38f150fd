"""Prefill: chunks of several query tokens per sequence, each against the paged context before it and, causally, itself.

    program (query tile, KV head h, sequence s)

                      context, read through the block table
              0 ······················ c ─── chunk ─── c + n
        q 0   ████████████████████████ █                       rows of a tile are (query token, query head of the group)
        q 1   ████████████████████████ ██                      pairs packed without gaps, so that one K/V tile
        q 2   ████████████████████████ ███     ← query tile    serves BLOCK_M of them
        q 3   ████████████████████████ ████
              └ tile ┘└ tile ┘└ tile ┘└ tile ┘                 tiles right of the diagonal are not read

Queries of all sequences lie one behind the other (`starts`); their keys and values must have been written before.
The tiles with the longest way to go are started first.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import require_aligned, require_pool, require_query, require_shape
from kernels.paging import Paging
from kernels.tiles import LOG2_E, attend_tile, power_of_2, precision, prefill_tiles


@triton.jit(do_not_specialize=["stride_table"])
def prefill_kernel(
    out_ptr,  # [T, H, D]
    q_ptr,  # [T, H, D]
    k_ptr,
    v_ptr,
    table_ptr,  # [S, W]
    length_ptr,  # [S]
    start_ptr,  # [S + 1]
    scale_log2,
    stride_qt,
    stride_qh,
    stride_ot,
    stride_oh,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile_m = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    start = tl.load(start_ptr + seq)
    count = tl.load(start_ptr + seq + 1) - start
    if tile_m * BLOCK_M < count * GROUP:
        length = tl.load(length_ptr + seq)
        context = length - count

        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        token = row // GROUP
        head = kv_head * GROUP + row % GROUP
        offs_n = tl.arange(0, TILE_N)
        offs_d = tl.arange(0, D_PAD)
        is_dim = offs_d < D
        mine = (token < count)[:, None] & is_dim[None, :]
        at = (start + token).to(tl.int64)[:, None]
        q = tl.load(q_ptr + at * stride_qt + head[:, None] * stride_qh + offs_d[None, :], mask=mine, other=0.0)
        q_position = context + token
        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, D_PAD], tl.float32)

        k_ptr += kv_head * stride_head
        v_ptr += kv_head * stride_head
        table_ptr += seq * stride_table
        end = tl.minimum(context + (tile_m * BLOCK_M + BLOCK_M - 1) // GROUP + 1, length)
        block = tl.load(table_ptr + offs_n // BLOCK_SIZE, mask=offs_n < end, other=0)
        for tile in tl.range(0, tl.cdiv(end, TILE_N)):
            position = tile * TILE_N + offs_n
            offset = block.to(tl.int64) * stride_block + (position % BLOCK_SIZE) * stride_slot
            offset = tl.multiple_of(offset, 16)
            ahead = position + TILE_N
            block = tl.load(table_ptr + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
            readable = (position < end)[:, None] & is_dim[None, :]
            k = tl.load(k_ptr + offset[:, None] + offs_d[None, :], mask=readable, other=0.0)
            v = tl.load(v_ptr + offset[:, None] + offs_d[None, :], mask=readable, other=0.0)
            visible = position[None, :] <= q_position[:, None]  # position 0 is, to every row
            m, total, acc = attend_tile(q, k, v, visible, m, total, acc, scale_log2, PRECISION)

        acc = acc / total[:, None]
        to = out_ptr + at * stride_ot + head[:, None] * stride_oh + offs_d[None, :]
        tl.store(to, acc.to(out_ptr.dtype.element_ty), mask=mine)


def prefill(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    paging: Paging,
    starts: torch.Tensor,
    longest_chunk: int,
    *,
    scale: float | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from chunks of queries.

    Args:
        query: [T, H, D], the chunks of all sequences one behind the other.
        keys, values: the pool, [blocks, block_size, KV, D].
        paging: of the S sequences; lengths include the chunk.
        starts: where each chunk begins, and T at the end, [S + 1] int32 on the device.
        longest_chunk: tokens of the longest chunk.
        scale: of the scores, 1/√D by default.
        out: where to, [T, H, D].

    Returns:
        [T, H, D] in the type of the query.

    Raises:
        KernelError: the arguments do not fit each other or the kernel.
    """
    require_pool(keys, values)
    require_query(query, keys)
    require_shape("starts", starts, (len(paging.tables) + 1,))
    require_shape("keys", keys, (None, paging.block_size, None, None))
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    require_aligned("out", out)
    if len(query) == 0:
        return out
    heads, dim, kv_heads = query.shape[1], query.shape[2], keys.shape[2]
    group = heads // kv_heads
    tiles = prefill_tiles(dim, query.dtype)
    prefill_kernel[(triton.cdiv(longest_chunk * group, tiles.rows), kv_heads, len(paging.tables))](
        out,
        query,
        keys,
        values,
        paging.tables,
        paging.lengths,
        starts,
        (dim**-0.5 if scale is None else scale) * LOG2_E,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        out.stride(1),
        keys.stride(0),
        keys.stride(1),
        keys.stride(2),
        paging.tables.stride(0),
        **constants(heads, kv_heads, dim, query.dtype, paging.block_size),
        **tiles.options,
    )
    return out


def constants(heads: int, kv_heads: int, dim: int, dtype: torch.dtype, block_size: int) -> dict[str, Any]:
    """What the kernel is compiled for."""
    tiles = prefill_tiles(dim, dtype)
    return {
        "GROUP": heads // kv_heads,
        "D": dim,
        "D_PAD": power_of_2(dim),
        "BLOCK_SIZE": block_size,
        "BLOCK_M": tiles.rows,
        "TILE_N": tiles.positions,
        "PRECISION": precision(dtype),
    }
