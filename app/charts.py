"""Data of the charts beside the text: rows that the engine counted, by the chart's name."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.kv import blocks_for
from engine.simulate import simulate
from engine.workload import real64

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SHARED = 100
"""Tokens of the opening that two requests share, in the chart of block sizes."""


@cache
def block_sizes() -> dict[str, Any]:
    """What a block size costs and gives, on the 64 real replies with 8 slots.

    Per size: `waste`, tail slots per running request, averaged over all steps; `table`, blocks in the table of the
    longest reply; `lost`, tokens of a shared opening that fall into a block of their own and cannot be shared.
    """
    workload = real64()
    longest = max(workload.lengths)
    rows = []
    for size in BLOCK_SIZES:
        report = simulate(workload, slots=8, block_size=size, keep_trace=False).report
        running = report["useful_cells"] / report["steps"]
        rows.append(
            {
                "b": size,
                "waste": report["kv"]["tail_waste"] / running,
                "table": blocks_for(longest, size),
                "lost": SHARED - SHARED // size * size,
            }
        )
    return {"rows": rows, "shared": SHARED, "longest": longest}


CHARTS = {"block_sizes": block_sizes}
