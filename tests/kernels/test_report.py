"""The offline compile: no spills, and K and V 16 bytes at a time. Compiling needs a process without the interpreter."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from kernels.errors import KernelError
from kernels.report import TARGETS, Build, Found, builds, compile_build

ROOT = Path(__file__).resolve().parents[2]


def test_report_passes_for_both_targets(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)  # compile, don't remember
    command = [sys.executable, "-m", "kernels", "report", "--few"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    expected = len(list(builds(full=False))) * len(TARGETS)
    assert sum(" sm_80 " in line or " sm_90 " in line for line in lines) == expected
    decode = [line for line in lines if line.startswith("decode bf16 D 128")]
    assert len(decode) == len(TARGETS)
    assert all("LDGSTS.E.BYPASS.128" in line for line in decode)
    assert lines[-1].startswith("no spills")


def found(dtype=torch.bfloat16, **changes) -> Found:
    build = Build("b", "decode", dtype, {}, wide=16, programs=2)
    good = {"seconds": 0.1, "registers": 128, "spilled": 0, "shared": 70 * 1024}
    loads = changes.pop("loads", {"LDG.E": 3, "LDG.E.128": 1, "LDGSTS.E.BYPASS.128": 48})
    return Found(build, 80, **{**good, **changes}, loads=Counter(loads))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"spilled": 8}, "8 bytes spilled"),
        ({"loads": {"LDG.E.U16": 400, "LDG.E.128": 16}}, "narrow loads: LDG.E.U16"),
        ({"loads": {"LDG.E.U16.CONSTANT": 4, "LDG.E.128": 16}}, "narrow loads"),
        ({"loads": {"LDGSTS.E.64": 96, "LDG.E.128": 16}}, "narrow loads: LDGSTS.E.64"),
        ({"loads": {"LDG.E": 200, "LDG.E.128": 1}}, "1 loads of 16 bytes where 16 are needed"),
        ({"registers": 255}, None),
        ({"shared": 100 * 1024}, "1 programs fit"),
    ],
)
def test_what_is_not_good_enough(changes, problem):
    problems = found(**changes).problems
    assert (problems == []) if problem is None else (problem in problems[0])
    assert found(torch.float32, loads={"LDG.E": 3}).problems == []


def test_the_full_set_has_every_kernel_and_awkward_head_dimension():
    names = [build.name for build in builds()]
    assert len(set(names)) == len(names)
    for part in ("decode fp32", "decode fp16", "contiguous bf16", "D 80 ", "D 96 ", "D 112 ", "D 256 ", "b 1", "b 256"):
        assert any(part in name for name in names)


@pytest.mark.skipif(torch.cuda.is_available(), reason="no GPU is needed for this one, and there it is compiled")
def test_interpreted_there_is_nothing_to_report():
    with pytest.raises(KernelError, match="unset TRITON_INTERPRET"):
        compile_build(next(builds()), 90)
