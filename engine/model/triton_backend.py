"""The `triton` backend: a step's attention by the kernels in `kernels/`, decode steps replayed as CUDA graphs.

    plan ── any chunk longer than 1? ── yes ── TritonStep.of_plan: decoding rows first, then chunks ── forward
                     │ no
                     └─ DecodeGraph of (batch bucket, splits): fill its buffers, replay

A decode step is hundreds of launches of some microseconds each; a CUDA graph starts them all at once, but its shapes
are fixed. So batches are padded to a few sizes. A padded row has slot −1 and length 0: it writes nothing and reads
nothing. Without a GPU the same code runs in Triton's interpreter, and a graph is a call with the same padded buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.errors import ModelError
from engine.model.attention import KVPool
from engine.model.loading import LoadedModel
from engine.plan import StepPlan
from kernels import block_copy
from kernels.arguments import HEAD_DIMS
from kernels.decode import decode, splits_for
from kernels.kv_write import kv_write
from kernels.machine import unavailable
from kernels.paging import Paging, check_slots
from kernels.prefill import prefill
from kernels.tiles import INTERPRETED

BUCKETS = (1, 2, 4, *range(8, 64, 8), *range(64, 257, 16))
"""Batch sizes that graphs are made for; larger batches are rounded up to a multiple of 64."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of splits that graphs are made for, rounded down to."""

FIRST_WIDTH = 256
"""Table entries a graph has room for at first; doubled when that is not enough, which makes new graphs."""

MEMORY_SHARE = 0.85
"""Share of the free GPU memory that a pool takes; activations and graphs need the rest."""

_HEAD = 4  # rows of a graph's buffer before the tables: token ids, positions, slots, lengths


