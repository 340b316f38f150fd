"""Cases that try the kernels where they can go wrong, each compared with the float64 reference.

Pools are hostile. Everything a sequence does not own is NaN, block 0 belongs to nobody (a masked read that falls back
to block 0 meets NaN), tables are shuffled, and table entries behind the last block point far outside the pool. So a
read of the wrong place shows as NaN or ends the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels import reference
from kernels.block_copy import block_copy
from kernels.contiguous import decode_contiguous
from kernels.decode import decode
from kernels.kv_write import kv_write
from kernels.paging import Paging, check_slots
from kernels.prefill import prefill

TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Largest error, relative in norm. The interpreter cuts fp32 to bf16 instead of rounding, which doubles its error."""

STALE = 2**30
"""What a table holds behind its last block."""

LENGTHS = (1, 15, 16, 17, 31, 300)
SHORT = (0, 1, 33, 70)


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        kernel: decode, contiguous, prefill, kv_write or block_copy.
        lengths: positions of each sequence.
        chunks: prefill: how many of them are queries.
        splits: decode: into how many parts contexts are cut.
        scale: of the scores, None for 1/√head_dim.
    """

    kernel: str
    dtype: torch.dtype
    head_dim: int = 64
    heads: int = 8
    kv_heads: int = 2
    block_size: int = 16
    lengths: tuple[int, ...] = LENGTHS
    chunks: tuple[int, ...] = ()
    splits: int = 1
    scale: float | None = None

    def __str__(self) -> str:
        name = f"{self.kernel}-{str(self.dtype).removeprefix('torch.')}-{self.heads}/{self.kv_heads}x{self.head_dim}"
        return f"{name}-b{self.block_size}" + (f"-splits{self.splits}" if self.splits > 1 else "")


@dataclass
class Context:
    """Sequences in a hostile pool: their KV as it was handed in, and where it lies."""

    key: torch.Tensor
    value: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    tables: list[list[int]]
    slots: list[int]
    unused: list[int]

    def padded_tables(self) -> torch.Tensor:
        """[S, W + 1], stale behind the last block."""
        width = max(len(table) for table in self.tables) + 1
        return torch.tensor([table + [STALE] * (width - len(table)) for table in self.tables])


def cases(device: str) -> Iterator[Case]:
    """All cases; a GPU runs more of them, since it is faster than the interpreter."""
    fp32, fp16, bf16 = TOLERANCE
    yield Case("decode", fp32, scale=0.3)
    yield Case("decode", fp32, splits=3, scale=0.3, lengths=(1, 16, 300, 407))
    for dtype in (fp16, bf16):
        yield Case("decode", dtype)
        yield Case("decode", dtype, splits=3)
        yield Case("contiguous", dtype, splits=2)
        yield Case("prefill", dtype, chunks=(1, 15, 5, 17, 2, 70))
    yield Case("prefill", fp32, lengths=(1, 15, 17, 70), chunks=(1, 3, 16, 20), scale=0.3)
    yield Case("contiguous", fp32)
    for dim in (16, 80, 96, 112, 128, 256):
        few = dim > 128
        yield Case("decode", bf16, dim, lengths=SHORT)
        yield Case("prefill", bf16, dim, 4, 4 if few else 2, lengths=SHORT[1:], chunks=(1, 20, 5))
    for heads, kv_heads in ((4, 4), (7, 1), (14, 2), (71, 1)):
        yield Case("decode", fp32, 32, heads, kv_heads, lengths=(33, 0, 140), splits=2)
        yield Case("prefill", fp32, 32, heads, kv_heads, lengths=(1, 33), chunks=(1, 3))
    for size in (1, 3, 32, 100, 256):
        yield Case("decode", fp32, 32, block_size=size, lengths=(*SHORT, size, size + 1))
        yield Case("prefill", fp32, 32, block_size=size, lengths=SHORT[1:], chunks=(1, 7, 2))
    for dtype, dim, size in ((fp32, 64, 16), (fp16, 80, 5), (bf16, 128, 16), (bf16, 16, 1)):
        yield Case("kv_write", dtype, dim, block_size=size, lengths=SHORT)
        yield Case("block_copy", dtype, dim, block_size=size, lengths=SHORT)
    if device == "cuda":
        for dtype in TOLERANCE:
            for dim in range(16, 257, 16) if dtype == bf16 else (48, 144, 208):
                yield Case("decode", dtype, dim, 32, 8, lengths=(*LENGTHS, 4096), splits=8)
                yield Case("prefill", dtype, dim, 32, 8, chunks=(1, 15, 5, 17, 2, 300))


def run(case: Case, device: str = "cpu") -> float:
    """Run a case; returns the error relative to the reference, inf for NaN or a write to the wrong place."""
    torch.manual_seed(0)
    context = make_context(case, device)
    kinds = {
        "decode": _decode,
        "contiguous": _contiguous,
        "prefill": _prefill,
        "kv_write": _kv_write,
        "block_copy": _block_copy,
    }
    with _poisoned_memory():
        return kinds[case.kernel](case, context)


def make_context(case: Case, device: str = "cpu") -> Context:
    """Sequences of a case in a pool where everything else is NaN; written without the kernel under test."""
    size, shape = case.block_size, (case.kv_heads, case.head_dim)
    counts = [-(-length // size) for length in case.lengths]
    ids = (torch.randperm(sum(counts) + 6) + 1).tolist()  # block 0 is nobody's
    tables = [[ids.pop() for _ in range(count)] for count in counts]
    slots = [
        table[p // size] * size + p % size for table, n in zip(tables, case.lengths, strict=True) for p in range(n)
    ]
    key, value = (torch.randn(len(slots), *shape).to(case.dtype).to(device) for _ in range(2))
    keys, values = (
        torch.full((sum(counts) + 7, size, *shape), float("nan"), dtype=case.dtype, device=device) for _ in range(2)
    )
    keys.flatten(0, 1)[slots] = key
    values.flatten(0, 1)[slots] = value
    return Context(key, value, keys, values, tables, slots, ids)


@contextlib.contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Memory that is taken and not filled is NaN: what a kernel leaves unwritten and reads all the same is seen."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _paging(case: Case, context: Context) -> Paging:
    return Paging.checked(
        context.padded_tables(), case.lengths, case.block_size, len(context.keys), context.keys.device
    )


def _query(case: Case, context: Context, count: int) -> torch.Tensor:
    return torch.randn(count, case.heads, case.head_dim).to(case.dtype).to(context.keys.device)


def _expected(case: Case, context: Context, query: torch.Tensor, chunks: tuple[int, ...]) -> torch.Tensor:
    rows = query.split(list(chunks))
    owned = zip(context.tables, case.lengths, rows, strict=True)
    return torch.cat(
        [
            reference.attention(
                row,
                reference.gather(context.keys, table, length),
                reference.gather(context.values, table, length),
                case.scale,
            )
            for table, length, row in owned
        ]
    )


def _decode(case: Case, context: Context) -> float:
    query = _query(case, context, len(case.lengths))
    out = torch.full_like(query, float("nan"))
    decode(query, context.keys, context.values, _paging(case, context), scale=case.scale, splits=case.splits, out=out)
    return reference.error(out, _expected(case, context, query, (1,) * len(query)))


def _contiguous(case: Case, context: Context) -> float:
    """The decode kernel without a table, on the same KV laid out one sequence behind the other, NaN after its end."""
    query = _query(case, context, len(case.lengths))
    longest = max(case.lengths)
    shape = (len(query), longest, case.kv_heads, case.head_dim)
    keys, values = (torch.full(shape, float("nan"), dtype=case.dtype, device=query.device) for _ in range(2))
    parts = zip(context.key.split(list(case.lengths)), context.value.split(list(case.lengths)), strict=True)
    for row, (key, value) in enumerate(parts):
        keys[row, : len(key)], values[row, : len(value)] = key, value
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device=query.device)
    found = decode_contiguous(query, keys, values, lengths, scale=case.scale, splits=case.splits)
    return reference.error(found, _expected(case, context, query, (1,) * len(query)))


def _prefill(case: Case, context: Context) -> float:
    query = _query(case, context, sum(case.chunks))
    starts = torch.tensor([0, *case.chunks]).cumsum(0).to(device=query.device, dtype=torch.int32)
    out = torch.full_like(query, float("nan"))
    paging = _paging(case, context)
    prefill(query, context.keys, context.values, paging, starts, max(case.chunks), scale=case.scale, out=out)
    return reference.error(out, _expected(case, context, query, case.chunks))


def _kv_write(case: Case, context: Context) -> float:
    """Tokens in shuffled order and padded rows among them, into a pool of NaN; every other slot must stay as it was."""
    order = torch.randperm(len(context.slots))
    slots = torch.tensor(context.slots)[order]
    pad = len(slots) // 2
    slots = torch.cat([slots[:pad], torch.tensor([-1, -1]), slots[pad:], torch.tensor([-1])])
    check_slots(slots, context.keys.shape[0] * context.keys.shape[1])
    shape, dtype, device = context.keys.shape, context.keys.dtype, context.keys.device
    guarded = [torch.full((shape[0] + 2, *shape[1:]), float("nan"), dtype=dtype, device=device) for _ in range(2)]
    keys, values = guarded[0][1:-1], guarded[1][1:-1]
    order = order.to(keys.device)
    written = []
    for source in (context.key, context.value):
        rows, rest = source[order][:pad], source[order][pad:]
        sevens = torch.full_like(source[:1], 7.0)
        written.append(torch.cat([rows, sevens, sevens, rest, sevens]))
    kv_write(written[0], written[1], keys, values, slots.to(keys.device))
    outside = all(bool(pool[[0, -1]].isnan().all()) for pool in guarded)
    return 0.0 if outside and _same(keys, context.keys) and _same(values, context.values) else float("inf")


def _block_copy(case: Case, context: Context) -> float:
    """A copy inside the pool, then out to another pool and back, as for a swap."""
    source = [table[-1] for table in context.tables if table]
    pairs = list(zip(source, context.unused, strict=False))
    host = torch.full_like(context.keys, float("nan"))
    for pool in (context.keys, context.values):
        expected = pool.clone()
        expected[[b for _, b in pairs]] = pool[source]
        block_copy(pool, pool, pairs)
        if not _same(pool, expected):
            return float("inf")
        out = [(block, number) for number, block in enumerate(source)]
        block_copy(pool, host, out)
        pool[source] = float("nan")
        block_copy(host, pool, [(b, a) for a, b in out])
        if not _same(pool, expected):
            return float("inf")
    return 0.0


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit for bit, NaN equal to NaN."""
    kind = torch.int32 if a.dtype == torch.float32 else torch.int16
    return torch.equal(a.view(kind), b.view(kind))


