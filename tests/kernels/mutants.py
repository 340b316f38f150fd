"""Bugs that paged attention kernels have had, planted one at a time: a test must fail for each.

    python -m tests.kernels.mutants [NAME ...]

Every mutant runs in a copy of the sources in a temporary folder; a crash of the interpreter counts as a failed test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kernels", "engine", "tests")
LINKED = ("data", "pyproject.toml")
KERNELS = "tests/kernels/test_kernels.py"
BACKEND = "tests/kernels/test_backend.py"


@dataclass(frozen=True)
class Mutant:
    """One bug: `old` becomes `new` in `file`, and some test among `tests` (file, and words for -k) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, str]


DECODE, PREFILL, WRITE, COPY = (f"kernels/{name}.py" for name in ("decode", "prefill", "kv_write", "block_copy"))
GRAPH = "engine/model/triton_backend.py"
FP32 = "decode-float32-8/2x64"
V_LOAD = "v = tl.load(v_ptr + offset[:, None] + offs_d[None, :], mask=readable, other=0.0)"
V_BARE = "v = tl.load(v_ptr + offset[:, None] + offs_d[None, :])"

MUTANTS = [
    Mutant("values not masked", DECODE, V_LOAD, V_BARE, (KERNELS, FP32)),
    Mutant("values not masked in prefill", PREFILL, V_LOAD, V_BARE, (KERNELS, "prefill-float32-8/2x64")),
    Mutant("32-bit offsets", DECODE, "block.to(tl.int64) * stride_block", "block * stride_block", (KERNELS, "offsets")),
    Mutant("32-bit offsets in prefill", PREFILL, "block.to(tl.int64)", "block", (KERNELS, "offsets")),
    Mutant(
        "32-bit offsets in kv_write",
        WRITE,
        "tl.load(slot_ptr + token).to(tl.int64)",
        "tl.load(slot_ptr + token).to(tl.int32)",
        (KERNELS, "offsets"),
    ),
    Mutant("32-bit offsets in block_copy", COPY, ".to(tl.int64)", ".to(tl.int32)", (KERNELS, "offsets")),
    Mutant(
        "a query does not see itself",
        PREFILL,
        "position[None, :] <= q_position[:, None]",
        "position[None, :] < tl.maximum(q_position, 1)[:, None]",
        (KERNELS, "prefill-float32-8/2x64"),
    ),
    Mutant(
        "a query sees the next token",
        PREFILL,
        "position[None, :] <= q_position[:, None]",
        "position[None, :] <= q_position[:, None] + 1",
        (KERNELS, "prefill-float32-8/2x64"),
    ),
    Mutant(
        "tiles left over by the splits are dropped",
        DECODE,
        "tl.maximum(tl.cdiv(tiles, splits), MIN_TILES)",
        "tl.maximum(tiles // splits, MIN_TILES)",
        (KERNELS, FP32),
    ),
    Mutant(
        "splits overlap by a tile",
        DECODE,
        "last = tl.minimum(first + per_split, tiles)",
        "last = tl.minimum(first + per_split + 1, tiles)",
        (KERNELS, FP32),
    ),
    Mutant(
        "one position too many",
        DECODE,
        "is_there = position < length",
        "is_there = position <= length",
        (KERNELS, FP32),
    ),
    Mutant(
        "entries behind the table's end are used",
        DECODE,
        "readable = is_there[:, None] & is_dim[None, :]",
        "block = tl.load(table_ptr + position // BLOCK_SIZE)\n"
        "        offset = block.to(tl.int64) * stride_block + (position % BLOCK_SIZE) * stride_slot\n"
        "        readable = (position >= 0)[:, None] & is_dim[None, :]",
        (KERNELS, FP32),
    ),
    Mutant(
        "block ids of the tile before",
        DECODE,
        "ahead = position + TILE_N",
        "ahead = position",
        (KERNELS, FP32),
    ),
    Mutant("padded rows write slot -1", WRITE, "if slot >= 0:", "if slot >= -1:", (KERNELS, "kv_write")),
    Mutant(
        "padded rows write slot 0",
        WRITE,
        "    if slot >= 0:",
        "    slot = tl.maximum(slot, 0)\n    if slot >= 0:",
        (KERNELS, "kv_write"),
    ),
    Mutant(
        "padded rows of a graph write the last slot",
        GRAPH,
        "self._head[:, count:] = [[0], [0], [-1], [0]]",
        "self._head[:, count:] = [[0], [0], [self._num_blocks * plan.block_size - 1], [0]]",
        (BACKEND, "padded_rows"),
    ),
    Mutant(
        "a graph keeps a row's old table",
        GRAPH,
        "start = len(known) if table[: len(known)] == known else 0",
        "start = len(known)",
        (BACKEND, "follows_tables"),
    ),
    Mutant("scores to base e", DECODE, "else scale) * LOG2_E", "else scale)", (KERNELS, FP32)),
    Mutant("scale forgotten", DECODE, "(dim**-0.5 if scale is None else scale)", "dim**-0.5", (KERNELS, FP32)),
    Mutant(
        "log-sum-exp to base e",
        DECODE,
        "m + tl.log2(tl.where(seen, total, 1.0))",
        "(m + tl.log2(tl.where(seen, total, 1.0))) * 0.6931471805599453",
        (KERNELS, FP32),
    ),
    Mutant(
        "query heads in the wrong order",
        DECODE,
        "head = kv_head * GROUP + in_group",
        "head = in_group * (HEADS // GROUP) + kv_head",
        (KERNELS, FP32),
    ),
    Mutant(
        "query heads in the wrong order in prefill",
        PREFILL,
        "head = kv_head * GROUP + row % GROUP",
        "head = kv_head + (row % GROUP) * tl.num_programs(1)",
        (KERNELS, "prefill-float32-8/2x64"),
    ),
    Mutant(
        "an empty split's partial result is read",
        DECODE,
        "mask=live[:, None] & (offs_d < D)[None, :],",
        "mask=(split < splits)[:, None] & (offs_d < D)[None, :],",
        (KERNELS, FP32),
    ),
    Mutant(
        "all splits empty",
        DECODE,
        'shift = tl.where(m_new > float("-inf"), m_new, 0.0)',
        "shift = m_new",
        (KERNELS, "decode-float32-7/1"),
    ),
    Mutant(
        "the group's rest is forgotten",
        DECODE,
        "GROUP_TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M",
        "GROUP_TILES: tl.constexpr = 1",
        (KERNELS, "decode-float32-71/1"),
    ),
    Mutant(
        "copies go the wrong way",
        COPY,
        "source = tl.load(pair_ptr + 2 * pair).to(tl.int64)\n    destination = tl.load(pair_ptr + 2 * pair + 1)",
        "destination = tl.load(pair_ptr + 2 * pair).to(tl.int64)\n    source = tl.load(pair_ptr + 2 * pair + 1)",
        (KERNELS, "block_copy"),
    ),
]


