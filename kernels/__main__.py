"""`python -m kernels check | report | bench`."""

from __future__ import annotations

import argparse
import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 1 if something is not as it should be, 2 if the machine cannot do it."""
    parser = argparse.ArgumentParser(prog="python -m kernels", description="The Triton kernels: check, report, bench.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="compare with a float64 reference (interpreted where there is no GPU)")
    report = commands.add_parser("report", help="compile for sm_80 and sm_90 without a GPU: registers, spills, loads")
    report.add_argument("--few", action="store_true", help="a few compilations that stand for the others")
    bench = commands.add_parser("bench", help="measure on a GPU; elsewhere only with --dry-run")
    bench.add_argument(
        "--dry-run", action="store_true", help="tiny shapes, interpreted: shows that it runs, not how fast"
    )
    bench.add_argument("--results", metavar="FILE", help="write the table into this file, between its markers")
    args = parser.parse_args(arguments)

    import torch

    cuda = torch.cuda.is_available()
    if args.command == "report":
        os.environ.pop("TRITON_INTERPRET", None)
        from kernels import report as command

        return int(command.run(full=not args.few) > 0)
    if not cuda:
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton
    if args.command == "check":
        from kernels import check

        return int(check.run("cuda" if cuda else "cpu") > 0)
    if not (cuda or args.dry_run):
        print("bench measures a GPU and there is none here: use --dry-run to see that it runs", file=sys.stderr)
        return 2
    from kernels import bench as bench_command

    return bench_command.run("cuda" if cuda else "cpu", dry_run=args.dry_run, results=args.results)


if __name__ == "__main__":
    sys.exit(main())
