"""Decode steps of the whole engine on a GPU: a 1B-sized model with random weights, 64 sequences.

    python -m tests.kernels.bench_steps [--dry-run] [--results FILE]

The floor of a step is the bytes of the weights and of the KV it reads, over the copy bandwidth measured in the same
run. What lies between is launches, small kernels between the large ones, sampling, and the engine's own Python.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from engine import Engine, EngineConfig, Request, SamplingParams
from engine.model import attention
from engine.model.loading import LoadedModel
from engine.model.runner import ModelRunner
from kernels import timing
from kernels.results import Table, Target, write

TARGET = 2.5
"""A decode step may take this many times its floor."""


@dataclass(frozen=True)
class Size:
    """Model and workload."""

    sequences: int
    prompt: int
    reply: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    dim: int
    vocabulary: int


ONE_BILLION = Size(64, 1024, 48, 2048, 8192, 16, 32, 8, 64, 128256)
DRY = Size(3, 5, 4, 64, 96, 2, 4, 2, 16, 97)


def make_model(size: Size, device: str, dtype: torch.dtype) -> LoadedModel:
    """A Llama of this size with random weights, without a tokenizer."""
    attention.register()
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.dim,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAME)
    model = model.eval().requires_grad_(False)
    return LoadedModel(
        name="random weights",
        model=model,
        tokenizer=None,
        layers=[attention.LayerShape(size.kv_heads, size.dim, size.dim)] * size.layers,
        num_parameters=sum(p.numel() for p in model.parameters()),
        vocab_size=size.vocabulary,
        max_model_len=8192,
        eos_token_ids=frozenset(),
        packed_layers=0,
        decoder=None,
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure decode steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.bench_steps")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--results", metavar="FILE")
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = DRY if args.dry_run else ONE_BILLION
    bandwidth = timing.copy_bandwidth(device)
    loaded = make_model(size, device, torch.bfloat16 if device == "cuda" else torch.float32)
    block, total = 16, size.prompt + size.reply
    config = EngineConfig(
        num_blocks=size.sequences * -(-total // block) + 8,
        block_size=block,
        max_num_seqs=size.sequences,
        max_num_batched_tokens=max(64, 8 * size.prompt),
    )
    runner = ModelRunner(loaded, backend="triton")
    spent: list[float] = []
    inner_run = runner.run

    def timed_run(plan):
        begin = time.perf_counter()
        found = inner_run(plan)  # ends with the tokens on the host: the GPU is done
        spent.append(time.perf_counter() - begin)
        return found

    runner.run = timed_run
    engine = Engine(config, runner, keep_trace=False)
    for number in range(size.sequences):
        prompt = [(number * 31 + at * 7) % size.vocabulary for at in range(size.prompt)]
        params = SamplingParams(max_tokens=size.reply, ignore_eos=True)
        engine.submit(Request(prompt_token_ids=tuple(prompt), params=params))
    steps, tokens = [], []
    while True:
        begin = time.perf_counter()
        record = engine.step()
        if record is None:
            break
        counts = record.plan.num_scheduled_tokens
        if len(counts) == size.sequences and set(counts.values()) == {1}:
            steps.append((time.perf_counter() - begin, spent[-1]))
            tokens.append(sum(record.plan.num_computed_tokens.values()) + size.sequences)
    steps, tokens = steps[len(steps) // 4 :], tokens[len(tokens) // 4 :]  # the first ones make graphs
    weights = loaded.num_parameters * loaded.dtype.itemsize
    kv = statistics.median(tokens) * runner.kv_bytes_per_token
    whole, inside = (statistics.median(part) * 1e6 for part in zip(*steps, strict=True))
    if args.dry_run:
        whole = inside = float("nan")
    floor = (weights + kv) / bandwidth * 1e6
    name = f"{loaded.num_parameters / 1e9:.2f}B, {size.sequences} sequences of {size.prompt:,} and more"
    table = Table("Engine decode steps (measured)", ["case", "steps", "floor µs", "step µs", "model and sampling µs"])
    table.add([name, len(steps), floor, whole, inside])
    target = Target("engine decode step over its floor", whole / floor, TARGET)
    print(table.text(), target.text(), sep="\n\n")
    if args.results and not args.dry_run:
        write(args.results, "engine", f"{torch.cuda.get_device_name()}, torch {torch.__version__}", [table], [target])
    return int(not steps)


if __name__ == "__main__":
    sys.exit(main())
