"""`python -m kernels check`: every case against the float64 reference, compiled on a GPU, interpreted elsewhere."""

from __future__ import annotations

import time

import torch
import triton
from triton import knobs

from kernels import cases


def run(device: str) -> int:
    """Print one line per case; returns the number of failures."""
    how = "interpreted" if knobs.runtime.interpret else "compiled"
    versions = f"triton {triton.__version__}, torch {torch.__version__}"
    print(f"{versions}, {device}, {how}; errors relative to float64 (measured)")
    torch.set_num_threads(1)  # the interpreter has one thread, and others would only wait for each other
    begin, failures = time.perf_counter(), 0

    def line(name: str, good: bool, shown: str) -> None:
        nonlocal failures
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:<52} {shown}", flush=True)

    count = 0
    for case in cases.cases(device):
        found, allowed = cases.run(case, device), cases.TOLERANCE[case.dtype]
        line(str(case), found <= allowed, f"{found:.1e} of {allowed:.0e}")
        count += 1
    found = cases.far_apart(device)
    line("offsets past 2³¹", found <= cases.TOLERANCE[torch.float16], f"{found:.1e}")
    for dtype in cases.TOLERANCE:
        for chunk in (1, 5):
            name = str(dtype).removeprefix("torch.")
            line(f"neighbours' contents, {name}, {chunk} queries", cases.neighbours(dtype, device, chunk), "bit-equal")
            count += 1
    print(f"{count + 1} checks, {failures} failures, {time.perf_counter() - begin:.0f} s")
    return failures
