"""Figures of a lesson: the source paths of `lessons.paths`, resolved by the engine. Nothing here is typed in.

An atom such as `static.8.steps` is read off a simulation's report or trace, `anchor.requests` off the anchor account.
"""

from __future__ import annotations

from functools import lru_cache

from engine import anchor
from engine.simulate import Simulation, simulate
from engine.workload import real64
from lessons.errors import LessonError
from lessons.paths import Atom, evaluate


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
    return _run(str(head), atom.kv, rest)


def _anchor(key: str) -> float:
    figures = anchor.figures()
    if key not in figures:
        raise LessonError(f"the anchor account has no '{key}'")
    return figures[key]


def _workload(rest: list) -> float:
    lengths = real64().lengths
    if rest[0] == "length":
        return lengths[rest[1] - 1]
    return {"count": len(lengths), "min": min(lengths), "max": max(lengths), "sum": sum(lengths)}[rest[0]]


@lru_cache(maxsize=64)
def _simulation(policy: str, slots: int, kv: str) -> Simulation:
    return simulate(real64(), policy=policy, slots=slots, kv=kv)


def _run(policy: str, kv: str, rest: list) -> float:
    slots, quantity = rest[0], rest[1]
    simulation = _simulation(policy, slots, kv)
    report = simulation.report
    cells = slots * report["steps"]
    if quantity in ("steps", "utilisation", "useful_cells"):
        return report[quantity]
    if quantity == "cells":
        return cells
    if quantity == "idle_cells":
        return cells - report["useful_cells"]
    steps, rows = simulation.trace.steps, simulation.trace.rows
    if quantity == "first_idle":
        return next(s + 1 for s, n in zip(steps["step"], steps["rows"], strict=True) if n < slots)
    number = rest[2] - 1
    at = [step for step, count in zip(steps["step"], steps["rows"], strict=True) for _ in range(count)]
    mine = [i for i, seq in enumerate(rows["seq"]) if seq == number]
    if not mine:
        raise LessonError(f"there is no request {rest[2]} in this workload")
    if quantity == "slot":
        return rows["slot"][mine[0]] + 1
    return at[mine[0 if quantity == "enter" else -1]] + 1


def _batch(rest: list) -> float:
    """Figures of one static batch, read off the trace: who was admitted together."""
    trace = _simulation("static", rest[0], "paged").trace
    entered: dict[int, list[int]] = {}
    for step, request, code, _ in trace.lanes()["log"]:
        if code == "ADMITTED":
            entered.setdefault(step, []).append(request)
    batches = [entered[step] for step in sorted(entered)]
    if rest[1] == "count":
        return len(batches)
    all_lengths = real64().lengths
    lengths = sorted((all_lengths[r] for r in batches[rest[1] - 1]), reverse=True)
    second = lengths[1] if len(lengths) > 1 else 0
    return {
        "size": len(lengths),
        "steps": lengths[0],
        "second": second,
        "alone": lengths[0] - second,
        "useful_cells": sum(lengths),
        "cells": rest[0] * lengths[0],
    }[rest[2]]
