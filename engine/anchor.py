"""The anchor: what one real model needs on one real GPU, every figure by a closed form in plain Python.

`data/anchor-model.json` holds the architecture and the data sheet, nothing else; all results are derived here and are
roofline bounds, not measurements. A test builds the same model with transformers on the meta device and compares.

    weights   counted matrix by matrix       KV      2 × attention layers × KV heads × head_dim × bytes, per token
    state     one matrix per linear-attention head and layer, fixed in size, not paged
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data" / "anchor-model.json"
BLOCK_SIZE = 16
CONTEXT = 4096
"""Tokens per request in the anchor's account."""


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Bytes of keys and values of one token: 2 × layers × KV heads × head_dim × bytes per value."""
    return 2 * layers * kv_heads * head_dim * bytes_per_value


def matrix(rows: int, columns: int, *, bias: bool = False) -> int:
    """Parameters of a linear layer."""
    return rows * columns + (rows if bias else 0)


@dataclass(frozen=True)
class KVLayout:
    """The four numbers that decide how much KV a token needs, for any model.

    Args:
        layers: layers with full attention; others keep no KV.
        kv_heads: key and value heads of one layer (fewer than query heads under GQA).
        head_dim: values per head.
        bytes_per_value: 2 for float16 and bfloat16.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_value: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token."""
        return kv_bytes_per_token(self.layers, self.kv_heads, self.head_dim, self.bytes_per_value)

    @property
    def formula(self) -> str:
        """How `bytes_per_token` comes about, in numbers."""
        return f"2 × {self.layers} layers × {self.kv_heads} heads × {self.head_dim} × {self.bytes_per_value} B"


LLAMA2_7B = KVLayout("Llama-2-7B-like, float16", layers=32, kv_heads=32, head_dim=128, bytes_per_value=2)
"""No grouped heads and attention in every layer: what a token cost before models began to save KV."""


@dataclass(frozen=True)
class Hardware:
    """A data sheet: bytes of memory, bytes per second, dense bfloat16 FLOP per second."""

    name: str
    source: str
    memory_bytes: int
    bytes_per_second: int
    flops_per_second: int


@dataclass(frozen=True)
class ModelCard:
    """Parameter counts and sizes of a hybrid model (full attention every few layers, Gated DeltaNet between).

    The counts follow the modules of transformers' `modeling_qwen3_5.py`, matrix by matrix. `text` and `vision` are the
    two parts of its configuration, under its own names.
    """

    name: str
    text: dict[str, int]
    vision: dict[str, int]
    mtp_layers: int
    bytes_per_weight: int
    bytes_per_kv: int
    bytes_per_state: int

    @cached_property
    def attention_layers(self) -> int:
        """Layers with full attention: every `full_attention_interval`-th."""
        return self.text["num_hidden_layers"] // self.text["full_attention_interval"]

    @cached_property
    def linear_layers(self) -> int:
        """Layers with linear attention (Gated DeltaNet)."""
        return self.text["num_hidden_layers"] - self.attention_layers

    @cached_property
    def embedding(self) -> int:
        """Input embedding; the output head, not tied, has as many."""
        return self.text["vocab_size"] * self.text["hidden_size"]

    @cached_property
    def mlp(self) -> int:
        """Gate, up and down projection of one layer."""
        return 3 * matrix(self.text["hidden_size"], self.text["intermediate_size"])

    @cached_property
    def attention(self) -> int:
        """One full-attention block: a gated query projection (twice as wide), K, V, output, two head norms."""
        t = self.text
        heads, head_dim, hidden = t["num_attention_heads"], t["head_dim"], t["hidden_size"]
        queries = matrix(2 * heads * head_dim, hidden)
        keys_values = 2 * matrix(t["num_key_value_heads"] * head_dim, hidden)
        return queries + keys_values + matrix(hidden, heads * head_dim) + 2 * head_dim

    @cached_property
    def qkv_channels(self) -> int:
        """Channels of queries, keys and values together in one Gated DeltaNet block; the convolution runs over them."""
        t = self.text
        queries_keys = 2 * t["linear_num_key_heads"] * t["linear_key_head_dim"]
        return queries_keys + t["linear_num_value_heads"] * t["linear_value_head_dim"]

    @cached_property
    def linear_attention(self) -> int:
        """One Gated DeltaNet block: q, k, v, gate z, decay and step sizes, a short convolution, output, norm."""
        t = self.text
        hidden, value_heads, qkv = t["hidden_size"], t["linear_num_value_heads"], self.qkv_channels
        values = value_heads * t["linear_value_head_dim"]
        projections = matrix(qkv, hidden) + matrix(values, hidden) + 2 * matrix(value_heads, hidden)
        small = qkv * t["linear_conv_kernel_dim"] + 2 * value_heads + t["linear_value_head_dim"]
        return projections + small + matrix(hidden, values)

    @cached_property
    def decoder(self) -> int:
        """All layers and the last norm, without embedding and head."""
        layers, hidden = self.text["num_hidden_layers"], self.text["hidden_size"]
        blocks = self.attention_layers * self.attention + self.linear_layers * self.linear_attention
        return blocks + layers * (self.mlp + 2 * hidden) + hidden

    @cached_property
    def vision_tower(self) -> int:
        """The image encoder: patch embedding (3 channels, 2 frames), positions, blocks, merger of 2 × 2 patches."""
        v = self.vision
        hidden, wide = v["hidden_size"], v["intermediate_size"]
        patches = matrix(hidden, 3 * 2 * v["patch_size"] ** 2, bias=True) + v["num_position_embeddings"] * hidden
        attention = matrix(3 * hidden, hidden, bias=True) + matrix(hidden, hidden, bias=True)
        mlp = matrix(wide, hidden, bias=True) + matrix(hidden, wide, bias=True)
        block = attention + mlp + 4 * hidden
        merged = 4 * hidden
        merger = 2 * hidden + matrix(merged, merged, bias=True) + matrix(v["out_hidden_size"], merged, bias=True)
        return patches + v["depth"] * block + merger

    @cached_property
    def model_class(self) -> int:
        """Parameters of the transformers class: text, head, vision."""
        return 2 * self.embedding + self.decoder + self.vision_tower

    @cached_property
    def mtp(self) -> int:
        """The multi-token-prediction layer, which the class leaves out: attention, MLP, fusion, norms."""
        hidden = self.text["hidden_size"]
        fusion, norms = matrix(2 * hidden, hidden), 5 * hidden
        return self.mtp_layers * (self.attention + self.mlp + fusion + norms)

    @cached_property
    def weight_bytes(self) -> int:
        """Everything that lies in memory: all parameters × bytes per weight."""
        return (self.model_class + self.mtp) * self.bytes_per_weight

    @cached_property
    def step_weight_bytes(self) -> int:
        """What a decode step reads: decoder and output head, without the input embedding."""
        return (self.decoder + self.embedding) * self.bytes_per_weight

    @cached_property
    def kv_layout(self) -> KVLayout:
        """What the KV calculator needs to know: only the full-attention layers keep any."""
        t = self.text
        heads, head_dim = t["num_key_value_heads"], t["head_dim"]
        return KVLayout(self.name, self.attention_layers, heads, head_dim, self.bytes_per_kv)

    @cached_property
    def kv_token_bytes(self) -> int:
        """KV of one token."""
        return self.kv_layout.bytes_per_token

    def state_bytes(self, bytes_per_state: int | None = None) -> int:
        """State of the linear-attention layers of one request, the same at any length."""
        t = self.text
        one = t["linear_num_value_heads"] * t["linear_key_head_dim"] * t["linear_value_head_dim"]
        return self.linear_layers * one * (bytes_per_state or self.bytes_per_state)

    @cached_property
    def conv_state_bytes(self) -> int:
        """The short convolution's state of one request (its last `kernel` inputs), which the account leaves out."""
        return self.linear_layers * self.qkv_channels * self.text["linear_conv_kernel_dim"] * self.bytes_per_weight


