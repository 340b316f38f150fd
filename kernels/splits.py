"""Into how many splits decode cuts its contexts, so that a small batch still fills the GPU.

    batch 2, 1 split      SM 0 ████████████████  SM 1 ████████████████  SM 2 idle …
    batch 2, 8 splits     SM 0 ██  SM 1 ██  SM 2 ██ …  then a combine kernel puts 8 partial results together

FlashAttention-3's rule: none if the blocks nearly fill the GPU, else the fewest splits whose last wave is nearly as
full as the best. A ragged batch counts as fewer sequences, as many of the longest as would hold the same tokens.
"""

from __future__ import annotations

from functools import lru_cache

MIN_TILES = 4
"""A split takes at least this many tiles: shorter ones cost more in the combine kernel than they save."""

MAX_SPLITS = 128
FULL_ENOUGH = 0.8
NEARLY_BEST = 0.85


@lru_cache(maxsize=4096)
def choose_splits(sequences: float, heads: int, tiles: int, places: int) -> int:
    """Number of splits.

    Args:
        sequences: sequences of the longest length that would hold the batch's tokens, at least 1.
        heads: programs per sequence and split, that is KV heads times tiles of query heads.
        tiles: of the longest context.
        places: programs the GPU runs at once: multiprocessors times programs on each.
    """
    blocks = max(1, round(sequences * heads))
    most = min(MAX_SPLITS, tiles // MIN_TILES, places)
    if blocks >= FULL_ENOUGH * places or most <= 1:
        return 1
    efficiency = []
    for splits in range(1, most + 1):
        waves = blocks * splits / places
        efficiency.append(waves / -(-blocks * splits // places))
    good = NEARLY_BEST * max(efficiency)
    return next(splits for splits, found in enumerate(efficiency, 1) if found >= good)
