"""`python -m kernels report`: what the compiler makes of the kernels, without a GPU.

Every kernel is compiled for sm_80 and sm_90 and taken apart with the tools in Triton's own wheel:

    registers   of a thread        spills   bytes of registers pushed out to memory: none are allowed
    shared      KB of a program    loads    global loads by width; in 16-bit kernels K and V come 16 bytes at a time

Fails on a spill, on a narrow load in a 16-bit kernel, and if fewer decode programs fit a multiprocessor than the
choice of splits counts on.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import block_copy, decode, kv_write, prefill
from kernels.errors import KernelError
from kernels.tiles import Tiles, decode_tiles, power_of_2, prefill_tiles

TARGETS = {80: 164, 90: 228}
"""Compute capability → KB of shared memory on a multiprocessor (quoted: NVIDIA, CUDA programming guide)."""

RESERVED_KB = 1
"""Shared memory that the system takes per program."""

REGISTERS = 65536
"""32-bit registers of a multiprocessor, both targets."""

KERNELS: dict[str, Any] = {
    "decode": decode.decode_kernel,
    "combine": decode.combine_kernel,
    "prefill": prefill.prefill_kernel,
    "kv_write": kv_write.kv_write_kernel,
    "block_copy": block_copy.block_copy_kernel,
}

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
NOT_DIVISIBLE = ("stride_table", "splits")
POINTERS = {
    "part_ptr": "fp32",
    "lse_ptr": "fp32",
    "table_ptr": "i32",
    "length_ptr": "i32",
    "start_ptr": "i32",
    "slot_ptr": "i32",
    "pair_ptr": "i32",
}
"""Types behind pointers that are not the model's type."""


@dataclass(frozen=True)
class Build:
    """One compilation.

    Attributes:
        kernel: its name in `KERNELS`.
        tiles: for warps and stages; None for Triton's own choice.
        wide: 16-byte loads that the K/V tiles of one loop iteration need per thread; 0 if it loads no K/V tiles.
        programs: how many must fit a multiprocessor.
    """

    name: str
    kernel: str
    dtype: torch.dtype
    constants: dict[str, Any]
    tiles: Tiles | None = None
    wide: int = 0
    programs: int = 1


@dataclass
class Found:
    """What one compilation came to."""

    build: Build
    target: int
    seconds: float
    registers: int
    spilled: int
    shared: int
    loads: Counter[str] = field(default_factory=Counter)

    @property
    def programs(self) -> int:
        """Programs that fit a multiprocessor, by registers and shared memory."""
        warps = self.build.tiles.warps if self.build.tiles else 4
        by_registers = REGISTERS // (max(1, -(-self.registers // 8) * 8) * 32 * warps)
        return min(by_registers, TARGETS[self.target] * 1024 // (self.shared + RESERVED_KB * 1024))

    @property
    def problems(self) -> list[str]:
        """Why this is not good enough; empty if it is."""
        found = []
        if self.spilled:
            found.append(f"{self.spilled} bytes spilled")
        if self.build.dtype.itemsize == 2:
            narrow = [name for name in self.loads if _is_narrow(name)]
            if narrow:
                found.append(f"narrow loads: {', '.join(narrow)}")
            wide = sum(count for name, count in self.loads.items() if ".128" in name)
            if wide < self.build.wide:
                found.append(f"{wide} loads of 16 bytes where {self.build.wide} are needed")
        if self.programs < self.build.programs:
            found.append(f"{self.programs} programs fit a multiprocessor, {self.build.programs} are counted on")
        return found


def builds(full: bool = True) -> Iterator[Build]:
    """All compilations, or a few that stand for them."""
    fp32, fp16, bf16 = NAMES
    shapes = [(bf16, 128, 4, 16), (bf16, 80, 4, 16)]
    if full:
        shapes += [(bf16, dim, 4, 16) for dim in (16, 64, 96, 112, 256)]
        shapes += [(bf16, dim, group, 16) for dim, group in ((128, 1), (64, 7), (64, 71))]
        shapes += [(bf16, 128, 4, size) for size in (1, 48, 256)]
        shapes += [(fp16, 128, 4, 16)]
        shapes += [(fp32, dim, 4, 16) for dim in (16, 64, 80, 128, 256)]
    for shape in shapes:
        yield from _decode(*shape)
        yield _prefill(*shape)
    for dtype in NAMES if full else (bf16,):
        for dim in (80, 128, 256) if full else (128,):
            yield Build(f"combine {NAMES[dtype]} D {dim}", "combine", dtype, decode.combine_constants(32, dim))
        for kv_heads, dim in ((8, 128), (2, 80)):
            name = f"kv_write {NAMES[dtype]} KV {kv_heads} D {dim}"
            yield Build(name, "kv_write", dtype, kv_write.constants(kv_heads, dim, 16))
        yield Build(f"block_copy {NAMES[dtype]}", "block_copy", dtype, block_copy.constants(16 * 8 * 128))


def compile_build(build: Build, target: int) -> Found:
    """Compile for a target and take the result apart.

    Raises:
        KernelError: Triton runs in its interpreter, where nothing is compiled.
    """
    _require_compiler()
    kernel = KERNELS[build.kernel]
    names = kernel.arg_names
    types = {name: "constexpr" if name in build.constants else _type(name, build.dtype) for name in names}
    constants = {(names.index(name),): value for name, value in build.constants.items()}
    promised = [n for n in names if n not in build.constants and n not in (*NOT_DIVISIBLE, "scale_log2")]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in promised}
    source = ASTSource(kernel, types, constants, attributes)
    options = {"enable_fp_fusion": True, **(build.tiles.options if build.tiles else {})}
    begin = time.perf_counter()
    compiled = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    seconds = time.perf_counter() - begin
    usage, code = _dumps(compiled.asm["cubin"])
    numbers = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if numbers is None:
        raise KernelError(f"cuobjdump said something unknown: {usage.strip()}")
    registers, stack, local = map(int, numbers.groups())
    loads = Counter(re.findall(r"\b(LDG(?:STS)?\.E[A-Z0-9_.]*)", code))
    spilled = max(stack, local, 4 * len(re.findall(r"\bSTL\b", code)))
    return Found(build, target, seconds, registers, spilled, compiled.metadata.shared, loads)


