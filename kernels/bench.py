"""`python -m kernels bench`: how fast the kernels are, against what this GPU can do at all, in one run.

    floor      bytes that must move ÷ copy bandwidth, measured in the same run
    paged      decode through block tables            contiguous   the same kernel on KV without a table
    + gather   SDPA after gathering KV out of the pool            SDPA   the same without the gather
    torch      PyTorch's own paged attention, where this version has it and takes the block size

Every case that is timed is also compared with the float64 reference. The table comes last, then what was aimed at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
from torch.nn.functional import scaled_dot_product_attention

from kernels import reference, timing
from kernels.cases import TOLERANCE
from kernels.contiguous import decode_contiguous
from kernels.decode import decode, splits_for
from kernels.paging import Paging
from kernels.prefill import prefill
from kernels.results import Table, Target, shown, write

DTYPE = torch.bfloat16
BLOCK_SIZE = 16
COMPARED = 2
"""Sequences of a case that are compared with the reference; all would take longer than the benchmark."""

FLAT_ABOVE_US = 20.0
FLAT_WITHIN = 1.5
NO_STEP = 0.9
"""Below the flat part a larger batch may not be faster than a smaller one by more than this."""


@dataclass(frozen=True)
class Shape:
    """A decode case: every sequence has the same length."""

    sequences: int
    length: int
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values."""
        return self.sequences * self.length * self.kv_heads * self.dim * 2 * DTYPE.itemsize

    def moved(self, splits: int) -> int:
        """Bytes that a decode call must move: KV, query, output, and the partial results written and read."""
        rows = self.sequences * self.heads
        partial = 8 * rows * splits * (self.dim + 1) if splits > 1 else 0
        return self.kv_bytes + 2 * rows * self.dim * DTYPE.itemsize + partial

    def __str__(self) -> str:
        return f"{self.sequences}×{self.length:,}, {self.heads}/{self.kv_heads} heads, D {self.dim}"


LARGE = Shape(64, 4096)
MHA = Shape(64, 4096, 32, 32)
DECODE = (LARGE, Shape(8, 8192), Shape(1, 32768), Shape(128, 1024), MHA, Shape(64, 4096, 14, 2, 64))
SWEEP_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SWEEP_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PREFILL = ((1, 4096, 0), (8, 1024, 0), (8, 512, 4096), (16, 128, 8192))
"""Sequences, queries each, context before them."""

DRY_DECODE = (Shape(2, 40, 4, 2, 16), Shape(1, 600, 4, 2, 16))
DRY_SWEEP = ((1, 2), (16, 32))
DRY_PREFILL = ((2, 20, 0), (1, 5, 30))


