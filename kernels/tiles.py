"""One step of attention on tiles, shared by all kernels, and how large the tiles are.

             TILE_N positions
            ┌─────────────┐
    BLOCK_M │ scores s    │   s = q kᵀ · scale · log2(e), hidden positions −∞
    query   └─────────────┘   new maximum m', p = 2^(s − m'), old sums shrink by α = 2^(m − m')
    rows    ┌──────┐
            │ acc  │ D        acc = acc · α + p v,  total = total · α + Σ p
            └──────┘

That is the online softmax (Milakov and Gimelshein 2018). Logarithms have base 2 throughout,
because the GPU's exponential has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(bool(knobs.runtime.interpret))
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
def attend_tile(q, k, v, visible, m, total, acc, scale_log2, PRECISION: tl.constexpr):
    """Take one tile of keys and values into the running softmax.

    Every row must have seen a position by the end of the first tile, so that its maximum m is finite from then on.
    q [BLOCK_M, D]; k, v [TILE_N, D]; visible [BLOCK_M, TILE_N] or [1, TILE_N]; m, total [BLOCK_M]; acc [BLOCK_M, D].
    """
    s = dot(q, tl.trans(k), PRECISION) * scale_log2
    s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(s - m_new[:, None])
    total = total * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + dot(p.to(v.dtype), v, PRECISION)
    return m_new, total, acc


@dataclass(frozen=True)
class Tiles:
    """Sizes of a launch: query rows and positions per tile, warps, and how many tiles are loaded ahead."""

    rows: int
    positions: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, Any]:
        """As a launch takes them."""
        return {"num_warps": self.warps, "num_stages": self.stages}


def power_of_2(number: int) -> int:
    """The smallest power of two that is not below: tiles have such sizes, what is too much of them is masked."""
    return 1 << (number - 1).bit_length()


def decode_tiles(group: int, head_dim: int, dtype: torch.dtype) -> Tiles:
    """Tiles of the decode kernel: 16 KB of keys in 16-bit types, less in fp32, whose products take more registers.

    `group` query heads share a KV head; the tensor cores need at least 16 rows.
    """
    rows = min(64, max(16, power_of_2(group)))
    size, most = (8192, 32) if dtype == torch.float32 else (16384, 64)
    return Tiles(rows, max(16, min(most, size // (power_of_2(head_dim) * dtype.itemsize))), 4, 3)


def prefill_tiles(head_dim: int, dtype: torch.dtype) -> Tiles:
    """Tiles of the prefill kernel, as large as leaves no spills for either target (`python -m kernels report`)."""
    padded = power_of_2(head_dim)
    if dtype == torch.float32:
        return Tiles(16, 32 if padded <= 128 else 16, 4, 2)
    if padded <= 64:
        return Tiles(64, 64, 4, 3)
    return Tiles(64, 32, 4, 3) if padded == 128 else Tiles(64, 32, 8, 2)


def precision(dtype: torch.dtype) -> str:
    """fp32 is multiplied as fp32, not rounded to the 10 bits of tf32; 16-bit types don't care."""
    return "ieee" if dtype == torch.float32 else "tf32"