@dataclass
class TritonStep:
    """One step for the kernels: rows 0 … decoding − 1 have one query each, then come the chunks.

    Attributes:
        token_ids, positions: [1, T].
        last: index of the last token of every sequence that samples, in the plan's order.
        slots: [T].
        paging: of the decoding rows, None if there are none.
        chunk_paging, starts, longest_chunk: of the chunks.
        splits: fixed number of splits, None to choose per call.
    """

    pool: KVPool
    token_ids: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    slots: torch.Tensor
    decoding: int
    paging: Paging | None = None
    chunk_paging: Paging | None = None
    starts: torch.Tensor | None = None
    longest_chunk: int = 0
    splits: int | None = None

    @staticmethod
    def of_plan(plan: StepPlan, pool: KVPool) -> TritonStep:
        """Lay out a plan's tokens.

        Raises:
            KernelError: a table or slot that is not the pool's.
        """
        device = pool.keys[0].device
        order = sorted(plan.token_ids, key=lambda seq_id: len(plan.token_ids[seq_id]) > 1)
        counts = [len(plan.token_ids[seq_id]) for seq_id in order]
        lengths = [plan.num_computed_tokens[seq_id] + count for seq_id, count in zip(order, counts, strict=True)]
        decoding = sum(count == 1 for count in counts)
        ends = dict(zip(order, np.cumsum(counts).tolist(), strict=True))
        positions = [p for length, count in zip(lengths, counts, strict=True) for p in range(length - count, length)]
        slots = [slot for seq_id in order for slot in plan.slot_mapping[seq_id]]
        check_slots(np.asarray(slots), pool.num_blocks * pool.block_size)

        def paging(part: slice) -> Paging | None:
            tables = [plan.block_tables[seq_id] for seq_id in order[part]]
            if not tables:
                return None
            return Paging.checked(tables, lengths[part], pool.block_size, pool.num_blocks, device)

        def place(numbers: list[int], dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.tensor(numbers, dtype=dtype, device=device)

        chunks = counts[decoding:]
        return TritonStep(
            pool=pool,
            token_ids=place([token for seq_id in order for token in plan.token_ids[seq_id]])[None],
            positions=place(positions)[None],
            last=place([ends[seq_id] - 1 for seq_id in plan.token_ids if seq_id in plan.sampling]),
            slots=place(slots),
            decoding=decoding,
            paging=paging(slice(0, decoding)),
            chunk_paging=paging(slice(decoding, None)),
            starts=place([0, *np.cumsum(chunks).tolist()], torch.int32) if chunks else None,
            longest_chunk=max(chunks, default=0),
        )

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Write a layer's keys and values [T, KV, D], then attend from query [T, H, D]; returns [T, H, D]."""
        if window is not None or softcap is not None:
            raise ModelError("the triton backend has no sliding windows and no soft caps: use the torch backend")
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        kv_write(key, value, keys, values, self.slots)
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        at = self.decoding
        if self.paging is not None:
            decode(query[:at], keys, values, self.paging, scale=scale, splits=self.splits, out=out[:at])
        if self.chunk_paging is not None and self.starts is not None:
            chunk, to = query[at:], out[at:]
            prefill(chunk, keys, values, self.chunk_paging, self.starts, self.longest_chunk, scale=scale, out=to)
        return out


Forward = Callable[[Any], torch.Tensor]
"""Logits [S, V] of a step."""


class DecodeGraph:
    """A decode step of `size` rows with fixed buffers, captured once and replayed.

    Args:
        forward: computes the logits of a step.
        size: rows, padded ones included.
        width: entries of a table.
        splits: of every context.
        memory: of `torch.cuda.graph_pool_handle`, shared by graphs that do not run at the same time.
    """

    def __init__(self, forward: Forward, pool: KVPool, size: int, width: int, splits: int, memory: Any = None) -> None:
        device = pool.keys[0].device
        self.size, self._num_blocks = size, pool.num_blocks
        on_gpu = device.type == "cuda"
        host = torch.zeros(size * (_HEAD + width), dtype=torch.int32, pin_memory=on_gpu)
        self._host, self._device = host, host.to(device, copy=True)
        numbers = host.numpy()
        self._head = numbers[: _HEAD * size].reshape(_HEAD, size)
        self._tables = numbers[_HEAD * size :].reshape(size, width)
        self._known: list[tuple[int, ...]] = [()] * size
        head = self._device[: _HEAD * size].view(_HEAD, size)
        tables = self._device[_HEAD * size :].view(size, width)
        self._step = TritonStep(
            pool=pool,
            token_ids=head[0][None],
            positions=head[1][None],
            last=torch.arange(size, device=device),
            slots=head[2],
            decoding=size,
            paging=Paging(tables, head[3], pool.block_size, width * pool.block_size, size * width * pool.block_size),
            splits=splits,
        )
        self._forward = forward
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits = torch.empty(0)
        if on_gpu:
            self._capture(memory)

    def run(self, plan: StepPlan) -> torch.Tensor:
        """Logits of the plan's rows, in its order; valid until another graph runs.

        Raises:
            KernelError: a slot that is not the pool's, or one of two rows.
            ModelError: a block that is not the pool's.
        """
        count = len(plan.token_ids)
        self._head[:, count:] = [[0], [0], [-1], [0]]
        for row, (seq_id, (token,)) in enumerate(plan.token_ids.items()):
            position = plan.num_computed_tokens[seq_id]
            self._head[:, row] = token, position, plan.slot_mapping[seq_id][0], position + 1
            self._put(row, plan.block_tables[seq_id][: position // plan.block_size + 1])
        check_slots(self._head[2], self._num_blocks * plan.block_size)
        self._device.copy_(self._host, non_blocking=True)
        if self._graph is None:
            self._logits = self._forward(self._step)
        else:
            self._graph.replay()
        return self._logits[:count]

    def _put(self, row: int, table: tuple[int, ...]) -> None:
        """Write a row's table, only what is new of it: most steps add nothing or one block."""
        known = self._known[row]
        start = len(known) if table[: len(known)] == known else 0
        new = table[start:]
        if new:
            if min(new) < 0 or max(new) >= self._num_blocks:
                raise ModelError(f"a table names blocks {min(new)} to {max(new)}: there are {self._num_blocks}")
            self._tables[row, start : len(table)] = new
        self._known[row] = table

    def _capture(self, memory: Any) -> None:
        """Run once so that everything is compiled, then record. All rows are padded meanwhile and touch nothing."""
        self._head[:] = [[0], [0], [-1], [0]]
        self._device.copy_(self._host)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._forward(self._step)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=memory):
            self._logits = self._forward(self._step)


class TritonBackend:
    """Computes the logits of plans.

    Args:
        loaded: the model, on the GPU (or on the CPU for the interpreter).
        forward: its forward for a step.

    Raises:
        ModelError: the kernels cannot run here, or this model needs what they do not do.
    """

    def __init__(self, loaded: LoadedModel, forward: Forward) -> None:
        reason = unavailable() or unsupported(loaded)
        if reason is not None:
            raise ModelError(f"the triton backend cannot run {loaded.name}: {reason}")
        self._loaded, self._forward = loaded, forward
        self._graphs: dict[tuple[int, int], DecodeGraph] = {}
        self._width = 0
        self._memory = torch.cuda.graph_pool_handle() if loaded.device.type == "cuda" else None

    def logits(self, plan: StepPlan, pool: KVPool) -> torch.Tensor:
        """Logits [S, V] of the S sequences that sample, in float32, in the plan's order."""
        if any(len(ids) > 1 for ids in plan.token_ids.values()):
            return self._forward(TritonStep.of_plan(plan, pool))
        found = self._graph(plan, pool).run(plan)
        sampling = [row for row, seq_id in enumerate(plan.token_ids) if seq_id in plan.sampling]
        return found if len(sampling) == len(found) else found[sampling]

    def copy_blocks(self, pool: KVPool, pairs: tuple[tuple[int, int], ...]) -> None:
        """Copy whole blocks, (source, destination) each, in every layer, as if all at once."""
        if {a for a, _ in pairs} & {b for _, b in pairs}:
            pool.copy_blocks(pairs)  # a block left by one copy and taken by another
            return
        if pairs:
            on_device = torch.tensor(pairs, dtype=torch.int32, device=pool.keys[0].device)
            for tensor in (*pool.keys, *pool.values):
                block_copy.check_pairs(tensor, tensor, pairs)
                block_copy.launch(tensor, tensor, on_device)

    def _graph(self, plan: StepPlan, pool: KVPool) -> DecodeGraph:
        lengths = [computed + 1 for computed in plan.num_computed_tokens.values()]
        need = -(-max(lengths) // pool.block_size)
        if need > self._width:
            self._width = max(self._width or min(FIRST_WIDTH, pool.num_blocks), 1)
            while self._width < need:
                self._width *= 2
            self._graphs.clear()
        size = bucket(len(lengths))
        key = (size, self._splits(pool, max(lengths), sum(lengths)))
        if key not in self._graphs:
            self._graphs[key] = DecodeGraph(self._forward, pool, size, self._width, key[1], self._memory)
        return self._graphs[key]

    def _splits(self, pool: KVPool, longest: int, total: int) -> int:
        """The number of splits for a batch, rounded down to one that graphs are made for."""
        keys = pool.keys[0]
        heads = self._loaded.model.config.get_text_config().num_attention_heads
        kv_heads, dim = keys.shape[2:]
        found = splits_for(heads, kv_heads, dim, keys.dtype, longest, total, keys.device)
        return max(splits for splits in SPLITS if splits <= found)


def bucket(count: int) -> int:
    """The batch size that `count` rows are padded to."""
    found = next((size for size in BUCKETS if size >= count), None)
    return found if found is not None else -(-count // 64) * 64


def unsupported(loaded: LoadedModel) -> str | None:
    """Why the kernels cannot run this model; None if they can."""
    if loaded.device.type != "cuda" and not INTERPRETED.value:
        return "it was loaded on the CPU; load it with device='cuda'"
    for layer in loaded.layers:
        if layer.key_dim != layer.value_dim or layer.key_dim not in HEAD_DIMS:
            dims = f"{layer.key_dim} and {layer.value_dim}"
            return f"its keys and values have {dims} numbers a head; the kernels know equal multiples of 16 up to 256"
        if layer.window is not None:
            return "its layers use a sliding window"
        if layer.softcap is not None:
            return "its scores have a soft cap"
    return None


def blocks_that_fit(loaded: LoadedModel, block_size: int) -> int:
    """Blocks of a pool in the GPU memory that is free now.

    Raises:
        ModelError: not even one fits.
    """
    free, _ = torch.cuda.mem_get_info(loaded.device)
    per_block = KVPool.bytes_needed(loaded.layers, 0, block_size, loaded.dtype.itemsize)
    blocks = int(free * MEMORY_SHARE) // per_block - 1
    if blocks < 1:
        raise ModelError(f"{free / 1e9:,.1f} GB of GPU memory are free: too little for a pool of {loaded.name}")
    return blocks
