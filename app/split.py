"""Four ways of handing out the same KV memory on the same workload: how the pool is split, step by step.

Lesson 2's runs: the 64 real replies behind prompts of one length, a model limit, a pool, and slots for everybody, so
that memory alone decides who waits. The contiguous rules hand out single slots, the paged one blocks of 16. The same
numbers come from the command line; `command` writes it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from app.lanes import SpecError
from engine.simulate import simulate
from engine.usage import PARTS
from engine.workload import real64

RULES = ("max", "pow2", "oracle", "paged")
OFFERED = {"prompt": ("16", "64", "128"), "limit": ("512", "1024", "2048"), "pool": ("2048", "4096", "8192")}
DEFAULTS = {"prompt": "64", "limit": "512", "pool": "2048"}
SLOTS = 64
BLOCK_SIZE = 16


def parse(params: Mapping[str, str]) -> tuple[int, int, int]:
    """Prompt length, limit and pool, all in tokens, of the offered ones; SpecError names what is not."""
    given = {**DEFAULTS, **params}
    for name, values in OFFERED.items():
        if given[name] not in values:
            raise SpecError("query", name=name)
    return int(given["prompt"]), int(given["limit"]), int(given["pool"])


def block_size(rule: str) -> int:
    """16 for the paged rule; the contiguous ones hand out single slots."""
    return BLOCK_SIZE if rule == "paged" else 1


def command(rule: str, prompt: int, limit: int, pool: int) -> str:
    """The command that prints the same run's report."""
    size = block_size(rule)
    return (
        f"python -m engine simulate --workload real64 --policy continuous --slots {SLOTS} --kv {rule}"
        f" --blocks {pool // size} --block-size {size} --prompt-tokens {prompt} --max-len {limit} --json"
    )


@lru_cache(maxsize=128)
def run(rule: str, prompt: int = 64, limit: int = 512, pool: int = 2048) -> dict[str, Any]:
    """One rule's run: the report of `simulate`, and per step the five parts of the pool and how many wait."""
    size = block_size(rule)
    made = simulate(
        real64(),
        slots=SLOTS,
        kv=rule,
        blocks=pool // size,
        block_size=size,
        prompt_tokens=prompt,
        max_model_len=limit,
    )
    steps = made.trace.steps
    return {
        "report": made.report,
        "parts": {part: list(steps[part]) for part in PARTS},
        "waiting": list(steps["waiting"]),
        "running": list(steps["rows"]),
    }


def picture(params: Mapping[str, str]) -> dict[str, Any]:
    """What the page draws: per rule the parts over time, their averages, and the figures beside them.

    Raises:
        SpecError: the query is not usable.
    """
    prompt, limit, pool = parse(params)
    rules = {}
    for rule in RULES:
        made = run(rule, prompt, limit, pool)
        report, kv = made["report"], made["report"]["kv"]
        rules[rule] = {
            "parts": made["parts"],
            "waiting": made["waiting"],
            "running": made["running"],
            "mean": {part: kv[part] for part in PARTS},
            "live_share": kv["live_share"],
            "live_share_saturated": kv["live_share_saturated"],
            "steps": report["steps"],
            "preemptions": report["preemptions"],
            "command": command(rule, prompt, limit, pool),
        }
    return {"prompt": prompt, "limit": limit, "pool": pool, "rules": rules}
