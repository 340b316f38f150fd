"""Paged attention on a CPU: the KV pool of a model, and a step's attention through its block tables.

transformers calls `paged_attention` in place of its own; the step reaches it as the keyword `paged`. Every layer
writes the step's keys and values into its own pool by slot mapping, then attends through the tables. Block numbers are
shared by all layers, each layer has its own tensors.

What makes it fast on a CPU: nobody is padded to the longest. Rows that decode are put into groups of similar length,
each prompt chunk attends alone, and the indices and masks of a step are made once for all layers.

What keeps its memory bounded: oneDNN compiles a product for every number of rows it meets and keeps it. So a step has
one of a few numbers of rows (`step_rows`); the rows added write nothing, attend to nothing and are not sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from engine.errors import ModelError
from engine.plan import StepPlan

NAME = "course_paged"
"""The name this attention has among those of transformers."""

SPREAD = 64
"""Rows share a group if the longest exceeds each by at most this many tokens, or by less than its own length."""


@dataclass(frozen=True)
class LayerShape:
    """KV of one token in one layer, heads and head dimensions of keys and values; and how the layer attends.

    Attributes:
        window: latest positions a query sees, None for all.
        softcap: bound of the scores by tanh, None for none.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    softcap: float | None = None

    @property
    def floats(self) -> int:
        """Numbers kept per token."""
        return self.kv_heads * (self.key_dim + self.value_dim)


