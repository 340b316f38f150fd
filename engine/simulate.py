"""`simulate`: a workload through an engine without a model, and the report of it (also `python -m engine simulate`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from engine.clock import make_clock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import CapacityError
from engine.kv import blocks_for, make_kv_manager
from engine.metrics import latencies
from engine.request import Request
from engine.trace import Trace
from engine.workload import Workload


@dataclass(frozen=True)
class Simulation:
    """What came out: the engine after the run, and the report, JSON-ready."""

    engine: Engine
    report: dict[str, Any]

    @property
    def trace(self) -> Trace:
        """The run, step by step."""
        if self.engine.trace is None:
            raise ValueError("this simulation kept no trace")
        return self.engine.trace


def simulate(
    workload: Workload,
    *,
    slots: int = 8,
    blocks: int | None = None,
    prompt_tokens: int = 1,
    clock: str = "step",
    keep_trace: bool = True,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Simulation:
    """Run a workload to its end on counting runners.

    Args:
        workload: who asks for how much.
        slots: B.
        blocks: P; None takes B × the largest demand of one request.
        prompt_tokens: prompt length of items that state none.
        clock: `step` or `anchor`.
        keep_trace: keep the trace of the run.
        progress: called now and then with (requests over, requests).
        options: further fields of `EngineConfig`.

    Raises:
        ValidationError: a parameter is out of range.
    """
    requests = workload.requests(prompt_tokens)
    notes: list[str] = []
    if options.get("kv") == "max" and options.get("max_model_len") is None and not workload.states_a_limit:
        options["max_model_len"] = max(r.prompt_len + r.reply_len for r in requests)
        notes.append(f"max_model_len set to {options['max_model_len']}, the largest prompt + reply of the workload")
    if blocks is None:
        blocks = max(1, slots) * largest_demand(requests, EngineConfig(1, max_num_seqs=slots, **options))
        notes.append(f"num_blocks set to {blocks}: slots × the largest demand of one request")
    config = EngineConfig(num_blocks=blocks, max_num_seqs=slots, **options)
    if slots > len(requests):
        notes.append(f"{slots} slots for {len(requests)} requests: some stay empty")
    engine = Engine(config, clock=make_clock(clock), keep_trace=keep_trace)
    refused = 0
    for request in requests:
        try:
            engine.submit(request)
        except CapacityError:
            refused += 1
    while engine.step() is not None:
        if progress is not None and engine.clock.step % 64 == 0:
            progress(sum(s.finish_reason is not None for s in engine.requests.values()), len(requests))
    return Simulation(engine, report(engine, refused, notes))


def largest_demand(requests: list[Request], config: EngineConfig) -> int:
    """Blocks of the request that needs most, leaving out those the model's limit refuses anyway; at least 1."""
    kv, limit = make_kv_manager(config), config.max_model_len
    fitting = [r for r in requests if limit is None or r.prompt_len + r.params.max_tokens <= limit]
    return max((kv.demand(r) for r in fitting), default=blocks_for(1, config.block_size))


def report(engine: Engine, refused: int, notes: list[str]) -> dict[str, Any]:
    """The figures of a run that has ended."""
    config, metrics = engine.config, engine.metrics
    states = list(engine.requests.values())
    return {
        "steps": metrics.steps,
        "utilisation": metrics.utilisation(config.max_num_seqs),
        "useful_cells": metrics.useful_cells,
        "finished": sum(s.finish_reason in ("length", "stop") for s in states),
        "refused": refused,
        "preemptions": metrics.preemptions,
        "recomputed_tokens": metrics.recomputed_tokens,
        "hit_tokens": sum(metrics.prefix_hits.values()),
        "bytes_moved": metrics.bytes_swapped,
        "kv": metrics.kv(config.num_blocks, config.block_size),
        **latencies(states, engine.clock.unit),
        "seed": config.seed,
        "config": asdict(config),
        "notes": notes,
    }
