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
from functools import cache
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
class Hardware:
    """A data sheet: bytes of memory, bytes per second, dense bfloat16 FLOP per second."""

    name: str
    source: str
    memory_bytes: int
    bytes_per_second: int
    flops_per_second: int


class ModelCard:
    """Parameter counts and sizes of the anchor model.

    Args:
        data: the content of `data/anchor-model.json`.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.name: str = data["name"]
        self.text: dict[str, int] = data["text_config"]
        self.vision: dict[str, int] = data["vision_config"]
        self.mtp_layers: int = data["mtp_layers"]
        self.bytes_per_weight: int = data["bytes_per_weight"]
        self.bytes_per_kv: int = data["bytes_per_kv"]
        self.bytes_per_state: int = data["bytes_per_state"]

    @property
    def attention_layers(self) -> int:
        """Layers with full attention: every `full_attention_interval`-th."""
        return self.text["num_hidden_layers"] // self.text["full_attention_interval"]

    @property
    def linear_layers(self) -> int:
        """Layers with linear attention (Gated DeltaNet)."""
        return self.text["num_hidden_layers"] - self.attention_layers

    @property
    def embedding(self) -> int:
        """Input embedding; the output head, not tied, has as many."""
        return self.text["vocab_size"] * self.text["hidden_size"]

    @property
    def mlp(self) -> int:
        """Gate, up and down projection of one layer."""
        return 3 * matrix(self.text["hidden_size"], self.text["intermediate_size"])

    @property
    def attention(self) -> int:
        """One full-attention block: a gated query projection (twice as wide), K, V, output, two head norms."""
        t = self.text
        heads, head_dim, hidden = t["num_attention_heads"], t["head_dim"], t["hidden_size"]
        queries = matrix(2 * heads * head_dim, hidden)
        keys_values = 2 * matrix(t["num_key_value_heads"] * head_dim, hidden)
        return queries + keys_values + matrix(hidden, heads * head_dim) + 2 * head_dim

    @property
    def linear_attention(self) -> int:
        """One Gated DeltaNet block: q, k, v, gate z, decay and step sizes, a short convolution, output, norm."""
        t = self.text
        hidden, value_heads = t["hidden_size"], t["linear_num_value_heads"]
        values = value_heads * t["linear_value_head_dim"]
        qkv = 2 * t["linear_num_key_heads"] * t["linear_key_head_dim"] + values
        projections = matrix(qkv, hidden) + matrix(values, hidden) + 2 * matrix(value_heads, hidden)
        small = qkv * t["linear_conv_kernel_dim"] + 2 * value_heads + t["linear_value_head_dim"]
        return projections + small + matrix(hidden, values)

    @property
    def decoder(self) -> int:
        """All layers and the last norm, without embedding and head."""
        layers, hidden = self.text["num_hidden_layers"], self.text["hidden_size"]
        blocks = self.attention_layers * self.attention + self.linear_layers * self.linear_attention
        return blocks + layers * (self.mlp + 2 * hidden) + hidden

    @property
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

    @property
    def model_class(self) -> int:
        """Parameters of the transformers class: text, head, vision."""
        return 2 * self.embedding + self.decoder + self.vision_tower

    @property
    def mtp(self) -> int:
        """The multi-token-prediction layer, which the class leaves out: attention, MLP, fusion, norms."""
        hidden = self.text["hidden_size"]
        fusion, norms = matrix(2 * hidden, hidden), 5 * hidden
        return self.mtp_layers * (self.attention + self.mlp + fusion + norms)

    @property
    def weight_bytes(self) -> int:
        """Everything that lies in memory."""
        return (self.model_class + self.mtp) * self.bytes_per_weight

    @property
    def step_weight_bytes(self) -> int:
        """What a decode step reads: decoder and output head, without the input embedding."""
        return (self.decoder + self.embedding) * self.bytes_per_weight

    @property
    def kv_token_bytes(self) -> int:
        """KV of one token; only the full-attention layers have any."""
        t = self.text
        return kv_bytes_per_token(self.attention_layers, t["num_key_value_heads"], t["head_dim"], self.bytes_per_kv)

    def state_bytes(self, bytes_per_state: int | None = None) -> int:
        """State of the linear-attention layers of one request, the same at any length."""
        t = self.text
        one = t["linear_num_value_heads"] * t["linear_key_head_dim"] * t["linear_value_head_dim"]
        return self.linear_layers * one * (bytes_per_state or self.bytes_per_state)

    @property
    def conv_state_bytes(self) -> int:
        """The short convolution's state of one request, which the account leaves out."""
        t = self.text
        channels = (
            2 * t["linear_num_key_heads"] * t["linear_key_head_dim"]
            + t["linear_num_value_heads"] * t["linear_value_head_dim"]
        )
        return self.linear_layers * channels * t["linear_conv_kernel_dim"] * self.bytes_per_weight


