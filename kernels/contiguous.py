"""Decode on contiguous KV: the same kernel without a table, so that what paging costs can be measured honestly.

    paged        position p → table[p // b] · b + p % b        one more load, scattered blocks
    contiguous   position p → p                                 nothing to look up

Everything else (tiles, splits, loads, online softmax) is the decode kernel itself.
"""

from __future__ import annotations

import torch

from kernels.arguments import require_aligned, require_heads, require_query, require_shape
from kernels.decode import launch


def decode_contiguous(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    splits: int = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from one query per sequence.

    Args:
        query: [S, H, D].
        keys, values: [S, L, KV, D].
        lengths: how many of the L positions count, [S] int32 on the device; not checked against L.

    Returns:
        [S, H, D].

    Raises:
        KernelError: shapes, strides or types do not fit.
    """
    require_shape("keys", keys, (len(query), None, None, None))
    require_shape("values", values, tuple(keys.shape))
    require_heads("keys", keys)
    require_aligned("keys", keys)
    require_aligned("values", values)
    require_query(query, keys)
    strides = (keys.stride(0), keys.stride(1), keys.stride(2))
    return launch(query, keys, values, None, lengths, strides, keys.shape[2], 1, scale, splits, out)