@cache
def load() -> tuple[ModelCard, Hardware]:
    """The anchor model and its GPU."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    card = ModelCard(
        name=data["name"],
        text=data["text_config"],
        vision=data["vision_config"],
        mtp_layers=data["mtp_layers"],
        bytes_per_weight=data["bytes_per_weight"],
        bytes_per_kv=data["bytes_per_kv"],
        bytes_per_state=data["bytes_per_state"],
    )
    return card, Hardware(**data["hardware"])


@dataclass(frozen=True)
class Figure:
    """One derived figure: its value, its unit and the formula a page can open."""

    value: int | float
    unit: str
    formula: str


def step_seconds(*, num_sequences: int, context_tokens: int, new_tokens: int) -> float:
    """Least time of one step on the anchor, in seconds: the longer of moving the bytes and doing the arithmetic.

    A roofline (Williams, Waterman and Patterson, CACM 2009). Bytes: the weights once, every KV token once, each state
    read and written. Arithmetic: 2 FLOP per weight and token, the output head for one token of each sequence only;
    the products inside attention are left out, so with very long prompts the true time is longer still.

    Args:
        num_sequences: sequences in the step.
        context_tokens: KV tokens the step reads, all sequences together.
        new_tokens: tokens computed, all sequences together.
    """
    card, gpu = load()
    moved = card.step_weight_bytes + context_tokens * card.kv_token_bytes + num_sequences * 2 * card.state_bytes()
    flops = 2 * (new_tokens * card.decoder + num_sequences * card.embedding)
    return max(moved / gpu.bytes_per_second, flops / gpu.flops_per_second)


@cache
def account() -> dict[str, Figure]:
    """Every figure of the anchor table, by a stable key. Formulas are put together from the numbers they name."""
    return {**_weights(), **_memory(), **_speed(), **_llama()}


def _weights() -> dict[str, Figure]:
    """What there is to store and to read."""
    card, gpu = load()
    size = card.bytes_per_weight
    return {
        "embedding_parameters": Figure(
            card.embedding, "parameters", f"{card.text['vocab_size']:,} × {card.text['hidden_size']:,}"
        ),
        "decoder_parameters": Figure(
            card.decoder,
            "parameters",
            f"{card.attention_layers} full-attention and {card.linear_layers} linear-attention layers, last norm",
        ),
        "vision_parameters": Figure(
            card.vision_tower, "parameters", f"patches + {card.vision['depth']} blocks + merger"
        ),
        "class_parameters": Figure(card.model_class, "parameters", "embedding + decoder + output head + vision"),
        "mtp_parameters": Figure(card.mtp, "parameters", "attention + MLP + fusion + norms of one layer"),
        "parameters": Figure(card.model_class + card.mtp, "parameters", "class + MTP layer"),
        "weight_bytes": Figure(card.weight_bytes, "B", f"parameters × {size} B"),
        "step_weight_bytes": Figure(card.step_weight_bytes, "B", f"(decoder + output head) × {size} B"),
        "memory_bytes": Figure(gpu.memory_bytes, "B", gpu.source),
        "bytes_per_second": Figure(gpu.bytes_per_second, "B/s", gpu.source),
        "flops_per_second": Figure(gpu.flops_per_second, "FLOP/s", gpu.source),
    }


def _memory() -> dict[str, Figure]:
    """What is left, and how many requests it holds."""
    card, gpu = load()
    left = gpu.memory_bytes - card.weight_bytes
    layers, interval = card.text["num_hidden_layers"], card.text["full_attention_interval"]
    block = BLOCK_SIZE * card.kv_token_bytes
    blocks, per_request = left // block, CONTEXT // BLOCK_SIZE
    kv, state = CONTEXT * card.kv_token_bytes, card.state_bytes()
    fit = left // (kv + state)
    value_heads = card.text["linear_num_value_heads"]
    sides = f"{card.text['linear_key_head_dim']} × {card.text['linear_value_head_dim']}"
    state_formula = f"{card.linear_layers} layers × {value_heads} heads × {sides} × {card.bytes_per_state} B"
    conv_formula = (
        f"{card.linear_layers} layers × {card.qkv_channels:,} channels × "
        f"{card.text['linear_conv_kernel_dim']} × {card.bytes_per_weight} B"
    )
    small_state = card.state_bytes(2)
    return {
        "left_bytes": Figure(left, "B", "memory − weights"),
        "attention_layers": Figure(card.attention_layers, "layers", f"{layers} layers ÷ {interval}"),
        "linear_layers": Figure(card.linear_layers, "layers", f"{layers} layers − {card.attention_layers}"),
        "kv_bytes_per_token": Figure(card.kv_token_bytes, "B", card.kv_layout.formula),
        "block_bytes": Figure(block, "B", f"{BLOCK_SIZE} tokens × KV per token"),
        "blocks": Figure(blocks, "blocks", "⌊left ÷ block⌋"),
        "state_bytes": Figure(state, "B", state_formula),
        "conv_state_bytes": Figure(card.conv_state_bytes, "B", conv_formula),
        "context_tokens": Figure(CONTEXT, "tokens", "the length the account is drawn up for"),
        "blocks_per_request": Figure(per_request, "blocks", f"{CONTEXT:,} ÷ {BLOCK_SIZE}"),
        "request_kv_bytes": Figure(kv, "B", f"{CONTEXT:,} × KV per token"),
        "request_bytes": Figure(kv + state, "B", f"{per_request} blocks + state"),
        "requests": Figure(fit, "requests", "⌊left ÷ one request⌋, without the convolution state"),
        "requests_by_blocks_alone": Figure(blocks // per_request, "requests", f"⌊{blocks:,} blocks ÷ {per_request}⌋"),
        "requests_eaten_by_state": Figure(
            blocks // per_request - fit, "requests", f"{blocks // per_request} by blocks alone − {fit} with the state"
        ),
        "requests_with_conv_state": Figure(
            left / (kv + state + card.conv_state_bytes), "requests", "left ÷ (one request + convolution state)"
        ),
        "requests_with_bf16_state": Figure(
            left // (kv + small_state), "requests", "⌊left ÷ (KV + state in 2 B)⌋, without the convolution state"
        ),
    }


def _speed() -> dict[str, Figure]:
    """How fast at most: one request alone, and as many as fit."""
    card, gpu = load()
    fit = int(_memory()["requests"].value)
    alone = gpu.bytes_per_second / card.step_weight_bytes
    together = step_seconds(num_sequences=fit, context_tokens=fit * CONTEXT, new_tokens=fit)
    flops = 2 * (card.decoder + card.embedding)
    busy = flops * alone / gpu.flops_per_second
    return {
        "flops_per_token": Figure(flops, "FLOP", "2 × (decoder + output head)"),
        "tokens_per_second_alone": Figure(alone, "tokens/s", "bandwidth ÷ weights read"),
        "tokens_per_second_together": Figure(
            fit / together, "tokens/s", f"{fit} ÷ ((weights read + {fit} × (KV + 2 × state)) ÷ bandwidth)"
        ),
        "idle_share_alone": Figure(1 - busy, "", "1 − FLOP per token × tokens/s alone ÷ FLOP/s"),
    }


def _llama() -> dict[str, Figure]:
    """The same calculator on a layout without any saving of KV."""
    per_token, requests = LLAMA2_7B.bytes_per_token, 128
    return {
        "llama2_7b_kv_bytes_per_token": Figure(per_token, "B", LLAMA2_7B.formula),
        "llama2_7b_kv_gib": Figure(
            requests * CONTEXT * per_token / 2**30,
            "GiB",
            f"{requests} requests × {CONTEXT:,} × {per_token // 1024} KiB",
        ),
    }


def figures() -> dict[str, int | float]:
    """The values of the account, by key."""
    return {key: figure.value for key, figure in account().items()}


def add_parser(commands: Any) -> None:
    """Add `anchor` to the command line."""
    parser = commands.add_parser("anchor", help="every figure of the anchor model on its GPU, derived")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The command `anchor`."""
    if args.json:
        print(json.dumps(figures()))
        return 0
    card, gpu = load()
    print(f"{card.name} on {gpu.name}: roofline bounds, derived")
    width = max(map(len, account()))
    for key, figure in account().items():
        value = f"{figure.value:,}" if isinstance(figure.value, int) else f"{figure.value:,.4f}"
        print(f"{key:<{width}}  {value:>20} {figure.unit:<11} {figure.formula}")
    return 0