@cache
def load() -> tuple[ModelCard, Hardware]:
    """The anchor model and its GPU."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return ModelCard(data), Hardware(**data["hardware"])


@dataclass(frozen=True)
class Figure:
    """One derived figure: its value, its unit and the formula a page can open."""

    value: int | float
    unit: str
    formula: str


def step_seconds(*, num_sequences: int, context_tokens: int, new_tokens: int) -> float:
    """Least time of one step on the anchor, in seconds: the longer of moving the bytes and doing the arithmetic.

    Args:
        num_sequences: sequences in the step; each one's state is read and written.
        context_tokens: KV tokens the step reads, all sequences together.
        new_tokens: tokens computed, 2 FLOP per weight and token.
    """
    card, gpu = load()
    moved = card.step_weight_bytes + context_tokens * card.kv_token_bytes + num_sequences * 2 * card.state_bytes()
    flops = 2 * new_tokens * card.step_weight_bytes / card.bytes_per_weight
    return max(moved / gpu.bytes_per_second, flops / gpu.flops_per_second)


@cache
def account() -> dict[str, Figure]:
    """Every figure of the anchor table, by a stable key."""
    card, gpu = load()
    left = gpu.memory_bytes - card.weight_bytes
    block_bytes = card.kv_token_bytes * BLOCK_SIZE
    blocks_per_request = CONTEXT // BLOCK_SIZE
    request_bytes = CONTEXT * card.kv_token_bytes + card.state_bytes()
    fit = left // request_bytes
    alone = gpu.bytes_per_second / card.step_weight_bytes
    together = fit / step_seconds(num_sequences=fit, context_tokens=fit * CONTEXT, new_tokens=fit)
    step_flops = 2 * card.step_weight_bytes / card.bytes_per_weight
    idle = 1 - step_flops / (gpu.flops_per_second * card.step_weight_bytes / gpu.bytes_per_second)
    llama = kv_bytes_per_token(layers=32, kv_heads=32, head_dim=128, bytes_per_value=2)
    with_conv = left / (request_bytes + card.conv_state_bytes)
    bf16_state = left // (CONTEXT * card.kv_token_bytes + card.state_bytes(2))
    return {
        "class_parameters": Figure(card.model_class, "parameters", "2 × embedding + decoder + vision"),
        "mtp_parameters": Figure(card.mtp, "parameters", "attention + MLP + fusion + norms of one layer"),
        "parameters": Figure(card.model_class + card.mtp, "parameters", "class + MTP layer"),
        "weight_bytes": Figure(card.weight_bytes, "B", "parameters × 2 B"),
        "step_weight_bytes": Figure(card.step_weight_bytes, "B", "(decoder + output head) × 2 B"),
        "memory_bytes": Figure(gpu.memory_bytes, "B", gpu.source),
        "bytes_per_second": Figure(gpu.bytes_per_second, "B/s", gpu.source),
        "left_bytes": Figure(left, "B", "memory − weights"),
        "attention_layers": Figure(card.attention_layers, "layers", "layers ÷ 4"),
        "kv_bytes_per_token": Figure(card.kv_token_bytes, "B", "2 × 16 layers × 4 heads × 256 × 2 B"),
        "block_bytes": Figure(block_bytes, "B", "16 tokens × KV per token"),
        "blocks": Figure(left // block_bytes, "blocks", "⌊left ÷ block⌋"),
        "state_bytes": Figure(card.state_bytes(), "B", "48 layers × 48 heads × 128 × 128 × 4 B"),
        "blocks_per_request": Figure(blocks_per_request, "blocks", "4,096 ÷ 16"),
        "request_kv_bytes": Figure(CONTEXT * card.kv_token_bytes, "B", "4,096 × KV per token"),
        "request_bytes": Figure(request_bytes, "B", "256 blocks + state"),
        "requests": Figure(fit, "requests", "⌊left ÷ one request⌋"),
        "requests_by_blocks_alone": Figure(left // block_bytes // blocks_per_request, "requests", "⌊blocks ÷ 256⌋"),
        "requests_eaten_by_state": Figure(
            left // block_bytes // blocks_per_request - fit, "requests", "by blocks alone − with the state"
        ),
        "requests_with_conv_state": Figure(with_conv, "requests", "left ÷ (one request + convolution state)"),
        "requests_with_bf16_state": Figure(bf16_state, "requests", "⌊left ÷ (KV + state in 2 B)⌋"),
        "tokens_per_second_alone": Figure(alone, "tokens/s", "bandwidth ÷ weights read"),
        "tokens_per_second_together": Figure(
            together, "tokens/s", "58 ÷ ((weights + 58 × (KV + 2 × state)) ÷ bandwidth)"
        ),
        "idle_share_alone": Figure(idle, "", "1 − 2 FLOP per weight ÷ FLOP/s during one weight read"),
        "llama2_7b_kv_bytes_per_token": Figure(llama, "B", "2 × 32 layers × 32 heads × 128 × 2 B"),
        "llama2_7b_kv_gib": Figure(128 * CONTEXT * llama / 2**30, "GiB", "128 requests × 4,096 × 512 KiB"),
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
