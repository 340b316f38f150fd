"""The two-allocator board: the same requests on the same memory twice, contiguous on one side, paged on the other.

Its whole state is a list of actions on an opening; `Board` replays them on two real engines and keeps a frame after
each one. So undo is a shorter list, a deep link is the list itself, and the server keeps nothing.

    open=9:16,6:10,10:16      length of the prompt : longest it may become, per request
    acts=s4,f2,a9:12,s        four steps, request 2 finishes, a request arrives, one step

A frame holds what both allocators say, ready to be drawn: cells, tables, usage, decisions, and what became of each
block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from app.lanes import SpecError
from engine.config import EngineConfig
from engine.contiguous import ContiguousKV
from engine.engine import Engine, StepRecord
from engine.kv import blocks_for
from engine.plan import Code, Decision
from engine.request import Request, SamplingParams, Sequence
from engine.runner import CountingRunner, Runner
from engine.usage import PARTS

SIDES = ("contiguous", "paged")
POOLS = (16, 32, 48, 64, 96, 128, 192, 256)
BLOCK_SIZES = (1, 2, 4, 8, 16)
SEATS = tuple(range(1, 13))
WATERMARKS = ("0", "0.1", "0.25", "0.5")
BUDGETS = ("", "4", "8", "16")
MAX_REQUESTS, MAX_ACTIONS = 24, 600
DEFAULTS = {"open": "9:16,6:10,10:16", "pool": "48", "b": "4", "seats": "12", "watermark": "0", "budget": ""}
SCENE = "s4,a9:12,s"
"""The scene of lesson 3: four steps, in the fourth request 2 ends by length, request 4 arrives, one step."""
WAITING = {Code.NO_BLOCKS, Code.NO_RUN, Code.WATERMARK, Code.BUDGET, Code.SLOTS, Code.BEHIND_HEAD}


@dataclass(frozen=True)
class Size:
    """A request's prompt length, and the longest it might become with its reply, in tokens."""

    length: int
    limit: int

    def __str__(self) -> str:
        return f"{self.length}:{self.limit}"


@dataclass(frozen=True)
class Action:
    """One press: `s` one step for everybody, `f` request `number` ends now, `a` a request of `size` arrives."""

    kind: str
    number: int = 0
    size: Size | None = None

    def __str__(self) -> str:
        return {"s": "s", "f": f"f{self.number}", "a": f"a{self.size}"}[self.kind]


@dataclass(frozen=True)
class Spec:
    """An opening, the rules both sides share, and the actions.

    Attributes:
        opening: the requests that are there at the start.
        actions: what was pressed since.
        pool: token slots on each side.
        block_size: b of the paged side; the contiguous side hands out single slots.
        seats: requests that may run at once.
        watermark: share of the pool that an admission must leave free.
        budget: tokens a step may compute, None for any number.
    """

    opening: tuple[Size, ...]
    actions: tuple[Action, ...] = ()
    pool: int = 48
    block_size: int = 4
    seats: int = 12
    watermark: float = 0.0
    budget: int | None = None

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> Spec:
        """From the query of an address.

        Raises:
            SpecError: a value is not offered, or a request cannot be; its detail says which one.
        """
        given = {**DEFAULTS, **params}
        offered = {"pool": POOLS, "b": BLOCK_SIZES, "seats": SEATS, "watermark": WATERMARKS, "budget": BUDGETS}
        for name, values in offered.items():
            if given[name] not in map(str, values):
                raise SpecError("query", name=name)
        pool = int(given["pool"])
        words = [word for word in given["open"][:2000].split(",") if word.strip()]
        if not words:
            raise SpecError("board_empty")
        if len(words) > MAX_REQUESTS:
            raise SpecError("board_many", max=MAX_REQUESTS)
        opening = tuple(parse_size(word, i, pool) for i, word in enumerate(words, 1))
        return cls(
            opening=opening,
            actions=parse_actions(given.get("acts", ""), len(opening), pool),
            pool=pool,
            block_size=int(given["b"]),
            seats=int(given["seats"]),
            watermark=float(given["watermark"]),
            budget=int(given["budget"]) if given["budget"] else None,
        )


def parse_size(text: str, number: int, pool: int) -> Size:
    """`LENGTH:LIMIT` of request `number`: 1 ≤ length < limit ≤ pool; SpecError names the field that is wrong."""
    length_word, _, limit_word = (part.strip() for part in text.partition(":"))
    length = _whole(length_word)
    if length is None or not 1 <= length < pool:
        raise SpecError("board_length", i=number, word=length_word[:20], max=pool - 1)
    limit = _whole(limit_word)
    if limit is None:
        raise SpecError("board_limit_word", i=number, word=limit_word[:20], min=length + 1, max=pool)
    if limit <= length:
        raise SpecError("board_limit", i=number, limit=limit, length=length)
    if limit > pool:
        raise SpecError("board_pool", i=number, limit=limit_word[:20], pool=pool)
    return Size(length, limit)


