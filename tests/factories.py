"""Factories of the tests: the shortest way to a request, an engine, and a runner that can be tampered with."""

from __future__ import annotations

from dataclasses import replace

from engine import CountingRunner, Engine, EngineConfig, FakeRunner, Request, SamplingParams

PUBLISHED = [
    ("static", 8, 2116, 0.5871),
    ("continuous", 8, 1335, 0.9306),
    ("static", 16, 1258, 0.4938),
    ("continuous", 16, 790, 0.7863),
]
"""Policy, B, steps and utilisation on the 64 real lengths, as published."""


def make_request(prompt=4, max_tokens=4, **fields) -> Request:
    """A request of `prompt` tokens (a count, or the tokens themselves)."""
    tokens = range(100, 100 + prompt) if isinstance(prompt, int) else prompt
    params = SamplingParams(max_tokens=max_tokens, **fields.pop("params", {}))
    return Request(prompt_token_ids=tuple(tokens), params=params, **fields)


def make_engine(num_blocks=10, block_size=4, max_num_seqs=8, runner=None, **fields) -> Engine:
    """An engine over a small pool, with a FakeRunner unless told otherwise."""
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, max_num_seqs=max_num_seqs, **fields)
    return Engine(config, runner=runner if runner is not None else FakeRunner())


def make_counting_engine(**fields) -> Engine:
    return make_engine(runner=CountingRunner(), **fields)


def undisturbed(prompt, max_tokens) -> list[int]:
    """The reply that the request gets alone in a roomy pool."""
    engine = make_engine(num_blocks=1000, max_num_seqs=1)
    rid = engine.submit(make_request(prompt, max_tokens))
    engine.run()
    return engine.requests[rid].outputs[0]


def undisturbed_branches(request) -> list[list[int]]:
    """Every reply of a request that is alone in a roomy pool."""
    engine = make_engine(num_blocks=1000, max_num_seqs=request.params.beam_width or request.params.n)
    rid = engine.submit(replace(request, request_id="alone", arrival=0.0))
    engine.run()
    return engine.requests[rid].outputs


def run_checked(engine: Engine, max_steps: int = 10_000) -> list:
    """Step to the end, checking every invariant after every step; returns the records."""
    records = []
    while (record := engine.step()) is not None:
        engine.check()
        records.append(record)
        assert len(records) <= max_steps, "the engine makes no progress"
    engine.check()
    return records


def codes(record, *request_ids) -> list[str]:
    """Codes of a record's events, of these requests if any are named."""
    return [str(e.code) for e in record.events if not request_ids or e.request_id in request_ids]


class CorruptingRunner:
    """Passes plans on to another runner with one table entry changed in one step."""

    def __init__(self, inner, step, seq_id, logical, physical) -> None:
        self.inner, self.where, self.change = inner, (step, seq_id), (logical, physical)

    def run(self, plan):
        step, seq_id = self.where
        if plan.step == step:
            table = list(plan.block_tables[seq_id])
            table[self.change[0]] = self.change[1]
            plan = replace(plan, block_tables={**plan.block_tables, seq_id: tuple(table)})
        return self.inner.run(plan)
