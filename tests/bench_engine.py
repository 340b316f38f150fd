"""`make bench`: the engine's own cost, as ratios within one run on one machine.

CPU time of this process, each pair in turn; the median of the ratios, or the ratio of the best times, is printed with
its bound. Exit status 1 if a bound is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque

from engine import Engine, EngineConfig, Request, SamplingParams
from engine.hash_chain import HashChainIndex
from engine.pool import BlockPool
from engine.radix import RadixIndex
from engine.simulate import simulate
from engine.workload import real64, uniform

ROUNDS = 5


def seconds_per_step(running: int, num_blocks: int) -> float:
    """A decode step of `running` sequences on a pool of `num_blocks`."""
    engine = Engine(EngineConfig(num_blocks, max_num_seqs=running), keep_trace=False)
    for i in range(running):
        engine.submit(Request((i + 1,), SamplingParams(max_tokens=15)))
    engine.step()
    best = float("inf")
    for _ in range(12):
        start = time.process_time()
        engine.step()
        best = min(best, time.process_time() - start)
    return best


def seconds_for(requests: int) -> float:
    workload = uniform(requests, 22, 356, 1)
    start = time.process_time()
    simulate(workload, slots=256, keep_trace=False)
    return time.process_time() - start


def seconds_for_prefixes(make_index, requests: int, running: int = 64, b: int = 16) -> float:
    """So many requests over 100 shared beginnings of 256 tokens, through an index and a pool, without an engine."""
    index, pool = make_index(b), BlockPool(4096)
    shared = [tuple(range(256 * i, 256 * (i + 1))) for i in range(100)]
    at_work: deque[tuple[str, list[int]]] = deque()
    start = time.process_time()
    for i in range(requests):
        prompt = shared[i * 37 % 100] + tuple(range(-64 * i - 64, -64 * i))
        table = list(index.match(prompt).blocks)
        for block in table:
            if pool.is_free(block):
                pool.take_ids([block])
            else:
                pool.share(block)
        for filled in (len(prompt), len(prompt) + b, len(prompt) + 2 * b):
            new = pool.take(filled // b - len(table)) or []
            for block in new:
                index.drop(block)
            table += new
            index.publish(str(i), prompt + prompt[-b:] * (filled // b - len(prompt) // b), table)
        at_work.append((str(i), table))
        if len(at_work) == running:
            done, table = at_work.popleft()
            for block in reversed(table):
                pool.release(block)
            index.forget(done)
    return time.process_time() - start


def median_ratio(a, b, rounds: int = ROUNDS) -> float:
    return statistics.median(a() / b() for _ in range(rounds))


def ratio_of_best(a, b, rounds: int = 7) -> float:
    """For runs of a second: the speed of a shared machine changes within one, so a single ratio says little."""
    times = [(a(), b()) for _ in range(rounds)]
    return min(first for first, _ in times) / min(second for _, second in times)


def growth_of_prefixes(make_index) -> float:
    return ratio_of_best(
        lambda: seconds_for_prefixes(make_index, 10_000), lambda: seconds_for_prefixes(make_index, 5_000)
    )


def main() -> int:
    rows = [
        (
            "cost per step: pool of 1,000,000 blocks ÷ pool of 100",
            median_ratio(lambda: seconds_per_step(64, 1_000_000), lambda: seconds_per_step(64, 100)),
            1.3,
        ),
        (
            "cost per sequence: 512 running ÷ 64 running",
            median_ratio(lambda: seconds_per_step(512, 1024) / 512, lambda: seconds_per_step(64, 1024) / 64),
            1.3,
        ),
        (
            "256 slots: 10,000 requests ÷ 5,000",
            ratio_of_best(lambda: seconds_for(10_000), lambda: seconds_for(5_000), 5),
            2.2,
        ),
        (
            "256 slots: 20,000 requests ÷ 10,000",
            ratio_of_best(lambda: seconds_for(20_000), lambda: seconds_for(10_000), 3),
            2.2,
        ),
        (
            "hash, 100 shared beginnings: 10,000 requests ÷ 5,000",
            growth_of_prefixes(HashChainIndex),
            2.3,
        ),
        (
            "radix, 100 shared beginnings: 10,000 requests ÷ 5,000",
            growth_of_prefixes(RadixIndex),
            2.3,
        ),
    ]
    missed = 0
    for name, ratio, bound in rows:
        missed += ratio > bound
        print(f"{name:<56} {ratio:5.2f}  (at most {bound})  {'ok' if ratio <= bound else 'MISSED'}")
    start = time.process_time()
    for policy in ("static", "continuous"):
        simulate(real64(), policy=policy, slots=8).trace.lanes()
    print(f"the first view of lesson 1, both policies at B = 8: {time.process_time() - start:.2f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
