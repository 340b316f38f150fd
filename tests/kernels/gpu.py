"""`make gpu`: everything that needs a GPU, in one go and under ten minutes; its tables go to `kernels/RESULTS.md`.

    check        every kernel, compiled, against float64
    exactness    the triton backend under the engine: the torch backend's tokens, padded rows, neighbours
    bench        the kernels                      engine steps     the whole engine

Without a GPU the same stages run in the interpreter on tiny shapes, and nothing is measured or written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "kernels/RESULTS.md"


def stages(on_gpu: bool) -> list[tuple[str, list[str]]]:
    """Name and arguments to Python of every stage."""
    measure = ["--results", RESULTS] if on_gpu else ["--dry-run"]
    return [
        ("check", ["-m", "kernels", "check"]),
        ("exactness", ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/test_backend.py"]),
        ("bench", ["-m", "kernels", "bench", *measure]),
        ("engine steps", ["-m", "tests.kernels.bench_steps", *measure]),
    ]


def main() -> int:
    """Run all stages; 1 if one fails."""
    on_gpu = torch.cuda.is_available()
    print("on " + torch.cuda.get_device_name() if on_gpu else "no GPU here: a dry run in the interpreter", flush=True)
    environment = dict(os.environ)
    environment.pop("TRITON_INTERPRET", None)
    if not on_gpu:
        environment["TRITON_INTERPRET"] = "1"
    lines = []
    for name, arguments in stages(on_gpu):
        print(f"\n== {name}", flush=True)
        begin = time.perf_counter()
        status = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=False).returncode
        lines.append((status, f"{'ok  ' if status == 0 else 'FAIL'} {name}, {time.perf_counter() - begin:.0f} s"))
    print("\n" + "\n".join(text for _, text in lines))
    return int(any(status for status, _ in lines))


if __name__ == "__main__":
    sys.exit(main())
