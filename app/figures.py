"""Figures of a lesson: the source paths of `lessons.paths`, resolved by the engine. Nothing here is typed in.

An atom such as `static.8.steps` is read off the same lanes that the picture draws, `anchor.requests` off the anchor
account; what only another memory manager or policy can tell is simulated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from app import board, charts, split
from app.lanes import POLICIES, Spec
from app.lanes import lanes as lanes_of
from engine import anchor
from engine.config import EngineConfig
from engine.contiguous import ContiguousKV
from engine.engine import Engine
from engine.kv import blocks_for
from engine.pool import BlockPool
from engine.request import Request, SamplingParams
from engine.simulate import simulate
from engine.usage import PARTS
from engine.workload import real64
from lessons.errors import LessonError
from lessons.paths import Atom, evaluate


@lru_cache(maxsize=1024)
def value_of(path: str) -> float:
    """The value of a source path.

    Raises:
        LessonError: the path names nothing the engine knows.
    """
    return evaluate(path, _atom)


def _atom(atom: Atom) -> float:
    head, *rest = atom.parts
    if head == "anchor":
        return _anchor(str(rest[0]))
    if head == "workload":
        return _workload(rest)
    if head in _OTHERS:
        return _OTHERS[str(head)](rest)
    return _run(_lanes(str(head), int(rest[0]), atom.kv), rest[1:])


def _anchor(key: str) -> float:
    figures = anchor.figures()
    if key not in figures:
        raise LessonError(f"the anchor account has no '{key}'")
    return figures[key]


def _workload(rest: list[Any]) -> float:
    lengths = real64().lengths
    if rest[0] == "length":
        return _request(lengths, rest[1])
    return {"count": len(lengths), "min": min(lengths), "max": max(lengths), "sum": sum(lengths)}[rest[0]]


@lru_cache(maxsize=64)
def _lanes(policy: str, slots: int, kv: str) -> dict[str, Any]:
    if kv == "paged" and policy in POLICIES:
        return lanes_of(Spec(), slots)[policy]
    return simulate(real64(), policy=policy, slots=slots, kv=kv).trace.lanes()


def _run(lanes: dict[str, Any], rest: list[Any]) -> float:
    """A quantity of one run."""
    quantity = rest[0]
    cells = lanes["slots"] * lanes["steps"]
    if quantity in ("steps", "utilisation", "useful_cells"):
        return lanes[quantity]
    if quantity == "cells":
        return cells
    if quantity == "idle_cells":
        return cells - lanes["useful_cells"]
    if quantity == "first_idle":
        return min(lanes["idle"][1::4], default=lanes["span"]) + 1
    request, segs = rest[1] - 1, lanes["segs"]
    mine = [i for i in range(0, len(segs), 5) if segs[i + 3] == request]
    if not mine:
        raise LessonError(f"there is no request {rest[1]} in this workload")
    if quantity == "slot":
        return segs[mine[0]] + 1
    return segs[mine[0] + 1] + 1 if quantity == "enter" else segs[mine[-1] + 1] + segs[mine[-1] + 2]


def _batch(rest: list[Any]) -> float:
    """Figures of one static batch: who was admitted together."""
    lanes = _lanes("static", rest[0], "paged")
    entered: dict[int, list[int]] = {}
    for step, request, code, _ in lanes["log"]:
        if code == "ADMITTED":
            entered.setdefault(step, []).append(request)
    batches = [entered[step] for step in sorted(entered)]
    if rest[1] == "count":
        return len(batches)
    longest, *others = sorted((lanes["lengths"][r] for r in _request(batches, rest[1])), reverse=True)
    second = others[0] if others else 0
    return {
        "size": 1 + len(others),
        "steps": longest,
        "second": second,
        "alone": longest - second,
        "useful_cells": longest + sum(others),
        "cells": rest[0] * longest,
    }[rest[2]]


@lru_cache(maxsize=1)
def _scene() -> board.Board:
    """Lesson 3's scene, played to its end."""
    return board.Board(board.Spec.parse({"acts": board.SCENE}))