def run(full: bool = True) -> int:
    """Print the report; returns the number of compilations that are not good enough.

    Raises:
        KernelError: Triton runs in its interpreter.
    """
    _require_compiler()
    print(f"triton {triton.__version__}, compiled offline; registers per thread, shared memory in KB (counted)")
    print(f"{'kernel':<42} {'target':>6} {'regs':>5} {'spills':>6} {'shared':>7} {'per SM':>6}  global loads")
    bad = 0
    chosen = [(build, target) for build in builds(full) for target in TARGETS]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for found in pool.map(compile_build, *zip(*chosen, strict=True)):
            loads = " ".join(f"{name}×{count}" for name, count in sorted(found.loads.items()))
            problems = "; ".join(found.problems)
            bad += bool(problems)
            print(
                f"{found.build.name:<42} {'sm_' + str(found.target):>6} {found.registers:>5} {found.spilled:>6} "
                f"{found.shared / 1024:>7.1f} {found.programs:>6}  {loads}{'  ← ' + problems if problems else ''}",
                flush=True,
            )
    print(f"{bad} not good enough" if bad else "no spills; K and V of the 16-bit kernels come 16 bytes at a time")
    return bad


def _require_compiler() -> None:
    if knobs.runtime.interpret:
        raise KernelError("the report compiles: unset TRITON_INTERPRET")


def _decode(dtype: torch.dtype, dim: int, group: int, size: int) -> Iterator[Build]:
    tiles = decode_tiles(group, dim, dtype)
    name = f"{NAMES[dtype]} D {dim} group {group} b {size}"
    programs = decode.PROGRAMS_PER_SM if dtype.itemsize == 2 else 1
    for label, paged, split in (("decode", True, False), ("decode, splits", True, True), ("contiguous", False, True)):
        fixed = decode.constants(8 * group, 8, dim, dtype, size if paged else None, split)
        yield Build(f"{label} {name}", "decode", dtype, fixed, tiles, _wide(tiles, dim, dtype), programs)


def _prefill(dtype: torch.dtype, dim: int, group: int, size: int) -> Build:
    tiles = prefill_tiles(dim, dtype)
    name = f"prefill {NAMES[dtype]} D {dim} group {group} b {size}"
    fixed = prefill.constants(8 * group, 8, dim, dtype, size)
    return Build(name, "prefill", dtype, fixed, tiles, _wide(tiles, dim, dtype))


def _wide(tiles: Tiles, dim: int, dtype: torch.dtype) -> int:
    """16-byte loads per thread for a tile of K and one of V."""
    return max(1, 2 * tiles.positions * power_of_2(dim) * dtype.itemsize // 16 // (32 * tiles.warps))


def _type(name: str, dtype: torch.dtype) -> str:
    if name.endswith("_ptr"):
        return "*" + POINTERS.get(name, NAMES[dtype])
    return "fp32" if name == "scale_log2" else "i32"


def _is_narrow(name: str) -> bool:
    """Loads of 1 or 2 bytes, and copies to shared memory (how K and V come) of less than 16; block ids take 4."""
    if name.startswith("LDGSTS"):
        return ".128" not in name
    return any(part in name.split(".") for part in ("U8", "S8", "U16", "S16"))


def _dumps(cubin: bytes) -> tuple[str, str]:
    """Resource usage and machine code of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()

        def dump(option: str) -> str:
            done = subprocess.run([tool, option, file.name], capture_output=True, text=True, check=False)
            return done.stdout + done.stderr

        return dump("--dump-resource-usage"), dump("--dump-sass")
