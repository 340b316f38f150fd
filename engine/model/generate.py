"""`python -m engine generate`: prompts in, text out, through the engine and its paged pool.

generate(model, prompts, params) → one reply per prompt, all in one engine, new text handed to a callback as it comes
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig, require_int
from engine.engine import Engine
from engine.errors import ModelError, ValidationError
from engine.model.machine import load_for
from engine.request import Request, SamplingParams
from engine.request import Sequence as EngineSequence

if TYPE_CHECKING:
    pass

DEFAULT_MODEL = Path(__file__).resolve().parent.parent.parent / "data" / "tiny-model"


@dataclass(frozen=True)
class Reply:
    """One reply: its text (never half a character), its tokens, why it ended, and a beam's score per token."""

    text: str
    token_ids: list[int]
    finish_reason: str | None
    score: float | None = None


def add_parser(commands: Any) -> None:
    """Add `generate` to the command line."""
    parser = commands.add_parser("generate", help="let a model answer prompts, all in one engine")
    parser.set_defaults(run=run_command)
    add = parser.add_argument
    add("--model", default=str(DEFAULT_MODEL), help="a folder or a hub name (default: the small model in data/)")
    add("--prompt", action="append", required=True, metavar="TEXT", help="may be given several times")
    add("--chat", action="store_true", help="wrap each prompt in the model's chat template")
    add("--max-tokens", type=int, default=64, metavar="N", help="most tokens of a reply (default 64)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 for greedy (default)")
    add("--top-k", type=int, metavar="K")
    add("--top-p", type=float, default=1.0, metavar="P")
    add("--seed", type=int, default=0, metavar="S")
    add("--n", type=int, default=1, metavar="K", help="K replies to each prompt (needs a temperature above 0)")
    add("--beam", type=int, metavar="W", help="beam search of this width, all W replies, best first")
    add("--ignore-eos", action="store_true", help="go on after the model's end-of-text token")
    add("--backend", choices=("auto", "torch", "triton"), default="auto")
    add("--threads", type=int, metavar="N", help="threads of torch (default: its own choice)")
    add("--slots", type=int, default=8, metavar="B")
    add("--block-size", type=int, default=16, metavar="b")
    add(
        "--blocks",
        type=int,
        metavar="P",
        help="blocks in the pool (default: what fits into a GPU's memory, on a CPU room for B replies of this length)",
    )
    add("--json", action="store_true", help="print one JSON object")