def _board(rest: list[Any]) -> float:
    """A quantity of lesson 3's scene."""
    if rest[0] == "request":
        return _request(_scene().frames[-1]["paged"]["requests"], rest[1])[rest[2]]
    side = _scene().frames[rest[0]][rest[1]]
    quantity, *which = rest[2:]
    if quantity == "written":
        return _request(side["requests"], which[0])["written"]
    if quantity == "block":
        return next(table[1] for table in side["tables"] if table[0] == which[0])[which[1]]
    if quantity == "largest_run":
        return max((length for _, length, _ in side["runs"]), default=0)
    usage = side["usage"]
    return {**usage, "unused": usage["hole"] + usage["free"], "step": side["step"]}[quantity]


def _fill(rest: list[Any]) -> float:
    """A prompt of L tokens in blocks of B, written by an engine."""
    size, length, quantity = rest
    pool = next(slots for slots in board.POOLS if slots > length + size)
    spec = board.Spec((board.Size(length, length + 2),), (board.Action("s"),), pool, size)
    (_, blocks, written) = board.Board(spec).frames[-1]["paged"]["tables"][0]
    held = len(blocks) * size
    return {"blocks": len(blocks), "waste": held - written, "last": size - (held - written)}[quantity]


def _split(rest: list[Any]) -> float:
    """Lesson 2's runs."""
    if rest[0] in split.DEFAULTS:
        return int(split.DEFAULTS[rest[0]])
    if rest[0] == "slots":
        return split.SLOTS
    rule, quantity = rest
    report = split.run(rule)["report"]
    kv = report["kv"]
    if quantity in PARTS:
        return kv[quantity] / kv["pool_slots"]
    return kv[quantity] if quantity in kv else report[quantity]


EXAMPLE, EXAMPLE_LIMIT, EXAMPLE_BLOCK = ((5, 3), (6, 9), (3, 2), (10, 6)), 32, 4
"""Prompt and reply of the four requests in lesson 2's example, the model's limit, the block size."""


def _example(rest: list[Any]) -> float:
    """What the four requests reserve under each rule; what an engine holds for them when all have written all."""
    requests = [Request(tuple(range(p)), SamplingParams(max_tokens=o)) for p, o in EXAMPLE]
    way = rest[0]
    if way == "paged":
        return sum(EXAMPLE_BLOCK * blocks_for(p + o, EXAMPLE_BLOCK) for p, o in EXAMPLE)
    if way in ("held", "live"):
        peak = [_last_usage(request) for request in requests]
        return sum(usage.live if way == "live" else usage.held_blocks * EXAMPLE_BLOCK for usage in peak)
    kv = ContiguousKV(BlockPool(1), 1, reserve=way, max_model_len=EXAMPLE_LIMIT)
    return sum(kv.reservation(request) for request in requests)


def _last_usage(request: Request) -> Any:
    """The paged pool at the step of the request's last token, alone."""
    engine = Engine(EngineConfig(num_blocks=8, block_size=EXAMPLE_BLOCK, max_num_seqs=1))
    engine.submit(request)
    *_, last = iter(engine.step, None)
    return last.usage


def _copies(rest: list[Any]) -> float:
    """Slots that requests with one and the same prompt hold beside its first copy, counted after their first step."""
    count, length = rest
    engine = Engine(EngineConfig(num_blocks=count * length, block_size=1, max_num_seqs=count))
    for _ in range(count):
        engine.submit(Request(tuple(range(length)), SamplingParams(max_tokens=2)))
    record = engine.step()
    return 0 if record is None else record.usage.live - length


def _sizes(rest: list[Any]) -> float:
    """A row of the chart of block sizes."""
    rows = {row["b"]: row for row in charts.block_sizes()["rows"]}
    if rest[0] not in rows:
        raise LessonError(f"the chart has no block size {rest[0]}")
    return rows[rest[0]][rest[1]]


def _request(items: list[Any], number: int) -> Any:
    """The item of that number, counted from 1."""
    if not 1 <= number <= len(items):
        raise LessonError(f"there is no number {number} among {len(items)}")
    return items[number - 1]


_OTHERS = {
    "batch": _batch,
    "board": _board,
    "fill": _fill,
    "sizes": _sizes,
    "split": _split,
    "example": _example,
    "copies": _copies,
}