class KVPool:
    """Keys and values of all layers, [num_blocks + 1, block_size, kv_heads, dim] each; the last block is the guard.

    Attributes:
        num_blocks, block_size: as in the engine's configuration.
        keys, values: one tensor per layer.
    """

    def __init__(
        self, layers: list[LayerShape], num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size

        def make(heads: int, dim: int) -> torch.Tensor:
            return torch.zeros(num_blocks + 1, block_size, heads, dim, dtype=dtype, device=device)

        self.keys = [make(layer.kv_heads, layer.key_dim) for layer in layers]
        self.values = [make(layer.kv_heads, layer.value_dim) for layer in layers]

    def copy_blocks(self, pairs: tuple[tuple[int, int], ...]) -> None:
        """Copy whole blocks, (source, destination) each, in every layer."""
        if pairs:
            sources, destinations = map(list, zip(*pairs, strict=True))
            for tensor in (*self.keys, *self.values):
                tensor[destinations] = tensor[sources]

    @staticmethod
    def bytes_needed(layers: list[LayerShape], num_blocks: int, block_size: int, itemsize: int) -> int:
        """Bytes of a pool, guard block included."""
        return (num_blocks + 1) * block_size * itemsize * sum(layer.floats for layer in layers)


@dataclass
class Rows:
    """Rows of the step that attend together: B sequences with n query tokens each, over at most L positions.

    Attributes:
        at: index of the rows among the step's tokens, [B · n], or a slice.
        count: n.
        lengths: positions each sequence attends over, its new ones included, [B].
        slots: pool slot of every position, [B · L]; a shorter sequence repeats its own first slot, which is masked.
    """

    at: torch.Tensor | slice
    count: int
    lengths: np.ndarray
    slots: torch.Tensor
    _masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """Additive mask [B, 1, n, L]: 0 where a query may look, −inf elsewhere; None if it may look everywhere."""
        if window not in self._masks:
            longest = int(self.lengths.max())
            key = np.arange(longest)
            query = self.lengths[:, None] - self.count + np.arange(self.count)  # [B, n] positions of the queries
            seen = key <= query[:, :, None]
            if window is not None:
                seen &= key > query[:, :, None] - window
            mask = None
            if not seen.all():
                mask = torch.zeros(seen.shape).masked_fill_(torch.from_numpy(~seen), float("-inf"))[:, None]
            self._masks[window] = mask
        return self._masks[window]


def step_rows(count: int) -> int:
    """The number of rows for `count` tokens: four sizes in every doubling, so at most a quarter more."""
    unit = max(1, 1 << (count - 1).bit_length() >> 3)
    return -(-count // unit) * unit


class PagedStep:
    """One step on a pool: where its tokens are written and what each of them attends to.

    Attributes:
        num_tokens: the step's tokens.
        num_samples: sequences that sample.
        token_ids, positions: [1, T] with T = `step_rows(num_tokens)`: the tokens in scheduling order, then zeros.
        last: [S] with S = `step_rows(num_samples)`: index of the last token of every sequence that samples, then zeros.
    """

    def __init__(self, plan: StepPlan, pool: KVPool) -> None:
        self.pool = pool
        size = plan.block_size
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        last: list[int] = []
        decoding: list[tuple[int, int, np.ndarray]] = []  # row, length, slots of all its positions
        self._rows: list[Rows] = []
        offsets = np.arange(size)
        for seq_id, ids in plan.token_ids.items():
            start, count, row = plan.num_computed_tokens[seq_id], len(ids), len(tokens)
            length = start + count
            table = np.asarray(plan.block_tables[seq_id][: -(-length // size)])
            read = (table[:, None] * size + offsets).reshape(-1)[:length]
            tokens.extend(ids)
            positions.extend(range(start, length))
            slots.extend(plan.slot_mapping[seq_id])
            if seq_id in plan.sampling:
                last.append(row + count - 1)
            if count == 1:
                decoding.append((row, length, read))
            else:
                self._rows.append(Rows(slice(row, row + count), count, np.array([length]), torch.from_numpy(read)))
        self.num_tokens, self.num_samples = len(tokens), len(last)
        self.token_ids = _padded(tokens)[None]
        self.positions = _padded(positions)[None]
        self.last = _padded(last)
        self._slots = torch.tensor(slots)
        self._rows.extend(_grouped(decoding))

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
        """Write the step's keys and values of a layer, then attend.

        Args:
            query: [T, H, D]; key, value: [T, KV, D], with H a multiple of KV.
            scale: of the scores, None for 1/√D.
            window: how many latest positions a query sees, its own included; None for all.
            softcap: bound of the scores by tanh, None for none.

        Returns:
            [T, H, D], zeros for the rows beyond the step's tokens.
        """
        keys = self.pool.keys[layer].flatten(0, 1)  # [slots, KV, D]
        values = self.pool.values[layer].flatten(0, 1)
        rows, heads = query.shape[:2]
        tokens = self.num_tokens
        if rows > tokens:
            key, value = key[:tokens], value[:tokens]
        keys.index_copy_(0, self._slots, key)
        values.index_copy_(0, self._slots, value)
        kv_heads, dim = keys.shape[1], values.shape[2]
        whole = len(self._rows) == 1 and rows == tokens
        out = query.new_zeros(0 if whole else rows, heads, dim)
        for part in self._rows:
            batch, count = len(part.lengths), part.count
            read_k = keys.index_select(0, part.slots).view(batch, -1, kv_heads, keys.shape[2]).transpose(1, 2)
            read_v = values.index_select(0, part.slots).view(batch, -1, kv_heads, dim).transpose(1, 2)
            asked = (query if whole else query[part.at]).reshape(batch, count, kv_heads, -1, query.shape[2])
            mask = part.mask(window)
            if count == 1:  # the heads that share keys become the rows of one product
                found = _attention(asked[:, 0], read_k, read_v, mask, scale, softcap)[:, None]
            else:
                asked = asked.permute(0, 2, 3, 1, 4).flatten(1, 2)  # [B, H, n, D]
                found = _attention(asked, read_k, read_v, mask, scale, softcap).transpose(1, 2)
            found = found.reshape(batch * count, heads, dim)
            if whole:
                out = found
            else:
                out[part.at] = found
        return out


class Dense:
    """A step of one sequence without a pool, causal attention over its own tokens: to compare forwards with."""

    def __init__(self, token_ids: torch.Tensor) -> None:
        self.token_ids = token_ids
        self.positions = torch.arange(token_ids.shape[1])[None]
        self.last = torch.arange(token_ids.shape[1])

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, *_: object
    ) -> torch.Tensor:
        """Query [T, H, D], key and value [T, KV, D]; returns [T, H, D]."""
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        found = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
        return found[0].transpose(0, 1)


class Probe:
    """Stands in for a step when a model is loaded: notes what every layer asks of its attention."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        self.layers[layer] = LayerShape(key.shape[1], key.shape[2], value.shape[2], window, softcap)
        return query.new_zeros(query.shape[0], query.shape[1], value.shape[2])


def _padded(numbers: list[int]) -> torch.Tensor:
    """The numbers, then zeros up to `step_rows`."""
    found = torch.zeros(step_rows(len(numbers)), dtype=torch.long)
    found[: len(numbers)] = torch.tensor(numbers, dtype=torch.long)
    return found


def _grouped(decoding: list[tuple[int, int, np.ndarray]]) -> list[Rows]:
    """Decoding rows in groups of similar length, longest first."""
    groups: list[list[tuple[int, int, np.ndarray]]] = []
    for entry in sorted(decoding, key=lambda e: -e[1]):
        if groups and groups[-1][0][1] - entry[1] <= max(SPREAD, entry[1]):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    made = []
    for group in groups:
        group.sort(key=lambda e: e[0])
        longest = max(length for _, length, _ in group)
        slots = np.empty((len(group), longest), dtype=np.int64)
        for i, (_, length, read) in enumerate(group):
            slots[i, :length] = read
            slots[i, length:] = read[0]
        at = torch.tensor([row for row, _, _ in group])
        lengths = np.array([length for _, length, _ in group])
        made.append(Rows(at, 1, lengths, torch.from_numpy(slots.reshape(-1))))
    return made


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
    softcap: float | None,
) -> torch.Tensor:
    """softmax(q kᵀ · scale + mask) v for [B, heads, n, D]; k and v may have fewer heads."""
    if softcap is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap)
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    paged: PagedStep | Dense | Probe | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls for every layer; `paged` is the step.

    Raises:
        ModelError: the model wants something of its attention that is not done here.
    """
    if paged is None:
        raise ModelError("this model does not hand the step on to its attention: it cannot run on a paged pool")
    for name in ("s_aux", "position_bias", "head_mask"):
        if other.get(name) is not None:
            raise ModelError(f"this model's attention uses `{name}`, which paged attention does not support here")
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))  # [1, heads, T, D] as rows [T, heads, D]
    return paged.attend(module.layer_idx, q, k, v, scaling, sliding_window, softcap)[None], None


def _no_mask(*_: Any, **__: Any) -> None:
    """Masks are the step's own."""


def register() -> None:
    """Make `paged_attention` known to transformers under `NAME`."""
    attention: Callable[..., Any] = paged_attention
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, _no_mask)
