"""Trace exports: CSV for a spreadsheet, and the Chrome trace format that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from engine.lanes import lanes
from engine.usage import PARTS

if TYPE_CHECKING:
    from engine.trace import Trace

_KINDS = ("generating", "prefill", "recompute")


def to_csv(trace: Trace) -> str:
    """One line per sequence and step: step, start, end, request, sequence, slot, first, tokens, sampled."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("step", "start", "end", "request", "sequence", "slot", "first", "tokens", "sampled"))
    row, steps, rows = 0, trace.steps, trace.rows
    for step, start, end, count in zip(steps["step"], steps["start"], steps["end"], steps["rows"], strict=True):
        for r in range(row, row + count):
            seq_id = trace.sequences[rows["seq"][r]]
            sampled = "" if rows["sampled"][r] < 0 else rows["sampled"][r]
            request_id = seq_id.rpartition("/")[0]
            writer.writerow(
                (step, start, end, request_id, seq_id, rows["slot"][r], rows["first"][r], rows["tokens"][r], sampled)
            )
        row += count
    return out.getvalue()


def to_chrome(trace: Trace) -> str:
    """The trace in Chrome's JSON format: a thread per slot, counters for pool and queue, an instant per decision.

    Times are microseconds; under the step clock a step is shown as one millisecond.
    """
    scale = 1e3 if trace.unit == "steps" else 1e6
    steps = trace.steps
    begin = dict(zip(steps["step"], (t * scale for t in steps["start"]), strict=True))
    finish = dict(zip(steps["step"], (t * scale for t in steps["end"]), strict=True))
    view = lanes(trace)
    names = [r["name"] or r["id"] for r in trace.requests]
    out: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "slots"}}]
    for slot in range(view["slots"]):
        out.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": slot, "args": {"name": f"slot {slot + 1}"}})
    segs = view["segs"]
    for i in range(0, len(segs), 5):
        slot, start, length, request, kind = segs[i : i + 5]
        out.append(
            {
                "ph": "X",
                "name": f"request {names[request]}",
                "cat": _KINDS[kind],
                "pid": 1,
                "tid": slot,
                "ts": begin[start],
                "dur": finish[start + length - 1] - begin[start],
            }
        )
    for index, step in enumerate(steps["step"]):
        usage = {name: steps[name][index] for name in PARTS}
        out.append({"ph": "C", "name": "pool slots", "pid": 1, "ts": begin[step], "args": usage})
        out.append(
            {"ph": "C", "name": "waiting", "pid": 1, "ts": begin[step], "args": {"waiting": steps["waiting"][index]}}
        )
    last = 0.0
    for step, request, code, detail in view["log"]:
        last = begin.get(step, last)
        args = {"request": names[request], **detail}
        out.append({"ph": "i", "s": "g", "name": code, "cat": "decision", "pid": 1, "tid": 0, "ts": last, "args": args})
    return json.dumps({"traceEvents": out, "displayTimeUnit": "ms"}, separators=(",", ":"), ensure_ascii=False)
