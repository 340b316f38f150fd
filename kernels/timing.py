"""How the benchmarks measure: CUDA graphs of many calls on rotating data, the median of replays.

    one replay:  call(set 0) call(set 1) … call(set R − 1)        R sets hold more than four times the L2 cache,
    time / R = one call, data from memory, no launch from Python          so that nothing is still there from before

Where there is no GPU every call runs once and nothing is timed: that shows that a benchmark runs, not how fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

REPLAYS = 9
L2_FACTOR = 4
MOST_SETS = 256
COPY_BYTES = 2 << 30


def sets_needed(bytes_read: int, device: str) -> int:
    """How many data sets of this size a call must rotate among."""
    if device != "cuda":
        return 1
    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    return max(1, min(MOST_SETS, -(-L2_FACTOR * l2 // max(1, bytes_read))))


def microseconds(call: Callable[[int], object], sets: int, device: str) -> float:
    """Median time of `call(set number)`; NaN where there is no GPU.

    Args:
        call: the work on one data set; it must not wait for the GPU.
        sets: how many data sets there are.
    """
    if device != "cuda":
        for number in range(sets):
            call(number)
        return float("nan")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
        call(sets - 1)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(sets):
            call(number)
    graph.replay()
    torch.cuda.synchronize()
    found = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1000 / sets)
    del graph
    return statistics.median(found)


def copy_bandwidth(device: str) -> float:
    """Bytes per second that a copy in GPU memory reads and writes, both counted; NaN where there is no GPU."""
    if device != "cuda":
        return float("nan")
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    destination = torch.empty_like(source)
    return 2 * COPY_BYTES / microseconds(lambda _: destination.copy_(source), 1, device) * 1e6


def product_rate(device: str) -> float:
    """Floating-point operations per second of a large bf16 matrix product; NaN where there is no GPU."""
    if device != "cuda":
        return float("nan")
    size = 8192
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / microseconds(lambda _: torch.mm(a, b, out=out), 1, device) * 1e6
