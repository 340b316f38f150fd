"""Figures of a lesson: the source paths of `lessons.paths`, resolved by the engine. Nothing here is typed in.

An atom such as `static.8.steps` is read off the same lanes that the picture draws, `anchor.requests` off the anchor
account; what only another memory manager or policy can tell is simulated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from app.lanes import POLICIES, Spec
from app.lanes import lanes as lanes_of
from engine import anchor
from engine.simulate import simulate
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
    if head == "batch":
        return _batch(rest)
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


def _request(items: list[Any], number: int) -> Any:
    """The item of that number, counted from 1."""
    if not 1 <= number <= len(items):
        raise LessonError(f"there is no number {number} among {len(items)}")
    return items[number - 1]