def parse_actions(text: str, requests: int, pool: int) -> tuple[Action, ...]:
    """`s`, `s4`, `f2`, `a9:12`, set apart by commas (`-`: none); SpecError for anything else, or too much of it."""
    actions: list[Action] = []
    for word in filter(None, text[:20_000].removeprefix("-").split(",")):
        match = re.fullmatch(r"s(\d{0,3})|f(\d{1,2})|a([^,]{1,40})", word, re.ASCII)
        if match is None:
            raise SpecError("query", name="acts")
        times, finished, size = match.groups()
        if finished is not None:
            actions.append(Action("f", int(finished)))
        elif size is not None:
            requests += 1
            if requests > MAX_REQUESTS:
                raise SpecError("board_many", max=MAX_REQUESTS)
            actions.append(Action("a", size=parse_size(size, requests, pool)))
        else:
            actions += [Action("s")] * int(times or 1)
        if len(actions) > MAX_ACTIONS:
            raise SpecError("board_actions", max=MAX_ACTIONS)
    return tuple(actions)


def _whole(word: str) -> int | None:
    return int(word) if re.fullmatch(r"\d{1,9}", word, re.ASCII) else None


class Mind(Protocol):
    """Who writes on a board: what is asked of a model."""

    def runner(self) -> Runner:
        """A runner with KV of its own."""
        ...

    def request(self, number: int, size: Size) -> Request:
        """The request of that number."""
        ...


class Counting:
    """Nobody writes: tokens are only counted."""

    def runner(self) -> Runner:
        return CountingRunner()

    def request(self, number: int, size: Size) -> Request:
        params = SamplingParams(max_tokens=size.limit - size.length)
        return Request(tuple(range(1, size.length + 1)), params, request_id=str(number))


class Board:
    """Both sides after the actions of a spec.

    Args:
        mind: who writes; nobody by default.

    Attributes:
        sides: by name.
        frames: what is drawn: one frame for the opening, one after each action.
    """

    def __init__(self, spec: Spec, mind: Mind | None = None) -> None:
        mind = mind or Counting()
        self.sides = {name: Side(name, spec, mind) for name in SIDES}
        self.frames: list[dict[str, Any]] = []
        self._requests = 0
        for size in spec.opening:
            self._arrive(size)
        self._keep("")
        for action in spec.actions:
            self.act(action)

    def act(self, action: Action) -> dict[str, Any]:
        """Do one thing on both sides; the frame after it. What is not there any more changes nothing."""
        if action.size is not None:
            self._arrive(action.size)
        for side in self.sides.values():
            if action.kind == "s":
                side.step()
            elif action.kind == "f":
                side.finish(action.number)
        return self.keep(action)

    def keep(self, action: Action) -> dict[str, Any]:
        """Keep the frame after an action, done on each side."""
        return self._keep(str(action))

    def _arrive(self, size: Size) -> None:
        self._requests += 1
        for side in self.sides.values():
            side.arrive(self._requests, size)

    def _keep(self, action: str) -> dict[str, Any]:
        self.frames.append({"action": action, **{name: side.frame() for name, side in self.sides.items()}})
        return self.frames[-1]


