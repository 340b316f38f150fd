"""What the kernels should compute, in float64 and in the plainest words; nothing here is fast."""

from __future__ import annotations

import torch


def gather(pool: torch.Tensor, table: list[int], length: int) -> torch.Tensor:
    """Positions 0 … length − 1 of a sequence out of a pool [blocks, block_size, KV, D] → [length, KV, D] float64."""
    size = pool.shape[1]
    rows = [pool[table[p // size], p % size] for p in range(length)]
    return torch.stack(rows).double() if rows else pool.new_zeros(0, *pool.shape[2:]).double()


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Causal attention of one sequence, the queries being its last positions.

    Args:
        query: [n, H, D]; keys, values: [L, KV, D] with L ≥ n; query head h reads KV head h // (H / KV).

    Returns:
        [n, H, D] float64; zeros if there is nothing to attend to.
    """
    count, heads, dim = query.shape
    length, kv_heads = keys.shape[:2]
    if length == 0:
        return torch.zeros(count, heads, dim, dtype=torch.float64, device=query.device)
    head = torch.arange(heads, device=query.device) // (heads // kv_heads)
    scores = torch.einsum("nhd,lhd->hnl", query.double(), keys.double()[:, head]) * (
        dim**-0.5 if scale is None else scale
    )
    position = torch.arange(length, device=query.device)
    hidden = position > (length - count + torch.arange(count, device=query.device))[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hnl,lhd->nhd", weights, values.double()[:, head])


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over norm of the expected; inf if anything found is not a number."""
    found, expected = found.double(), expected.double()
    if not bool(found.isfinite().all()):
        return float("inf")
    norm = expected.norm().item()
    return (found - expected).norm().item() / norm if norm else found.norm().item()
