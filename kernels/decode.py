"""Decode: one query token per sequence against its whole paged context; memory-bound, so each K/V byte is read once.

    program (KV head h, sequence s, split i)                     one step of its loop
                                                                   table  7  2  9      TILE_N = 2 blocks
       query heads that share h, padded to 16 rows                        │  │
       ┌────────────┐     ┌──────┬──────┬──────┬──────┐            ┌──────▼──▼───┐
       │ q [16, D]  │  ×  │ tile │ tile │ tile │ tile │            │ K[7]  K[2]  │ [TILE_N, D], 16-byte loads
       └────────────┘     └──────┴──────┴──────┴──────┘            │ V[7]  V[2]  │
                           split 0 ──────  split 1 ───             └─────────────┘
                                 │            │                    block ids of the next tile are loaded one step ahead,
                          (out, lse)    (out, lse)                 so K and V of two tiles can be under way
                                 └─ combine ──┘

All query heads of a KV head take part in one program (GQA packing). Splits leave a normalised fp32 output and its
log-sum-exp to base 2; a split without positions leaves −∞ and nothing else, and the combine kernel masks it by that.
With one split the output is written directly. A sequence of length 0 (a padded row) reads no KV and gets zeros.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import require_aligned, require_pool, require_query, require_shape
from kernels.paging import Paging
from kernels.splits import MIN_TILES, choose_splits
from kernels.tiles import LOG2_E, attend_tile, decode_tiles, power_of_2, precision

PROGRAMS_PER_SM = 2
"""Decode programs that a multiprocessor holds at once; `python -m kernels report` counts it."""

COMBINE_ROWS = 16


@triton.jit(do_not_specialize=["stride_table", "splits"])
def decode_kernel(
    out_ptr,  # [S, H, D]
    part_ptr,  # [S, H, splits, D] fp32
    lse_ptr,  # [S, H, splits] fp32
    q_ptr,  # [S, H, D]
    k_ptr,
    v_ptr,
    table_ptr,  # [S, W]
    length_ptr,  # [S]
    scale_log2,
    stride_qs,
    stride_qh,
    stride_os,
    stride_oh,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    splits,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE_N: tl.constexpr,
    MIN_TILES: tl.constexpr,
    PAGED: tl.constexpr,
    SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    GROUP_TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    kv_head = tl.program_id(0) // GROUP_TILES
    seq = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)

    length = tl.load(length_ptr + seq)
    tiles = tl.cdiv(length, TILE_N)
    per_split = tl.maximum(tl.cdiv(tiles, splits), MIN_TILES)
    first = tl.minimum(split * per_split, tiles)
    last = tl.minimum(first + per_split, tiles)

    offs_n = tl.arange(0, TILE_N)
    offs_d = tl.arange(0, D_PAD)
    in_group = (tl.program_id(0) % GROUP_TILES) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = kv_head * GROUP + in_group
    is_row = in_group < GROUP
    is_dim = offs_d < D
    mine = is_row[:, None] & is_dim[None, :]
    q = tl.load(q_ptr + seq * stride_qs + head[:, None] * stride_qh + offs_d[None, :], mask=mine, other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D_PAD], tl.float32)

    k_ptr += kv_head * stride_head
    v_ptr += kv_head * stride_head
    table_ptr += seq * stride_table
    position = first * TILE_N + offs_n
    if PAGED:
        block = tl.load(table_ptr + position // BLOCK_SIZE, mask=position < length, other=0)
    else:
        block = seq.to(tl.int32) + tl.zeros([TILE_N], tl.int32)  # sequence s has "block" s, as long as its context
    for tile in tl.range(first, last):
        position = tile * TILE_N + offs_n
        is_there = position < length
        if PAGED:
            offset = block.to(tl.int64) * stride_block + (position % BLOCK_SIZE) * stride_slot
            ahead = position + TILE_N
            block = tl.load(table_ptr + ahead // BLOCK_SIZE, mask=ahead < length, other=0)
        else:
            offset = block.to(tl.int64) * stride_block + position * stride_slot
        offset = tl.multiple_of(offset, 16)
        readable = is_there[:, None] & is_dim[None, :]
        k = tl.load(k_ptr + offset[:, None] + offs_d[None, :], mask=readable, other=0.0)
        v = tl.load(v_ptr + offset[:, None] + offs_d[None, :], mask=readable, other=0.0)
        m, total, acc = attend_tile(q, k, v, is_there[None, :], m, total, acc, scale_log2, PRECISION)

    seen = total > 0
    acc = acc / tl.where(seen, total, 1.0)[:, None]
    if SPLIT:
        lse = tl.where(seen, m + tl.log2(tl.where(seen, total, 1.0)), float("-inf"))
        row = (seq * HEADS + head) * splits + split
        tl.store(lse_ptr + row, lse, mask=is_row)
        tl.store(part_ptr + row[:, None] * D + offs_d[None, :], acc, mask=mine & seen[:, None])
    else:
        to = out_ptr + seq * stride_os + head[:, None] * stride_oh + offs_d[None, :]
        tl.store(to, acc.to(out_ptr.dtype.element_ty), mask=mine)


@triton.jit(do_not_specialize=["splits"])
def combine_kernel(
    out_ptr,
    part_ptr,
    lse_ptr,
    stride_os,
    stride_oh,
    splits,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Program (head, sequence): the mean of the partial outputs, weighted by 2^lse."""
    head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    offs_d = tl.arange(0, D_PAD)
    base = (seq * HEADS + head) * splits
    m = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([D_PAD], tl.float32)
    for start in tl.range(0, splits, ROWS):
        split = start + tl.arange(0, ROWS)
        lse = tl.load(lse_ptr + base + split, mask=split < splits, other=float("-inf"))
        live = lse > float("-inf")
        part = tl.load(
            part_ptr + (base + split)[:, None] * D + offs_d[None, :],
            mask=live[:, None] & (offs_d < D)[None, :],
            other=0.0,
        )
        m_new = tl.maximum(m, tl.max(lse, 0))
        shift = tl.where(m_new > float("-inf"), m_new, 0.0)
        weight = tl.exp2(lse - shift)
        alpha = tl.exp2(m - shift)
        total = total * alpha + tl.sum(weight, 0)
        acc = acc * alpha + tl.sum(part * weight[:, None], 0)
        m = m_new
    out = acc / tl.where(total > 0, total, 1.0)
    to = out_ptr + seq * stride_os + head * stride_oh + offs_d
    tl.store(to, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)


def decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    paging: Paging,
    *,
    scale: float | None = None,
    splits: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from one query per sequence.

    Args:
        query: [S, H, D], H a multiple of the pool's KV heads.
        keys, values: the pool, [blocks, block_size, KV, D].
        paging: tables and lengths of the S sequences.
        scale: of the scores, 1/√D by default.
        splits: into how many parts contexts are cut, chosen by `kernels.splits` by default.
        out: where to, [S, H, D].

    Returns:
        [S, H, D] in the type of the query.

    Raises:
        KernelError: the arguments do not fit each other or the kernel.
    """
    require_pool(keys, values)
    require_query(query, keys)
    require_shape("tables", paging.tables, (len(query), None))
    require_shape("keys", keys, (None, paging.block_size, None, None))
    if splits is None:
        heads, dim, kv_heads = query.shape[1], query.shape[2], keys.shape[2]
        splits = splits_for(heads, kv_heads, dim, query.dtype, paging.longest, paging.total, query.device)
    strides = (keys.stride(0), keys.stride(1), keys.stride(2))
    tables, lengths, size = paging.tables, paging.lengths, paging.block_size
    return launch(query, keys, values, tables, lengths, strides, keys.shape[2], size, scale, splits, out)


def splits_for(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, longest: int, total: int, device: torch.device
) -> int:
    """The number of splits on a device for a batch of `total` positions, `longest` in its longest sequence."""
    tiles = decode_tiles(heads // kv_heads, dim, dtype)
    programs = kv_heads * triton.cdiv(heads // kv_heads, tiles.rows)
    sequences = total / max(1, longest)
    return choose_splits(sequences, programs, triton.cdiv(longest, tiles.positions), _places(device))


def launch(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor | None,
    lengths: torch.Tensor,
    strides: tuple[int, int, int],
    kv_heads: int,
    block_size: int,
    scale: float | None,
    splits: int,
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Start the kernel, and the combine kernel if there are splits; without tables KV is contiguous. No checks."""
    count, heads, dim = query.shape
    group = heads // kv_heads
    tiles = decode_tiles(group, dim, query.dtype)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device) if out is None else out
    require_aligned("out", out)
    part = lse = out
    if splits > 1:
        part = torch.empty(count, heads, splits, dim, dtype=torch.float32, device=query.device)
        lse = torch.empty(count, heads, splits, dtype=torch.float32, device=query.device)
    if count == 0:
        return out
    decode_kernel[(kv_heads * triton.cdiv(group, tiles.rows), count, splits)](
        out,
        part,
        lse,
        query,
        keys,
        values,
        lengths if tables is None else tables,
        lengths,
        (dim**-0.5 if scale is None else scale) * LOG2_E,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        out.stride(1),
        *strides,
        0 if tables is None else tables.stride(0),
        splits,
        **constants(heads, kv_heads, dim, query.dtype, None if tables is None else block_size, splits > 1),
        **tiles.options,
    )
    if splits > 1:
        combine_kernel[(heads, count)](
            out, part, lse, out.stride(0), out.stride(1), splits, **combine_constants(heads, dim)
        )
    return out


def constants(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, block_size: int | None, split: bool
) -> dict[str, Any]:
    """What the decode kernel is compiled for; without a block size for contiguous KV."""
    tiles = decode_tiles(heads // kv_heads, dim, dtype)
    return {
        "HEADS": heads,
        "GROUP": heads // kv_heads,
        "D": dim,
        "D_PAD": power_of_2(dim),
        "BLOCK_SIZE": block_size or 1,
        "BLOCK_M": tiles.rows,
        "TILE_N": tiles.positions,
        "MIN_TILES": MIN_TILES,
        "PAGED": block_size is not None,
        "SPLIT": split,
        "PRECISION": precision(dtype),
    }


def combine_constants(heads: int, dim: int) -> dict[str, Any]:
    """What the combine kernel is compiled for."""
    return {"HEADS": heads, "D": dim, "D_PAD": power_of_2(dim), "ROWS": COMBINE_ROWS}


def _places(device: torch.device) -> int:
    """Decode programs that run at once; the interpreter takes an H200's 132 multiprocessors for its example."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132
    return PROGRAMS_PER_SM * sms
