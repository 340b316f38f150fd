"""The KV calculator: what a layout's keys and values need, with presets, and the anchor's account of one GPU.

The closed forms are those of `engine.anchor`; here they are only asked and written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from app.lanes import SpecError
from engine import anchor
from lessons.figures import show

TINY = Path(__file__).resolve().parent.parent / "data" / "tiny-model" / "config.json"
FIELDS = {
    "layers": (1, 1000),
    "kv_heads": (1, 1000),
    "head_dim": (1, 10_000),
    "bytes": (1, 8),
    "tokens": (1, 10_000_000),
    "requests": (1, 1_000_000),
}
"""What is typed in, with the smallest and the largest value: layers that keep KV, heads and values per head of K and V,
bytes per value, tokens per request, requests."""
CPU_BYTES = 4
"""The embedded model runs in float32."""


@cache
def presets() -> dict[str, dict[str, int]]:
    """Values by preset: the anchor, a Llama-2-7B-like layout, the model that comes with the course."""
    card, _ = anchor.load()
    config = json.loads(TINY.read_text(encoding="utf-8"))
    tiny = anchor.KVLayout(
        "tiny", config["num_hidden_layers"], config["num_key_value_heads"], config["head_dim"], CPU_BYTES
    )
    fit = int(anchor.figures()["requests"])
    return {
        "anchor": _values(card.kv_layout, anchor.CONTEXT, fit),
        "llama": _values(anchor.LLAMA2_7B, anchor.CONTEXT, 128),
        "tiny": _values(tiny, config["max_position_embeddings"], 8),
    }


def _values(layout: anchor.KVLayout, tokens: int, requests: int) -> dict[str, int]:
    made = (layout.layers, layout.kv_heads, layout.head_dim, layout.bytes_per_value, tokens, requests)
    return dict(zip(FIELDS, made, strict=True))


def calculate(params: Mapping[str, str]) -> dict[str, Any]:
    """KV of a token, a request and all of them, in bytes and as written on the page.

    Raises:
        SpecError: a value is missing, no whole number, or out of range; the detail names the field.
    """
    values = {name: _whole(params, name, low, high) for name, (low, high) in FIELDS.items()}
    layers, kv_heads, head_dim, size, tokens, requests = values.values()
    layout = anchor.KVLayout("", layers, kv_heads, head_dim, size)
    request = tokens * layout.bytes_per_token
    sizes = {"token": layout.bytes_per_token, "request": request, "all": requests * request}
    return {"values": values, "bytes": sizes, "shown": {name: binary(value) for name, value in sizes.items()}}


def binary(size: int) -> str:
    """Bytes in the largest power of 1,024 that leaves a number of at least 1, with one digit where it is not whole."""
    for unit, form in ((2**40, "tib1"), (2**30, "gib1"), (2**20, "mib"), (2**10, "kib")):
        if size >= unit:
            digits = "1" if form.endswith("1") or size % unit else "0"
            return show(size, form.rstrip("1") + digits)
    return f"{size}\u00a0B"


@cache
def account() -> dict[str, Any]:
    """The anchor's account: what lies in the GPU's memory, and how many requests fit, by blocks alone and in truth."""
    figures = anchor.figures()
    names = (
        *("memory_bytes", "weight_bytes", "left_bytes", "state_bytes", "request_kv_bytes", "request_bytes"),
        *("blocks", "blocks_per_request", "requests", "requests_by_blocks_alone", "requests_eaten_by_state"),
        *("requests_with_bf16_state", "context_tokens"),
    )
    shown = {name: show(figures[name], "gb2" if figures[name] > 1e9 else "mb0") for name in names if "bytes" in name}
    return {"values": {name: figures[name] for name in names}, "shown": shown}


def _whole(params: Mapping[str, str], name: str, low: int, high: int) -> int:
    word = params.get(name, "").strip()
    if not re.fullmatch(r"\d{1,9}", word, re.ASCII) or not low <= int(word) <= high:
        raise SpecError("account_field", field=name, word=word[:20], min=low, max=high)
    return int(word)