def far_apart(device: str = "cpu") -> float:
    """Blocks 2²⁸ elements apart, so that offsets pass 2³¹; almost all of the memory is only promised, never touched.

    Returns the error of writing into and decoding from blocks 11, 3 and 9.
    """
    torch.manual_seed(0)
    case = Case("decode", torch.float16, 64, 2, 1, lengths=(40,))
    table, stride = [11, 3, 9], 2**28
    pool = [
        torch.empty(12 * stride, dtype=case.dtype, device=device).as_strided((12, 16, 1, 64), (stride, 64, 64, 1))
        for _ in range(2)
    ]
    key, value = (torch.randn(40, 1, 64).to(case.dtype).to(device) for _ in range(2))
    slots = [table[p // 16] * 16 + p % 16 for p in range(40)]
    kv_write(key, value, pool[0], pool[1], torch.tensor(slots, device=device))
    query = torch.randn(1, 2, 64).to(case.dtype).to(device)
    paging = Paging.checked([table], [40], 16, 12, device)
    expected = reference.attention(query, key, value)
    decoded = reference.error(decode(query, pool[0], pool[1], paging), expected)
    starts = torch.tensor([0, 1], dtype=torch.int32, device=device)
    chunk = prefill(query, pool[0], pool[1], paging, starts, 1)
    block_copy(pool[0], pool[0], [(11, 8)])
    copied = bool(torch.equal(pool[0][8], pool[0][11]))
    return max(decoded, reference.error(chunk, expected)) if copied else float("inf")


def neighbours(dtype: torch.dtype, device: str = "cpu", chunk: int = 1) -> bool:
    """True if sequence 0's result keeps every bit when the contents of its neighbours change, shapes being the same."""
    torch.manual_seed(0)
    lengths = (37, 50, 23)
    case = Case("decode", dtype, lengths=lengths)
    context = make_context(case, device)
    paging = _paging(case, context)
    query = _query(case, context, chunk * 3)
    starts = torch.arange(0, 3 * chunk + 1, chunk, dtype=torch.int32, device=device)

    def first() -> torch.Tensor:
        if chunk == 1:
            return decode(query, context.keys, context.values, paging, splits=2)[0].clone()
        return prefill(query, context.keys, context.values, paging, starts, chunk)[:chunk].clone()

    before = first()
    for table in context.tables[1:]:
        for pool in (context.keys, context.values):
            pool[table] = torch.randn_like(pool[table]) * 3
    query[chunk:] += 1
    return bool(before.isfinite().all()) and _same(before, first())
