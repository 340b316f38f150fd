"""One step of attention on tiles, shared by all kernels, and how large the tiles are.

             TILE_N positions
            ┌─────────────┐
    BLOCK_M │ scores s    │   s = q kᵀ · scale · log2(e), hidden positions −∞
    query   └─────────────┘   new maximum m', p = 2^(s − m'), old sums shrink by α = 2^(m − m')
    rows    ┌──────┐
            │ acc  │ D        acc = acc · α + p v,  l = l · α + Σ p      (online softmax, Milakov and Gimelshein 2018)
            └──────┘

Logarithms have base 2 throughout, because the GPU's exponential has.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Interpreted, bf16 is kept as raw integers and arithmetic on it is wrong: products are taken in fp32 then."""

LOG2_E = 1.4426950408889634


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """a [M, K] times b [K, N], summed in fp32."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def attend_tile(q, k, v, visible, m, l, acc, scale_log2, PRECISION: tl.constexpr):
    """Take one tile of keys and values into the running softmax.

    Every row must have seen a position by the end of the first tile, so that its maximum m is finite from then on.
    q [BLOCK_M, D]; k, v [TILE_N, D]; visible [BLOCK_M, TILE_N] or [1, TILE_N]; m, l [BLOCK_M]; acc [BLOCK_M, D].
    """
    s = dot(q, tl.trans(k), PRECISION) * scale_log2
    s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(s - m_new[:, None])
    l = l * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + dot(p.to(v.dtype), v, PRECISION)
    return m_new, l, acc


@dataclass(frozen=True)
class Tiles:
    """Sizes of a launch: query rows and positions per tile, warps, and how many tiles are loaded ahead."""

    rows: int
    positions: int
    warps: int
    stages: int


def decode_tiles(group: int, head_dim: int, dtype: torch.dtype) -> Tiles:
    """Tiles of the decode kernel; `group` query heads share a KV head, at least 16 rows are needed by the tensor cores."""
    rows = min(64, max(16, triton.next_power_of_2(group)))
    wide = triton.next_power_of_2(head_dim) * dtype.itemsize
    return Tiles(rows, max(16, min(64, 16384 // wide)), 4, 3)


def prefill_tiles(head_dim: int, dtype: torch.dtype) -> Tiles:
    """Tiles of the prefill kernel. In fp32 there are no tensor cores to keep, and larger tiles spill."""
    if dtype == torch.float32:
        return Tiles(16, 32, 4, 2)
    return Tiles(64, 64, 4, 3) if head_dim <= 128 else Tiles(64, 32, 4, 2)


def precision(dtype: torch.dtype) -> str:
    """fp32 is multiplied as fp32, not rounded to the 10 bits of tf32; 16-bit types don't care."""
    return "ieee" if dtype == torch.float32 else "tf32"
