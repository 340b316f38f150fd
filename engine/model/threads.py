"""How many cores torch takes: one number for the whole process, set before the first forward."""

from __future__ import annotations

import torch


def use_threads(count: int) -> None:
    """Let torch compute on `count` threads, whichever thread calls it."""
    torch.set_num_threads(count)
