"""`python -m engine bench`: this engine against transformers, as ratios of one run on one machine.

Four ways to answer the same prompts with the same reply lengths: `generate` one request at a time, `generate` on padded
batches, transformers' own continuous batching, and this engine, the last three with 8 at once. Rounds are interleaved,
so that whatever else the machine does falls on all of them; medians are compared. Beside it a step of one sequence
against the time that merely reading the weights takes.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config import EngineConfig, require_int
from engine.engine import Engine
from engine.request import Request, SamplingParams

AT_ONCE = 8
WAYS = ("one at a time", "padded batches", "transformers' continuous batching", "this engine")


def add_parser(commands: Any) -> None:
    """Add `bench` to the command line."""
    parser = commands.add_parser("bench", help="throughput against transformers, same prompts, one run")
    parser.set_defaults(run=run_command)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, medians are shown (default 5)")
    parser.add_argument("--requests", type=int, default=16, help="requests in a round (default 16)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--model", action="append", help="a folder; default: the small model, and SmolLM2 if fetched")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_command(args: argparse.Namespace) -> int:
    """The command."""
    import torch

    from engine.model.fetch import available
    from engine.model.generate import DEFAULT_MODEL

    rounds = require_int("--rounds", args.rounds, minimum=1, maximum=1000)
    requests = require_int("--requests", args.requests, minimum=1, maximum=10_000)
    torch.set_num_threads(require_int("--threads", args.threads, minimum=1, maximum=1024))
    fetched = available("smollm2")
    sources = args.model or [DEFAULT_MODEL, *([fetched] if fetched else [])]
    reports = []
    for source in sources:
        reports.append(compare(source, rounds, requests))
        if not args.json:
            print(table(reports[-1]), flush=True)
    if args.json:
        print(json.dumps(reports, ensure_ascii=False))
    return 0


def compare(source: str | Path, rounds: int, requests: int) -> dict[str, Any]:
    """All ways on one model; tokens per second are medians over the rounds."""
    import torch
    from transformers import AutoModelForCausalLM

    from engine.model.runner import load_model

    loaded = load_model(source)
    reference: Any = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32, attn_implementation="sdpa")
    reference.eval()
    rnd = random.Random(0)
    vocabulary = range(min(256, loaded.vocab_size // 2), loaded.vocab_size)
    work = [(rnd.choices(vocabulary, k=rnd.randint(10, 40)), rnd.randint(20, 120)) for _ in range(requests)]
    tokens = sum(count for _, count in work)
    ways: list[Callable[[], int]] = [
        lambda: _one_at_a_time(reference, work),
        lambda: _padded(reference, work),
        lambda: _transformers_batching(reference, work),
        lambda: _this_engine(loaded, work),
    ]
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    floors: list[float] = []
    steps: list[float] = []
    busy = _Busy()
    for _ in range(rounds):
        for name, way in zip(WAYS, ways, strict=True):
            begin = time.perf_counter()
            made = way()
            seconds[name].append(time.perf_counter() - begin)
            if made != tokens:
                raise RuntimeError(f"{name} made {made} tokens instead of {tokens}")
        floors.append(_read_weights(loaded.num_parameters))
        steps.append(_single_step(loaded))
    speed = {name: tokens / statistics.median(values) for name, values in seconds.items()}
    floor, step = statistics.median(floors), statistics.median(steps)
    return {
        "model": loaded.name,
        "parameters": loaded.num_parameters,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "requests": requests,
        "tokens": tokens,
        "rounds": rounds,
        "tokens_per_second": speed,
        "over_transformers": speed[WAYS[3]] / speed[WAYS[2]],
        "single_step_ms": 1e3 * step,
        "weight_read_ms": 1e3 * floor,
        "step_over_floor": step / floor,
        "others_busy": busy.others(),
    }


def table(report: dict[str, Any]) -> str:
    """A report for people, as Markdown."""
    rows = [
        f"{report['model']}, float32, {report['threads']} threads, {report['requests']} requests, "
        f"{report['tokens']} tokens, median of {report['rounds']} (measured; other processes used "
        f"{report['others_busy']:.0%} of the machine)",
        "",
        "| way | tokens/s | ratio |",
        "|---|---|---|",
    ]
    base = report["tokens_per_second"][WAYS[2]]
    rows += [f"| {name} | {speed:,.1f} | {speed / base:.2f} |" for name, speed in report["tokens_per_second"].items()]
    rows += [
        "",
        f"one sequence: a step takes {report['single_step_ms']:.1f} ms, reading the weights "
        f"{report['weight_read_ms']:.1f} ms: {report['step_over_floor']:.2f}",
        "",
    ]
    return "\n".join(rows)


def _this_engine(loaded: Any, work: list[tuple[list[int], int]]) -> int:
    from engine.model.runner import ModelRunner

    blocks = AT_ONCE * max(-(-(len(prompt) + count) // 16) for prompt, count in work)
    engine = Engine(EngineConfig(num_blocks=blocks, max_num_seqs=AT_ONCE), ModelRunner(loaded), keep_trace=False)
    for prompt, count in work:
        engine.submit(Request(tuple(prompt), SamplingParams(max_tokens=count, ignore_eos=True)))
    engine.run()
    return sum(len(state.outputs[0]) for state in engine.requests.values())


def _one_at_a_time(model: Any, work: list[tuple[list[int], int]]) -> int:
    import torch

    made = 0
    for prompt, count in work:
        ids = torch.tensor([prompt])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, **_GREEDY)
        made += found.shape[1] - len(prompt)
    return made


def _padded(model: Any, work: list[tuple[list[int], int]]) -> int:
    """Batches of 8 padded on the left, each as long as its longest reply; only what was asked for is counted."""
    import torch

    for at in range(0, len(work), AT_ONCE):
        batch = work[at : at + AT_ONCE]
        width = max(len(prompt) for prompt, _ in batch)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt, _ in batch])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in batch])
        model.generate(ids, attention_mask=mask, max_new_tokens=max(count for _, count in batch), **_GREEDY)
    return sum(count for _, count in work)


_GREEDY = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def _transformers_batching(model: Any, work: list[tuple[list[int], int]]) -> int:
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    longest = max(count for _, count in work)
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=longest)
    batching = ContinuousBatchingConfig(
        page_size=32,
        num_blocks=256,
        max_batch_tokens=256,
        max_requests_per_batch=AT_ONCE,
        allow_block_sharing=False,
    )
    made = left = 0
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=batching
    ) as manager:
        for prompt, count in work:
            manager.add_request(prompt, max_new_tokens=count)
            left += 1
        while left:
            result = manager.get_result(timeout=60)
            if result is not None and result.is_finished():
                made += len(result.generated_tokens)
                left -= 1
    return made


def _single_step(loaded: Any, count: int = 12) -> float:
    """Seconds of one decode step of one sequence: the median over a short reply."""
    from engine.model.runner import ModelRunner

    engine = Engine(EngineConfig(num_blocks=8), ModelRunner(loaded), keep_trace=False)
    engine.submit(Request((1, 2, 3), SamplingParams(max_tokens=count, ignore_eos=True)))
    times = []
    while True:
        begin = time.perf_counter()
        if engine.step() is None:
            break
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def _read_weights(parameters: int) -> float:
    """Seconds to read as many float32 numbers as the model has, the best of a few."""
    import torch

    numbers = torch.ones(parameters)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - begin)
    return best


class _Busy:
    """How much of the machine other processes used since it was made."""

    def __init__(self) -> None:
        self._start = self._now()

    def others(self) -> float:
        """Share of all cores' time, 0 to 1; 0 where the system does not tell."""
        used, idle, own = (b - a for a, b in zip(self._start, self._now(), strict=True))
        return max(0.0, (used - own) / (used + idle)) if used + idle > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        import os

        try:
            ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return 0.0, 0.0, 0.0
        rate = os.sysconf("SC_CLK_TCK")
        idle = (ticks[3] + ticks[4]) / rate
        return sum(ticks) / rate - idle, idle, time.process_time()