class Side:
    """One allocator's side: an engine, and what changed since the last frame."""

    def __init__(self, name: str, spec: Spec, mind: Mind) -> None:
        size = spec.block_size if name == "paged" else 1
        config = EngineConfig(
            num_blocks=spec.pool // size,
            block_size=size,
            max_num_seqs=spec.seats,
            max_num_batched_tokens=spec.budget,
            watermark=spec.watermark,
            kv="paged" if name == "paged" else "max",
        )
        self.engine = Engine(config, mind.runner(), keep_trace=False)
        self._mind = mind
        self.engine.is_open = True
        self._tables: dict[str, tuple[int, ...]] = {}
        self._why: dict[str, Decision] = {}
        self._record: StepRecord | None = None

    def arrive(self, number: int, size: Size) -> None:
        """A request stands at the door; the next step sees it."""
        self.engine.submit(self._mind.request(number, size))

    def step(self) -> bool:
        """One token for everybody who runs; False if nobody is left."""
        self._record = self.engine.step()
        return self._record is not None

    def finish(self, number: int) -> None:
        """The request ends now, wherever it is; nothing if it is over or was never there."""
        if str(number) in self.engine.requests:
            self.engine.finish(str(number))

    def frame(self) -> dict[str, Any]:
        """The side as it stands, and what happened since the last frame."""
        engine, record, self._record = self.engine, self._record, None
        now = engine.between_steps()  # takes in what was finished from outside
        events = [*(record.events if record is not None else ()), *now.before]
        for event in events:
            if event.code in WAITING:
                self._why[event.seq_id] = event
            else:
                self._why.pop(event.seq_id, None)
        changes = self._changes(record)
        self._tables = {seq_id: tuple(table) for seq_id, table in engine.block_tables().items()}
        usage = now.usage
        return {
            "step": engine.clock.step,
            "cells": [[*cell, len(list(same))] for cell, same in groupby(self._cells())],
            "tables": [
                [_number(seq.id), list(seq.block_table), seq.num_computed_tokens] for seq in engine.scheduler.running
            ],
            "requests": [self._request(state.sequences[0]) for state in engine.requests.values()],
            "usage": {
                **{part: getattr(usage, part) for part in PARTS},
                "pool_slots": usage.pool_slots,
                "live_share": usage.live / usage.pool_slots,
            },
            "runs": self._runs(),
            "events": [[e.step, str(e.code), _number(e.seq_id), dict(e.detail)] for e in events],
            "changes": changes,
            "more": engine.has_work,
        }

    def _request(self, seq: Sequence) -> dict[str, Any]:
        """A request's lengths, how far it is, what it holds, and why it waits (null: not seen by the scheduler yet)."""
        held = len(seq.block_table) * self.engine.config.block_size
        why = self._why.get(seq.id) if seq.status.value in ("waiting", "preempted") else None
        return {
            "n": _number(seq.id),
            "length": seq.request.prompt_len,
            "limit": seq.request.prompt_len + seq.request.params.max_tokens,
            "written": seq.num_computed_tokens,
            "replied": seq.num_output_tokens,
            "held": held,
            "waste": held - seq.num_computed_tokens,
            "status": seq.status.value,
            "why": None if why is None else [str(why.code), dict(why.detail)],
        }

    def _cells(self) -> list[tuple[str, int]]:
        """Per slot of the pool, by address: its state and its owner (0 without one)."""
        kv, size = self.engine.kv, self.engine.config.block_size
        cells = [("free", 0)] * self.engine.config.num_blocks * size
        rest = "reserved" if isinstance(kv, ContiguousKV) else "tail_waste"
        for seq in self.engine.scheduler.running:
            owner = _number(seq.id)
            for place, slot in enumerate(b * size + k for b in seq.block_table for k in range(size)):
                cells[slot] = ("live" if place < seq.num_computed_tokens else rest, owner)
        for start, length, is_hole in self._runs():
            if is_hole:
                cells[start : start + length] = [("hole", 0)] * length
        return cells

    def _runs(self) -> list[list[int]]:
        """Contiguous side: [first slot, length, 1 if too short for the head of the queue] of every free run."""
        kv, head = self.engine.kv, self.engine.scheduler.waiting.head
        if not isinstance(kv, ContiguousKV):
            return []
        needed = 0 if head is None else kv.demand(head.request)
        return [[start, length, int(length < needed)] for start, length in kv.free_runs]

    def _changes(self, record: StepRecord | None) -> list[list[Any]]:
        """What became of blocks since the last frame: [block, what, request, tokens].

        `what` is freed, taken, shared, copied or written, in the order in which it happened.
        """
        before, after = self._tables, self.engine.block_tables()
        if record is None:
            return [[b, "freed", _number(s), 0] for s, table in before.items() if s not in after for b in table]
        plan = record.plan
        lost = {e.seq_id for e in record.events if e.code is Code.PREEMPTED_BY}
        kept = {seq_id: table for seq_id, table in before.items() if seq_id not in lost}
        forward = {**kept, **plan.block_tables}
        changes: list[list[Any]] = [[b, "freed", _number(s), 0] for s in before if s in lost for b in before[s]]
        held = {block for table in kept.values() for block in table}
        for seq_id, table in plan.block_tables.items():
            for block in table[len(kept.get(seq_id, ())) :]:
                changes.append([block, "shared" if block in held else "taken", _number(seq_id), 0])
                held.add(block)
        changes += [[target, "copied", 0, source] for source, target in plan.copies]
        for seq_id, slots in plan.slot_mapping.items():
            for block, written in groupby(slots, key=lambda slot: slot // plan.block_size):
                changes.append([block, "written", _number(seq_id), len(list(written))])
        changes += [[b, "freed", _number(s), 0] for s, table in forward.items() if s not in after for b in table]
        return changes


def _number(seq_id: str) -> int:
    return int(seq_id.partition("/")[0])


def frames(params: Mapping[str, str]) -> dict[str, Any]:
    """The answer to a query: the frames from `since` on, the size of the pool on each side, and the list as understood.

    Raises:
        SpecError: the query is not usable.
    """
    spec = Spec.parse(params)
    since = _whole(params.get("since", "0"))
    if since is None:
        raise SpecError("query", name="since")
    return {
        "pool": spec.pool,
        "b": spec.block_size,
        "blocks": blocks_for(spec.pool, spec.block_size),
        "acts": [str(action) for action in spec.actions],
        "frames": Board(spec).frames[since:],
    }