def run_command(args: argparse.Namespace) -> int:
    """The command."""
    import torch

    from engine.model.runner import ModelRunner

    if args.threads is not None:
        torch.set_num_threads(require_int("--threads", args.threads, minimum=1, maximum=1024))
    params = SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        ignore_eos=args.ignore_eos,
        n=args.n,
        beam_width=args.beam,
    )
    loaded, backend, reason = load_for(args.model, args.backend)
    if reason and args.backend == "triton":
        print(f"running on torch instead of triton: {reason}", file=sys.stderr)
    prompts = [encode(loaded.tokenizer, text, chat=args.chat) for text in args.prompt]
    size = require_int("--block-size", args.block_size, minimum=1)
    slots = require_int("--slots", args.slots, minimum=1)
    blocks = args.blocks
    if blocks is None and loaded.device.type == "cuda":
        from engine.model.triton_backend import blocks_that_fit

        blocks = blocks_that_fit(loaded, size)
    if blocks is None:
        longest = max(len(ids) for ids in prompts) + args.max_tokens
        longest = min(longest, loaded.max_model_len or longest)
        blocks = min(slots, len(prompts) * (args.beam or args.n)) * -(-longest // size)
    config = EngineConfig(num_blocks=blocks, block_size=size, max_num_seqs=slots, seed=args.seed)
    engine = Engine(config, ModelRunner(loaded, seed=args.seed, backend=backend), keep_trace=False)
    begin = time.perf_counter()
    shown = [text for text in args.prompt for _ in range(args.beam or args.n)]
    replies = generate(engine, loaded.tokenizer, prompts, params, None if args.json else _Terminal(shown))
    seconds = time.perf_counter() - begin
    tokens = sum(len(reply.token_ids) for reply in replies)
    if args.json:
        report = {
            "model": loaded.name,
            "backend": backend,
            "backend_reason": reason,
            "device": str(loaded.device),
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "outputs": [vars(reply) for reply in replies],
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
            "config": {"num_blocks": blocks, "block_size": size, "max_num_seqs": slots, "seed": args.seed},
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(
            f"\n{tokens} tokens in {seconds:.2f} s, {tokens / seconds:.1f} tokens/s "
            f"(measured: {loaded.name}, {loaded.device}, {backend}, {torch.get_num_threads()} threads)",
            file=sys.stderr,
        )
    return 0


def encode(tokenizer: Any, text: str, *, chat: bool = False) -> list[int]:
    """Token ids of a prompt, nothing added to it but what a chat template adds.

    Raises:
        ValidationError: the prompt is empty, or there is no chat template.
        ModelError: the model has no tokenizer.
    """
    if tokenizer is None:
        raise ModelError("this model has no tokenizer beside it: add tokenizer.json to its folder")
    if not text.strip():
        raise ValidationError("the prompt is empty: give at least one character")
    if chat:
        if not getattr(tokenizer, "chat_template", None):
            raise ValidationError("this model has no chat template: leave out --chat")
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
    return tokenizer(text, add_special_tokens=False).input_ids


def generate(
    engine: Engine,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    show: Callable[[int, str, bool], None] | None = None,
) -> list[Reply]:
    """Run prompts to the end in one engine.

    Args:
        show: called with (reply number, new text, whether it is over) as text comes; beams are shown at the end.

    Returns:
        the replies, by prompt and then by branch.

    Raises:
        CapacityError, ValidationError: a prompt cannot run; none has been started then.
    """
    from engine.model.text import TextStream

    ids = [engine.submit(Request(prompt_token_ids=tuple(prompt), params=params)) for prompt in prompts]
    branches = params.beam_width or params.n
    streams = [TextStream(tokenizer) for _ in range(branches * len(ids))]
    taken = [0] * len(streams)
    running = True
    while running:
        running = engine.step() is not None
        if running and params.beam_width is not None:
            continue  # beams overtake each other: their text stands at the end
        for number, seq in _numbered(engine, ids, branches):
            new = seq.output_token_ids[taken[number] :]
            if not new:
                continue
            taken[number] += len(new)
            over = seq.status.is_final
            text = streams[number].add(new) + (streams[number].end() if over else "")
            if show is not None:
                show(number, text, over)
    return [
        Reply(streams[number].text, seq.output_token_ids, seq.finish_reason, seq.score)
        for number, seq in _numbered(engine, ids, branches)
    ]


def _numbered(engine: Engine, ids: list[str], branches: int) -> Iterator[tuple[int, EngineSequence]]:
    """Every branch with the number of its reply."""
    for at, request_id in enumerate(ids):
        for branch, seq in enumerate(engine.requests[request_id].sequences):
            yield at * branches + branch, seq


class _Terminal:
    """Streams the first unfinished reply, then what the next has so far, so that lines do not mix."""

    def __init__(self, prompts: Sequence[str]) -> None:
        self._prompts = prompts
        self._held = [""] * len(prompts)
        self._over = [False] * len(prompts)
        self._at = 0
        self._begun = False

    def __call__(self, number: int, text: str, over: bool) -> None:
        self._held[number] += text
        self._over[number] = over
        while self._at < len(self._prompts):
            if not self._begun:
                print(f"[{self._at + 1}] {self._prompts[self._at]}", end="")
            self._begun = True
            print(self._held[self._at], end="", flush=True)
            self._held[self._at] = ""
            if not self._over[self._at]:
                break
            print()
            self._at, self._begun = self._at + 1, False