def run(file: str, words: str, mutant: Mutant | None = None) -> subprocess.CompletedProcess[str]:
    """Run tests on a copy of the sources, with a bug planted in it or none.

    Raises:
        ValueError: the mutant's text is not in the source exactly once.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for part in COPIED:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in LINKED:
            (folder / part).symlink_to(ROOT / part)
        if mutant is not None:
            source = folder / mutant.file
            text = source.read_text(encoding="utf-8")
            if mutant.old not in text:
                raise ValueError(f"{mutant.name}: {mutant.file} has no {mutant.old!r}")
            source.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, "-k", words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def main(names: list[str]) -> int:
    """Plant the bugs named, or all; returns 1 if one of them goes unnoticed."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    survivors = 0
    for tests in dict.fromkeys(mutant.tests for mutant in chosen):
        done = run(*tests)
        if done.returncode:
            print(f"without a bug, {' '.join(tests)} fails already:\n{done.stdout[-2000:]}")
            return 1
    for mutant in chosen:
        status = run(*mutant.tests, mutant).returncode
        caught = status == 1 or status < 0  # a failed test, or a crash
        survivors += not caught
        print(f"{'caught  ' if caught else 'SURVIVED'} {mutant.name}{' (crash)' if status < 0 else ''}", flush=True)
    print(f"{len(chosen)} bugs planted, {survivors} unnoticed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
