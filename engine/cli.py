"""`python -m engine …`: the command line. Each command is one function; bad input is one line on stderr and exit 2."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from engine import config as cfg
from engine.errors import EngineError, ValidationError
from engine.export import to_chrome, to_csv
from engine.simulate import simulate
from engine.workload import parse_workload


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
    except MemoryError:
        print("error: this does not fit into memory: use fewer blocks or shorter requests", file=sys.stderr)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_simulate(commands)
    _add_fetch(commands)
    from engine import anchor
    from engine.model import bench, generate

    anchor.add_parser(commands)
    generate.add_parser(commands)
    bench.add_parser(commands)
    return parser


def _add_simulate(commands: Any) -> None:
    parser = commands.add_parser("simulate", help="run a workload through the scheduler and the allocator, no model")
    parser.set_defaults(run=_run_simulate)
    add = parser.add_argument
    add("--workload", required=True, help="real64 | uniform:N:LO:HI:SEED | FILE.json | FILE.csv")
    add("--policy", choices=cfg.POLICIES, default="continuous")
    add("--slots", type=int, default=8, metavar="B", help="sequences that share a step (default 8)")
    add("--kv", choices=cfg.KV_RULES, default="paged")
    add("--fit", choices=cfg.FITS, default="first", help="which free run a contiguous reservation takes")
    add("--blocks", type=int, metavar="P", help="blocks in the pool (default: slots × the largest demand)")
    add("--block-size", type=int, default=16, metavar="b", help="token slots per block (default 16)")
    add("--prompt-tokens", type=int, default=1, metavar="N", help="prompt length of items that state none (default 1)")
    add("--max-len", type=int, metavar="N", help="most tokens of a request, prompt and reply together")
    add("--budget", type=int, metavar="N", help="token budget of a step (default: no limit)")
    add("--prefix", choices=cfg.PREFIXES, default="none")
    add("--preempt", choices=cfg.PREEMPTS, default="recompute")
    add("--host-blocks", type=int, default=0, metavar="N")
    add("--disk-blocks", type=int, default=0, metavar="N")
    add("--snapshot-tokens", type=int, metavar="N")
    add("--watermark", type=float, default=0.0, metavar="F", help="share of the pool that admission leaves free")
    add("--order", choices=cfg.ORDERS, default="fcfs")
    add("--victim", choices=cfg.VICTIMS, help="who is preempted (default goes with --order)")
    add("--seed", type=int, default=0)
    add(
        "--arrival-rate",
        type=float,
        metavar="R",
        help="Poisson arrivals, requests per step (per second: --clock anchor)",
    )
    add("--clock", choices=("step", "anchor"), default="step")
    add("--trace", type=Path, metavar="OUT.json", help="write the trace (.json; .csv; .chrome.json opens in Perfetto)")
    add("--json", action="store_true", help="print one JSON object")


def _run_simulate(args: argparse.Namespace) -> int:
    workload = parse_workload(args.workload)
    if args.arrival_rate is not None:
        workload = workload.with_arrivals(args.arrival_rate, args.seed)
    if args.trace is not None and not args.trace.parent.is_dir():
        raise ValidationError(f"there is no folder {args.trace.parent} to write the trace into")
    result = simulate(
        workload,
        slots=cfg.require_int("--slots", args.slots, minimum=1, maximum=1_000_000),
        blocks=args.blocks,
        prompt_tokens=args.prompt_tokens,
        clock=args.clock,
        keep_trace=args.trace is not None,
        progress=_progress_bar if sys.stderr.isatty() else None,
        policy=args.policy,
        kv=args.kv,
        fit=args.fit,
        block_size=args.block_size,
        max_model_len=args.max_len,
        max_num_batched_tokens=args.budget,
        prefix=args.prefix,
        preempt=args.preempt,
        host_blocks=args.host_blocks,
        disk_blocks=args.disk_blocks,
        snapshot_tokens=args.snapshot_tokens,
        watermark=args.watermark,
        order=args.order,
        victim=args.victim,
        seed=args.seed,
    )
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if args.trace is not None:
        _write_trace(args.trace, result)
    report = result.report
    print(json.dumps(report) if args.json else _table(report))
    return 0


def _add_fetch(commands: Any) -> None:
    parser = commands.add_parser("fetch-model", help="bring a real small model into .cache/models, once (smollm2)")
    parser.set_defaults(run=_run_fetch)
    parser.add_argument("name", metavar="NAME", help="smollm2: SmolLM2-135M-Instruct, English, 269 MB")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _run_fetch(args: argparse.Namespace) -> int:
    from engine.model import fetch

    bar = sys.stderr.isatty()
    try:
        folder = fetch.fetch(args.name, progress=_fetch_bar if bar else None)
    finally:
        if bar:
            print("\r\x1b[K", end="", file=sys.stderr)
    note = fetch.manifest(folder)
    print(f"{note['model']}, {note['licence']}, from the {note['route']}: {note['origin']}", file=sys.stderr)
    print(json.dumps({"folder": str(folder), **note}) if args.json else folder)
    return 0


def _fetch_bar(done: int, total: int, text: str) -> None:
    filled = 40 * done // total if total else 0
    share = f"{done / total:4.0%} " if total else ""
    print(f"\r\x1b[K[{'#' * filled}{'.' * (40 - filled)}] {share}{text}", end="", file=sys.stderr, flush=True)


def _write_trace(path: Path, result: Any) -> None:
    if path.name.endswith(".chrome.json"):
        text = to_chrome(result.trace)
    else:
        text = to_csv(result.trace) if path.suffix == ".csv" else result.trace.to_json()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValidationError(f"cannot write {path}: {error.strerror or error}") from None


def _progress_bar(done: int, total: int) -> None:
    filled = 40 * done // total
    print(f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{total} requests", end="", file=sys.stderr, flush=True)


def _table(report: dict[str, Any]) -> str:
    """The report for people."""
    kv = report["kv"]
    saturated = kv["live_share_saturated"]
    lines = [
        ("steps", f"{report['steps']:,}"),
        ("utilisation", f"{report['utilisation']:.4f}"),
        ("useful cells", f"{report['useful_cells']:,}"),
        ("finished / refused", f"{report['finished']:,} / {report['refused']:,}"),
        ("preemptions", f"{report['preemptions']:,} ({report['recomputed_tokens']:,} KV tokens recomputed)"),
        ("pool", f"{kv['pool_slots']:,} token slots, at most {kv['peak_blocks']:,} blocks held"),
        (
            "live share",
            f"{kv['live_share']:.4f} (while somebody waits: {'-' if saturated is None else f'{saturated:.4f}'})",
        ),
    ]
    for name in ("ttft", "tpot"):
        figures = report[name]
        shown = (
            "-"
            if figures["mean"] is None
            else ", ".join(f"{k} {figures[k]:.4g}" for k in ("mean", "p50", "p95", "max"))
        )
        lines.append((name, f"{shown} {figures['unit']}"))
    width = max(len(name) for name, _ in lines)
    return "\n".join([f"{name:<{width}}  {value}" for name, value in lines] + [f"note: {n}" for n in report["notes"]])