class Pool:
    """Memory of one size for all cases: keys and values, seen as blocks or as contiguous sequences."""

    def __init__(self, nbytes: int, device: str) -> None:
        count = nbytes // (2 * DTYPE.itemsize)
        self.flat = [torch.empty(count, dtype=DTYPE, device=device) for _ in range(2)]
        for tensor in self.flat:
            for part in tensor.split(1 << 26):
                part.normal_()
        self.device = device

    def blocks(self, shape: Shape) -> list[torch.Tensor]:
        """Keys and values as [blocks, BLOCK_SIZE, KV, D]."""
        size = BLOCK_SIZE * shape.kv_heads * shape.dim
        return [t[: len(t) // size * size].view(-1, BLOCK_SIZE, shape.kv_heads, shape.dim) for t in self.flat]

    def sequences(self, shape: Shape, sets: int) -> list[torch.Tensor]:
        """Keys and values as [sets, S, L, KV, D]."""
        wanted = (sets, shape.sequences, shape.length, shape.kv_heads, shape.dim)
        return [tensor[: math.prod(wanted)].view(wanted) for tensor in self.flat]


def run(device: str, *, dry_run: bool = False, results: str | None = None) -> int:
    """Measure and print; returns 1 if a case is wrong (a target missed is only said)."""
    begin = time.perf_counter()
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU: a dry run, nothing is measured"
    print(f"{name}; torch {torch.__version__}, triton {triton.__version__}")
    bandwidth, products = timing.copy_bandwidth(device), timing.product_rate(device)
    ceilings = f"copy {shown(bandwidth / 1e12)} TB/s, bf16 product {shown(products / 1e12)} TFLOP/s (measured)"
    print(ceilings, flush=True)
    shapes = DRY_DECODE if dry_run else DECODE
    batches, lengths = DRY_SWEEP if dry_run else (SWEEP_BATCHES, SWEEP_LENGTHS)
    largest = max([shape.kv_bytes for shape in shapes] + [Shape(max(batches), max(lengths)).kv_bytes])
    if device == "cuda":
        largest = min(largest, int(torch.cuda.mem_get_info()[0] * 0.6))
    torch.manual_seed(0)
    pool = Pool(largest, device)
    tables, targets = [], []
    for part in (
        lambda: decode_table(shapes, pool, bandwidth),
        lambda: sweep_table(batches, lengths, pool, bandwidth),
        lambda: prefill_table(DRY_PREFILL if dry_run else PREFILL, pool, products),
    ):
        table, aims = part()
        tables.append(table)
        targets += aims
    head = (
        f"{name}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s (measured)"
    )
    print()
    for table in tables:
        print(table.text(), end="\n\n")
    for target in targets:
        print(target.text())
    wrong = sum(table.wrong for table in tables)
    print(f"{wrong} cases wrong; {time.perf_counter() - begin:.0f} s")
    if results is not None and not dry_run:
        write(results, "kernels", head, tables, targets)
    return int(wrong > 0)


def decode_table(shapes: tuple[Shape, ...], pool: Pool, bandwidth: float) -> tuple[Table, list[Target]]:
    """Decode in all ways."""
    columns = [
        "case",
        "splits",
        "floor µs",
        "paged µs",
        "of copy",
        "contiguous µs",
        "+ gather µs",
        "SDPA µs",
        "torch µs",
    ]
    table = Table("Decode, bf16, block size 16, shuffled tables (measured)", [*columns, "torch", "error"])
    targets = []
    for shape in shapes:
        print(f"decode {shape}", flush=True)
        case = _Decode(shape, pool)
        floor = shape.moved(case.splits) / bandwidth * 1e6
        paged, contiguous = case.time(case.paged), case.time(case.contiguous)
        gathered, plain = case.time(case.gathered), case.time(case.plain)
        way, other = case.time_torch()
        error = case.error()
        table.add(
            [str(shape), case.splits, floor, paged, floor / paged, contiguous, gathered, plain, other, way, error],
            error > TOLERANCE[DTYPE],
        )
        if shape in (LARGE, MHA):
            targets.append(Target(f"{shape}: share of copy bandwidth", floor / paged, 0.9, at_least=True))
            targets.append(Target(f"{shape}: paged over contiguous", paged / contiguous, 1.05))
        targets.append(Target(f"{shape}: over SDPA with its gather", paged / gathered, 1.0))
        targets.append(Target(f"{shape}: over SDPA without the gather", paged / plain, 1.0))
    return table, targets


def sweep_table(
    batches: tuple[int, ...], lengths: tuple[int, ...], pool: Pool, bandwidth: float
) -> tuple[Table, list[Target]]:
    """Decode time over batch and context: no cliffs."""
    table = Table(
        "Decode time in µs over batch and context, 32/8 heads, D 128 (measured)", ["batch", *map(str, lengths), "error"]
    )
    found: dict[tuple[int, int], float] = {}
    capacity = pool.flat[0].numel() * 2 * DTYPE.itemsize
    for batch in batches:
        row: list[float | str | int] = [batch]
        error = 0.0
        for length in lengths:
            shape = Shape(batch, length)
            if shape.kv_bytes > capacity:
                row.append("—")
                continue
            case = _Decode(shape, pool)
            found[batch, length] = case.time(case.paged)
            row.append(found[batch, length])
            error = max(error, case.error())
        print(f"sweep, batch {batch}", flush=True)
        table.add([*row, error], error > TOLERANCE[DTYPE])
    per_byte, steps = cliffs(found, batches, lengths)
    return table, [
        Target("sweep: time per byte over a neighbour's, above 20 µs", per_byte, FLAT_WITHIN),
        Target("sweep: time over that of half the work, below", steps, NO_STEP, at_least=True),
    ]


def cliffs(
    found: dict[tuple[int, int], float], batches: tuple[int, ...], lengths: tuple[int, ...]
) -> tuple[float, float]:
    """The worst ratio of times per byte between neighbours above 20 µs, and the deepest fall of the time below."""
    if any(map(math.isnan, found.values())):
        return math.nan, math.nan
    per_byte, steps = 1.0, 1.0
    for (batch, length), spent in found.items():
        after = [(batches[at + 1], length) for at in [batches.index(batch)] if at + 1 < len(batches)] + [
            (batch, lengths[at + 1]) for at in [lengths.index(length)] if at + 1 < len(lengths)
        ]
        for neighbour in after:
            if neighbour not in found:
                continue
            other = found[neighbour]
            if min(spent, other) > FLAT_ABOVE_US:
                work = neighbour[0] * neighbour[1] / (batch * length)
                ratio = other / spent / work
                per_byte = max(per_byte, ratio, 1 / ratio)
            else:
                steps = min(steps, other / spent)
    return per_byte, steps


def prefill_table(cases: tuple[tuple[int, int, int], ...], pool: Pool, products: float) -> tuple[Table, list[Target]]:
    """Prefill of chunks against contexts."""
    columns = ["case", "paged µs", "TFLOP/s", "of product", "SDPA µs", "error"]
    table = Table("Prefill, bf16, 32/8 heads, D 128, block size 16 (measured)", columns)
    for sequences, count, context in cases:
        print(f"prefill {sequences}×{count} after {context}", flush=True)
        shape = Shape(sequences, context + count)
        keys, values = pool.blocks(shape)
        paging = _tables(shape, len(keys), 1, pool.device)[0]
        query = torch.randn(sequences * count, shape.heads, shape.dim, dtype=DTYPE, device=pool.device)
        starts = torch.arange(0, sequences * count + 1, count, dtype=torch.int32, device=pool.device)
        out = torch.empty_like(query)

        def paged(_: int) -> None:
            prefill(query, keys, values, paging, starts, count, out=out)  # noqa: B023

        spent = timing.microseconds(paged, 1, pool.device)
        rows = query.view(sequences, count, shape.heads, shape.dim).transpose(1, 2)
        k, v = (_gather(pool_part, paging, shape).transpose(1, 2) for pool_part in (keys, values))
        mask = None
        if context:
            positions = torch.arange(context + count, device=pool.device)
            mask = positions <= context + torch.arange(count, device=pool.device)[:, None]

        def plain(_: int) -> None:
            scaled_dot_product_attention(rows, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)  # noqa: B023

        other = timing.microseconds(plain, 1, pool.device)
        expected = reference.attention(query[:count], k[0].transpose(0, 1), v[0].transpose(0, 1))
        error = reference.error(out[:count], expected)
        pairs = sequences * (count * context + count * (count + 1) // 2)
        rate = 4 * pairs * shape.heads * shape.dim / spent * 1e6
        name = f"{sequences} chunks of {count:,} after {context:,}"
        table.add([name, spent, rate / 1e12, rate / products, other, error], error > TOLERANCE[DTYPE])
    return table, []


class _Decode:
    """One decode case on rotating data sets, in all the ways it is timed."""

    def __init__(self, shape: Shape, pool: Pool) -> None:
        device = pool.device
        self.shape, self.device = shape, device
        capacity = pool.flat[0].numel() * 2 * DTYPE.itemsize
        self.sets = max(1, min(timing.sets_needed(shape.kv_bytes, device), capacity // shape.kv_bytes))
        self.keys, self.values = pool.blocks(shape)
        self.paging = _tables(shape, len(self.keys), self.sets, device)
        self.dense = pool.sequences(shape, self.sets)
        self.query = torch.randn(shape.sequences, shape.heads, shape.dim, dtype=DTYPE, device=device)
        self.out = torch.empty_like(self.query)
        longest, total = self.paging[0].longest, self.paging[0].total
        self.splits = splits_for(shape.heads, shape.kv_heads, shape.dim, DTYPE, longest, total, self.query.device)
        self.starts = torch.arange(shape.sequences + 1, dtype=torch.int32, device=device)

    def time(self, call: Callable[[int], object]) -> float:
        """Microseconds of a call."""
        return timing.microseconds(call, self.sets, self.device)

    def paged(self, number: int) -> None:
        decode(self.query, self.keys, self.values, self.paging[number], splits=self.splits, out=self.out)

    def contiguous(self, number: int) -> None:
        keys, values = (part[number] for part in self.dense)
        lengths = self.paging[number].lengths
        decode_contiguous(self.query, keys, values, lengths, splits=self.splits, out=self.out)

    def gathered(self, number: int) -> None:
        paging = self.paging[number]
        self._sdpa(_gather(self.keys, paging, self.shape), _gather(self.values, paging, self.shape))

    def plain(self, number: int) -> None:
        self._sdpa(self.dense[0][number], self.dense[1][number])

    def torch_paged(self, number: int) -> object:
        """PyTorch's own paged attention; an error where this version or GPU has none for this block size."""
        from torch.nn.attention.varlen import varlen_attn

        paging = self.paging[number]
        paged = {"seqused_k": paging.lengths, "block_table": paging.tables, "enable_gqa": True}
        return varlen_attn(self.query, self.keys, self.values, self.starts, None, 1, self.shape.length, **paged)

    def torch_varlen(self, number: int) -> object:
        """PyTorch's own attention for sequences of different lengths, on contiguous KV."""
        from torch.nn.attention.varlen import varlen_attn

        keys, values = (part[number].flatten(0, 1) for part in self.dense)
        ends = self.starts * self.shape.length
        return varlen_attn(self.query, keys, values, self.starts, ends, 1, self.shape.length, enable_gqa=True)

    def time_torch(self) -> tuple[str, float]:
        """How PyTorch's own attention runs here (paged, varlen, or not at all), and its time."""
        if self.device == "cuda":
            for name, call in (("paged", self.torch_paged), ("varlen", self.torch_varlen)):
                try:
                    return name, self.time(call)
                except (ImportError, RuntimeError, TypeError, ValueError) as problem:
                    print(f"  torch's {name} attention does not run: {str(problem).splitlines()[0][:120]}")
        return "none", float("nan")

    def error(self) -> float:
        """Of the paged and the contiguous kernel, the larger, on a few sequences."""
        found = []
        for number, call in ((0, self.paged), (self.sets - 1, self.contiguous)):
            call(number)
            few = min(COMPARED, self.shape.sequences)
            expected = []
            for row in range(few):
                if call == self.paged:
                    blocks = self.paging[number].tables[row].long()
                    kv = [part[blocks].flatten(0, 1)[: self.shape.length] for part in (self.keys, self.values)]
                else:
                    kv = [part[number][row] for part in self.dense]
                expected.append(reference.attention(self.query[row : row + 1], kv[0], kv[1]))
            found.append(reference.error(self.out[:few], torch.cat(expected)))
        return max(found)

    def _sdpa(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        query = self.query[:, :, None]
        return scaled_dot_product_attention(query, keys.transpose(1, 2), values.transpose(1, 2), enable_gqa=True)


def _tables(shape: Shape, num_blocks: int, sets: int, device: str) -> list[Paging]:
    """Shuffled tables; no two sequences of any set share a block."""
    width = -(-shape.length // BLOCK_SIZE)
    ids = torch.randperm(num_blocks)[: sets * shape.sequences * width].view(sets, shape.sequences, width)
    lengths = [shape.length] * shape.sequences
    return [Paging.checked(part, lengths, BLOCK_SIZE, num_blocks, device) for part in ids]


def _gather(pool: torch.Tensor, paging: Paging, shape: Shape) -> torch.Tensor:
    """KV of all sequences out of the pool, [S, L, KV, D]."""
    found = pool.index_select(0, paging.tables.flatten())
    return found.view(shape.sequences, -1, shape.kv_heads, shape.dim)[:, : shape.length]
