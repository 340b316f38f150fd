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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.block_copy import PIECE, block_copy_kernel
from kernels.decode import COMBINE_ROWS, PROGRAMS_PER_SM, combine_kernel, decode_kernel
from kernels.errors import KernelError
from kernels.kv_write import ELEMENTS, kv_write_kernel
from kernels.prefill import prefill_kernel
from kernels.splits import MIN_TILES
from kernels.tiles import decode_tiles, precision, prefill_tiles

TARGETS = {80: 164, 90: 228}
"""Compute capability → KB of shared memory on a multiprocessor (NVIDIA's CUDA programming guide, table of capabilities)."""

RESERVED_KB = 1
"""Shared memory that the system takes per program."""

REGISTERS = 65536
"""32-bit registers of a multiprocessor, both targets."""

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
        wide: 16-byte loads that the K/V tiles of one loop iteration need per thread; 0 if it loads no K/V tiles.
        programs: how many must fit a multiprocessor.
    """

    name: str
    kernel: Any
    dtype: torch.dtype
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 3
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
        by_registers = REGISTERS // (max(1, -(-self.registers // 8) * 8) * 32 * self.build.warps)
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
    dims = (64, 80, 96, 112, 128, 256, 16) if full else (128, 80)
    for dtype in NAMES if full else (torch.bfloat16,):
        for dim in dims:
            yield from _decode(dtype, dim, group=4, size=16)
            yield _prefill(dtype, dim, group=4, size=16)
        yield _kv_write(dtype, 8, 128)
        yield _kv_write(dtype, 2, 80)
        numbers = 16 * 8 * 128
        yield Build("block copy", block_copy_kernel, dtype, {"NUMBERS": numbers, "PIECE": PIECE})
    for group, dim, size in ((1, 128, 16), (7, 64, 16), (71, 64, 16), (4, 128, 1), (4, 128, 48), (4, 128, 256)):
        if full or size == 1:
            yield from _decode(torch.bfloat16, dim, group, size)
            yield _prefill(torch.bfloat16, dim, group, size)


def compile_build(build: Build, target: int) -> Found:
    """Compile for a target and take the result apart.

    Raises:
        KernelError: Triton runs in its interpreter, where nothing is compiled.
    """
    if triton.knobs.runtime.interpret:
        raise KernelError("the report compiles: unset TRITON_INTERPRET")
    names = build.kernel.arg_names
    types = {name: "constexpr" if name in build.constants else _type(name, build.dtype) for name in names}
    constants = {(names.index(name),): value for name, value in build.constants.items()}
    promised = [n for n in names if n not in build.constants and n not in (*NOT_DIVISIBLE, "scale_log2")]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in promised}
    source = ASTSource(build.kernel, types, constants, attributes)
    options = {"num_warps": build.warps, "num_stages": build.stages, "enable_fp_fusion": True}
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
    """Print the report; returns the number of compilations that are not good enough."""
    print(f"triton {triton.__version__}, compiled offline; registers per thread, shared memory in KB (counted)")
    print(f"{'kernel':<42} {'target':>6} {'regs':>5} {'spills':>6} {'shared':>7} {'per SM':>6}  global loads")
    bad = 0
    for build in builds(full):
        for target in TARGETS:
            found = compile_build(build, target)
            loads = " ".join(f"{name}×{count}" for name, count in sorted(found.loads.items()))
            problems = "; ".join(found.problems)
            bad += bool(problems)
            print(
                f"{build.name:<42} {'sm_' + str(target):>6} {found.registers:>5} {found.spilled:>6} "
                f"{found.shared / 1024:>7.1f} {found.programs:>6}  {loads}{'  ← ' + problems if problems else ''}",
                flush=True,
            )
    print(f"{bad} not good enough" if bad else "no spills; K and V of the 16-bit kernels come 16 bytes at a time")
    return bad


def _decode(dtype: torch.dtype, dim: int, group: int, size: int) -> Iterator[Build]:
    tiles = decode_tiles(group, dim, dtype)
    padded = triton.next_power_of_2(dim)
    shape = {"HEADS": 8 * group, "GROUP": group, "D": dim, "D_PAD": padded}
    tile = {"BLOCK_M": tiles.rows, "TILE_N": tiles.positions, "MIN_TILES": MIN_TILES, "PRECISION": precision(dtype)}
    wide = _wide(tiles.positions, padded, dtype, tiles.warps)
    name = f"{NAMES[dtype]} D {dim} group {group} b {size}"
    for label, paged, split in (("decode", True, False), ("decode, splits", True, True), ("contiguous", False, True)):
        kind = {"PAGED": paged, "SPLIT": split, "BLOCK_SIZE": size if paged else 1}
        programs = PROGRAMS_PER_SM if dtype.itemsize == 2 else 1
        yield Build(
            f"{label} {name}",
            decode_kernel,
            dtype,
            {**shape, **tile, **kind},
            tiles.warps,
            tiles.stages,
            wide,
            programs,
        )
    combine = {"HEADS": 8 * group, "D": dim, "D_PAD": padded, "ROWS": COMBINE_ROWS}
    yield Build(f"combine {NAMES[dtype]} D {dim}", combine_kernel, dtype, combine, warps=2)


def _prefill(dtype: torch.dtype, dim: int, group: int, size: int) -> Build:
    tiles = prefill_tiles(dim, dtype)
    padded = triton.next_power_of_2(dim)
    constants = {
        "GROUP": group,
        "D": dim,
        "D_PAD": padded,
        "BLOCK_SIZE": size,
        "BLOCK_M": tiles.rows,
        "TILE_N": tiles.positions,
        "PRECISION": precision(dtype),
    }
    wide = _wide(tiles.positions, padded, dtype, tiles.warps)
    name = f"prefill {NAMES[dtype]} D {dim} group {group} b {size}"
    return Build(name, prefill_kernel, dtype, constants, tiles.warps, tiles.stages, wide)


def _kv_write(dtype: torch.dtype, kv_heads: int, dim: int) -> Build:
    padded = triton.next_power_of_2(dim)
    tile = min(triton.next_power_of_2(kv_heads), max(1, ELEMENTS // padded))
    constants = {"KV_HEADS": kv_heads, "D": dim, "D_PAD": padded, "BLOCK_SIZE": 16, "HEAD_TILE": tile}
    return Build(f"kv_write {NAMES[dtype]} KV {kv_heads} D {dim}", kv_write_kernel, dtype, constants)


def _wide(positions: int, padded: int, dtype: torch.dtype, warps: int) -> int:
    return max(1, 2 * positions * padded * dtype.itemsize // 16 // (32 * warps))


def _type(name: str, dtype: torch.dtype) -> str:
    if name.endswith("_ptr"):
        return "*" + POINTERS.get(name, NAMES[dtype])
    return "fp32" if name == "scale_log2" else "i32"


def _is_narrow(name: str) -> bool:
    """Loads of 1, 2 or 8 bytes; those of 4 are block ids and lengths, as a plain load, never as a copy to shared."""
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
