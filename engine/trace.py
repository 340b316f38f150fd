"""`Trace`: the whole run in columns, from which every step's plan can be made again, exactly.

A row is one sequence in one step. Block tables are kept as changes, the waiting queue as its journal, so a trace grows
with the tokens computed and not with queue or pool. `records()` replays it; `lanes()` is the swimlane's view of it
(in `engine.lanes`); `export` writes JSON, CSV and the Chrome trace that Perfetto opens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.errors import ValidationError
from engine.plan import Code, Decision, Decisions, StepPlan, slots_of
from engine.request import RequestState, SamplingParams
from engine.runner import Candidate, Sampled
from engine.usage import PARTS, Usage

if TYPE_CHECKING:
    from engine.engine import StepRecord

FORMAT = "paged-course-trace/1"
STEP_COLUMNS = (
    *("step", "start", "end", "rows", "waiting"),
    *(*PARTS, "held_blocks", "cached"),
)
ROW_COLUMNS = ("seq", "first", "tokens", "sampled", "slot")
NOT_SAMPLED = -1


class Trace:
    """The record of one run.

    Attributes:
        config: the engine's configuration, as a dict.
        unit: the clock's unit.
        requests: per request {id, name, prompt_token_ids, params, arrival, priority, output_len}.
        sequences: sequence ids, in order of first appearance.
        steps: columns over steps: number, times, number of rows, sequences waiting, and the usage split.
        rows: columns over rows: sequence index, first position, tokens, sampled token (−1: none), slot.
        tables: [row, blocks kept, new blocks] wherever a table differs from the sequence's row before.
        events: [step index, phase, code, sequence index, step number, detail]; phase 0 before the plan, 1 decisions, 2
            after the forward.
        copies: [step index, source, destination] blocks.
        swaps: [step index, "out" or "in", sequence index, (device, host) blocks].
        forks: [step index, branch, the sequence it leaves, its first token], both sequences by index.
        beams: the same for beams, which may all change places after a step.
        offers: [step index, beam, its candidates as (token, log-probability, whether a text ends with it)].
        queue: [step index, operation, sequence index]: the waiting queue's journal.
        actions: [step number, what, request or sequence id] of a live engine: `submit`, `abort`, `finish`, `release`
            (no id); the step is the one that comes next.
    """

    def __init__(self, config: EngineConfig | Mapping[str, Any], unit: str) -> None:
        self.config = asdict(config) if isinstance(config, EngineConfig) else dict(config)
        self.unit = unit
        self.requests: list[dict[str, Any]] = []
        self.sequences: list[str] = []
        self.steps: dict[str, list[Any]] = {name: [] for name in STEP_COLUMNS}
        self.rows: dict[str, list[Any]] = {name: [] for name in ROW_COLUMNS}
        self.tables: list[list[Any]] = []
        self.events: list[list[Any]] = []
        self.copies: list[list[int]] = []
        self.swaps: list[list[Any]] = []
        self.forks: list[list[int]] = []
        self.beams: list[list[int]] = []
        self.offers: list[list[Any]] = []
        self.queue: list[list[Any]] = []
        self.actions: list[list[Any]] = []
        self._index: dict[str, int] = {}
        self._last_table: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.steps["step"])

    def add_request(self, state: RequestState) -> None:
        """A request was submitted."""
        request = state.request
        self.requests.append(
            {
                "id": state.id,
                "name": request.name,
                "prompt_token_ids": list(request.prompt_token_ids),
                "params": {**asdict(request.params), "stop_token_ids": list(request.params.stop_token_ids)},
                "arrival": state.arrival,
                "priority": request.priority,
                "output_len": request.output_len,
            }
        )
        for seq in state.sequences:
            self._seq(seq.id)

    def add_step(
        self,
        record: StepRecord,
        sampled: Mapping[str, Sampled],
        slots: Mapping[str, int | None],
        journal: list[tuple[str, str]],
        regrouped: Iterable[tuple[str, str, int]] = (),
    ) -> None:
        """A step ran.

        Args:
            slots: the slot of each sequence while it ran.
            journal: what happened to the waiting queue since the step before.
            regrouped: (beam, the beam it leaves, its new token) after the step.
        """
        plan, index = record.plan, len(self)
        steps, rows = self.steps, self.rows
        for name in ("start", "end", "waiting", "step"):
            steps[name].append(getattr(record, name))
        for name in STEP_COLUMNS[5:]:
            steps[name].append(getattr(record.usage, name))
        steps["rows"].append(len(plan.num_scheduled_tokens))
        for seq_id, tokens in plan.num_scheduled_tokens.items():
            seq = self._index[seq_id]
            table = plan.block_tables[seq_id]
            before = self._last_table.get(seq, ())
            if table != before:
                kept = _common(before, table)
                self.tables.append([len(rows["seq"]), kept, list(table[kept:])])
                self._last_table[seq] = table
            rows["seq"].append(seq)
            rows["first"].append(plan.num_computed_tokens[seq_id])
            rows["tokens"].append(tokens)
            rows["sampled"].append(sampled[seq_id].token_id if seq_id in plan.sampling else NOT_SAMPLED)
            if seq_id in plan.sampling and sampled[seq_id].candidates:
                self.offers.append([index, seq, [list(candidate) for candidate in sampled[seq_id].candidates]])
            rows["slot"].append(slots[seq_id])
        self.copies.extend([index, *pair] for pair in plan.copies)
        for way, moves in (("out", plan.swap_out), ("in", plan.swap_in)):
            self.swaps.extend([index, way, self._index[seq], [list(pair) for pair in pairs]] for seq, pairs in moves)
        for child, parent in plan.forks.items():
            self.forks.append([index, self._seq(child), self._index[parent], sampled[child].token_id])
        self.beams.extend([index, self._seq(beam), self._index[parent], token] for beam, parent, token in regrouped)
        for phase, events in enumerate((record.before, plan.decisions.spelled, record.after)):
            self.add_events(index, phase, events)
        self.queue.extend([index, operation, self._index[seq_id]] for operation, seq_id in journal)

    def add_events(self, index: int, phase: int, events: Iterable[Decision]) -> None:
        """What happened before (phase 0), in the plan of (1) or after (2) the step with this index."""
        for event in events:
            seq = self._seq(event.seq_id)
            self.events.append([index, phase, str(event.code), seq, event.step, dict(event.detail)])

    def records(self) -> Iterator[StepRecord]:
        """Every step again, as it was recorded."""
        from engine.engine import StepRecord

        requests = {r["id"]: r for r in self.requests}
        owner = [seq_id.rpartition("/")[0] for seq_id in self.sequences]
        params = {rid: SamplingParams(**r["params"]) for rid, r in requests.items()}
        known = [list(requests[rid]["prompt_token_ids"]) for rid in owner]
        tables: list[list[int]] = [[] for _ in self.sequences]
        queue: list[int] = []
        size, num_blocks = self.config["block_size"], self.config["num_blocks"]
        row = table_at = event_at = queue_at = 0
        copies, swaps = _by_step(self.copies), _by_step(self.swaps)
        forks, beams = _by_step(self.forks), _by_step(self.beams)
        rank = _Ranks(self)
        for index, count in enumerate(self.steps["rows"]):
            while queue_at < len(self.queue) and self.queue[queue_at][0] == index:
                _, operation, seq = self.queue[queue_at]
                _replay(queue, operation, seq, rank)
                queue_at += 1
            events: list[list[Any]] = []
            while event_at < len(self.events) and self.events[event_at][0] == index:
                events.append(self.events[event_at])
                event_at += 1
            scheduled: dict[str, int] = {}
            computed: dict[str, int] = {}
            tokens: dict[str, tuple[int, ...]] = {}
            block_tables: dict[str, tuple[int, ...]] = {}
            slot_mapping: dict[str, tuple[int, ...]] = {}
            sampling: dict[str, SamplingParams] = {}
            fresh: list[tuple[int, int]] = []
            for r in range(row, row + count):
                seq, first, n = self.rows["seq"][r], self.rows["first"][r], self.rows["tokens"][r]
                if table_at < len(self.tables) and self.tables[table_at][0] == r:
                    _, kept, new = self.tables[table_at]
                    tables[seq][kept:] = new
                    table_at += 1
                seq_id = self.sequences[seq]
                scheduled[seq_id], computed[seq_id] = n, first
                tokens[seq_id] = tuple(known[seq][first : first + n])
                block_tables[seq_id] = tuple(tables[seq])
                slot_mapping[seq_id] = slots_of(tables[seq], first, n, size)
                if self.rows["sampled"][r] != NOT_SAMPLED:
                    sampling[seq_id] = params[owner[seq]]
                    fresh.append((seq, self.rows["sampled"][r]))
            row += count
            branches = {self.sequences[child]: self.sequences[parent] for child, parent, _ in forks.get(index, ())}
            for child in branches:
                sampling[child] = params[child.rpartition("/")[0]]
            moves = {
                way: tuple(
                    (self.sequences[seq], tuple((device, host) for device, host in pairs))
                    for that, seq, pairs in swaps.get(index, ())
                    if that == way
                )
                for way in ("out", "in")
            }
            made = [[_decision(self, e) for e in events if e[1] == phase] for phase in (0, 1, 2)]
            step = self.steps["step"][index]
            plan = StepPlan(
                step=step,
                block_size=size,
                num_blocks=num_blocks,
                num_scheduled_tokens=scheduled,
                num_computed_tokens=computed,
                token_ids=tokens,
                block_tables=block_tables,
                slot_mapping=slot_mapping,
                sampling=sampling,
                copies=tuple((source, destination) for source, destination in copies.get(index, ())),
                swap_out=moves["out"],
                swap_in=moves["in"],
                forks=branches,
                host_blocks=self.config.get("host_blocks", 0),
                decisions=Decisions(step, made[1], [self.sequences[s] for s in queue[1:]]),
            )
            usage = Usage(**{name: self.steps[name][index] for name in STEP_COLUMNS[5:]})
            yield StepRecord(
                plan,
                tuple(made[0]),
                tuple(made[2]),
                usage,
                self.steps["start"][index],
                self.steps["end"][index],
                self.steps["waiting"][index],
            )
            for child, parent, token in forks.get(index, ()):
                known[child] = [*known[parent], token]
            before = {parent: list(known[parent]) for _, parent, _ in beams.get(index, ())}
            for seq, token in fresh:
                known[seq].append(token)
            for beam, parent, token in beams.get(index, ()):
                known[beam] = [*before[parent], token]

    def sampled(self) -> Iterator[tuple[int, dict[str, Sampled]]]:
        """What the runner gave at each step, as (step number, {sequence id: result}); log-probabilities of beams only.

        A reply that was stopped by its last token has that token as its end of text.
        """
        stopped = {(index, seq) for index, _, code, seq, _, detail in self.events if _stops(code, detail)}
        forks, offers = _by_step(self.forks), _by_step(self.offers)
        row = 0
        for index, count in enumerate(self.steps["rows"]):
            drawn = zip(*(self.rows[name][row : row + count] for name in ("seq", "sampled")), strict=True)
            row += count
            tokens = {seq: token for seq, token in drawn if token != NOT_SAMPLED}
            tokens |= {child: token for child, _, token in forks.get(index, ())}
            offered = {seq: tuple(Candidate(*c) for c in candidates) for seq, candidates in offers.get(index, ())}
            yield (
                self.steps["step"][index],
                {
                    self.sequences[seq]: Sampled(token, is_eos=(index, seq) in stopped, candidates=offered.get(seq, ()))
                    for seq, token in tokens.items()
                },
            )

    def lanes(self) -> dict[str, Any]:
        """The swimlane's view of the trace (`engine.lanes.lanes`)."""
        from engine.lanes import lanes

        return lanes(self)

    def same_schedule(self, other: Trace) -> bool:
        """True if plans, tables, decisions and usage agree; tokens, timings and who acted live are not compared."""
        mine, theirs = self.as_dict(), other.as_dict()
        for data in (mine, theirs):
            data["rows"] = {**data["rows"], "sampled": [t != NOT_SAMPLED for t in data["rows"]["sampled"]]}
            data["steps"] = {k: v for k, v in data["steps"].items() if k not in ("start", "end")}
            data["requests"] = [r["id"] for r in data["requests"]]
            data["forks"] = [fork[:3] for fork in data["forks"]]
            data["beams"] = [beam[:3] for beam in data["beams"]]
            del data["unit"], data["actions"], data["offers"]
        return mine == theirs

    def as_dict(self) -> dict[str, Any]:
        """The trace as plain data."""
        return {
            "format": FORMAT,
            "config": self.config,
            "unit": self.unit,
            "requests": self.requests,
            "sequences": self.sequences,
            "steps": self.steps,
            "rows": self.rows,
            "tables": self.tables,
            "copies": self.copies,
            "swaps": self.swaps,
            "forks": self.forks,
            "beams": self.beams,
            "offers": self.offers,
            "events": self.events,
            "queue": self.queue,
            "actions": self.actions,
        }

    def to_json(self) -> str:
        """The trace as one JSON object; the same run gives the same bytes."""
        return json.dumps(self.as_dict(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read what `to_json` wrote.

        Raises:
            ValidationError: it is not a trace.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValidationError(f"this is not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValidationError(f"this is not a trace of format {FORMAT}")
        trace = cls(data["config"], data["unit"])
        for name in ("requests", "sequences", "steps", "rows", "tables", "events", "queue"):
            setattr(trace, name, data[name])
        for name in ("copies", "swaps", "forks", "beams", "offers", "actions"):
            setattr(trace, name, data.get(name, []))
        trace._index = {seq_id: i for i, seq_id in enumerate(trace.sequences)}
        return trace

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, Trace) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _seq(self, seq_id: str) -> int:
        index = self._index.get(seq_id)
        if index is None:
            index = self._index[seq_id] = len(self.sequences)
            self.sequences.append(seq_id)
        return index


def _by_step(entries: list[list[Any]]) -> dict[int, list[list[Any]]]:
    """Entries [step index, …] by their step."""
    found: dict[int, list[list[Any]]] = {}
    for index, *rest in entries:
        found.setdefault(index, []).append(rest)
    return found


def _stops(code: str, detail: Mapping[str, Any]) -> bool:
    """Whether an event is the end of a reply by what it says, not by its length."""
    return code == Code.FINISHED and detail["reason"] == "stop"


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the beginning that two tables share."""
    if b[: len(a)] == a:
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _decision(trace: Trace, event: list[Any]) -> Decision:
    _, _, code, seq, step, detail = event
    seq_id = trace.sequences[seq]
    return Decision(Code(code), seq_id.rpartition("/")[0], seq_id, step, detail)


class _Ranks:
    """The order of a priority queue: (priority, arrival rank)."""

    def __init__(self, trace: Trace) -> None:
        priority = {r["id"]: r["priority"] for r in trace.requests}
        self._priority = [priority[seq_id.rpartition("/")[0]] for seq_id in trace.sequences]
        self._arrived: dict[int, int] = {}

    def key(self, seq: int) -> tuple[int, int]:
        rank = self._arrived.setdefault(seq, len(self._arrived))
        return (self._priority[seq], rank)


def _replay(queue: list[int], operation: str, seq: int, rank: _Ranks) -> None:
    if operation == "out":
        queue.remove(seq)
    elif operation == "front":
        queue.insert(0, seq)
    elif operation == "back":
        queue.append(seq)
    else:
        queue.append(seq)
        queue.sort(key=rank.key)
