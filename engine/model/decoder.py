"""`LeanDecoder`: the forward of a Llama-like model without the modules around it.

A step of a small model on a CPU is short: at eight sequences some 40 ms, of which walking through transformers' modules
can take as much again. This is the same arithmetic on the same packed weights, in the order of the layers, some thirty
operators a layer:

    x ─┬─ norm ─ q k v ─ rotate q, k ─ paged attention ─ o ─(+)─┬─ norm ─ gate · up ─ down ─(+)─ …
       └──────────────────────────────────────────────────────┘ └──────────────────────────┘

`lean` builds it from a packed model of a layout it knows, and only if its logits equal those of the module; all others
run through the module, as they would anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import nn
from torch.nn.functional import silu

from engine.model.attention import Dense
from engine.model.packing import FusedNorm, PackedLinear, SharedColumns

LAYOUTS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes of transformers with this forward: norm first, rotary positions, gated SiLU, full attention everywhere."""

_linear = torch.ops.mkldnn._linear_pointwise
T = TypeVar("T")


class Step(Protocol):
    """What a decoder needs to know of a step: `PagedStep` in service."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
    ) -> torch.Tensor:
        """Attention of rows: query [T, H, D], key and value [T, KV, D]; returns [T, H, D]."""
        ...


@dataclass(frozen=True)
class _Layer:
    """One layer's parts, packed."""

    before_attention: FusedNorm
    qkv: PackedLinear
    query_norm: FusedNorm | None
    key_norm: FusedNorm | None
    out: PackedLinear
    before_mlp: FusedNorm
    gate_up: PackedLinear
    down: PackedLinear


class LeanDecoder:
    """Computes logits of a step.

    Args:
        model: a model of one of `LAYOUTS`, packed.

    Raises:
        AttributeError, TypeError: it is built otherwise than expected.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.embedding = model.model.embed_tokens.weight
        self.rotary = model.model.rotary_emb
        self.layers = [_layer(layer) for layer in model.model.layers]
        self.norm = _as(FusedNorm, model.model.norm)
        self.head = _as(PackedLinear, model.lm_head)
        self.scale: float = model.model.layers[0].self_attn.scaling

    def __call__(self, step: Step) -> torch.Tensor:
        """Logits [S, V] at the step's `last`."""
        x = self.embedding[step.token_ids[0]]
        cos, sin = self._angles(x, step.positions)
        tokens, heads, both = len(x), self.heads, self.heads + self.kv_heads
        for index, layer in enumerate(self.layers):
            qkv = _product(layer.before_attention(x), layer.qkv).view(tokens, both + self.kv_heads, -1)
            rotated = qkv[:, :both]
            if layer.query_norm is not None and layer.key_norm is not None:
                rotated = torch.cat((layer.query_norm(rotated[:, :heads]), layer.key_norm(rotated[:, heads:])), 1)
            rotated = (rotated * cos).addcmul_(rotated.roll(rotated.shape[2] // 2, -1), sin)
            found = step.attend(index, rotated[:, :heads], rotated[:, heads:], qkv[:, both:], self.scale)
            x = _product_onto(x, found.reshape(tokens, -1), layer.out)
            gate, up = _product(layer.before_mlp(x), layer.gate_up).chunk(2, -1)
            x = _product_onto(x, silu(gate).mul_(up), layer.down)
        return _product(self.norm(x[step.last]), self.head)

    def _angles(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [T, 1, D] of the positions, the sines signed for `roll`."""
        cos, sin = self.rotary(x, positions)
        sin = sin[0].clone()
        sin[:, : sin.shape[1] // 2].neg_()
        return cos[0][:, None], sin[:, None]


def _product(x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
    return _linear.default(x, linear.packed, linear.bias, "none", [], "")


def _product_onto(x: torch.Tensor, y: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
    """x + linear(y), one operator."""
    return _linear.binary(y, x, linear.packed, linear.bias, "add")


@torch.inference_mode()
def lean(model: nn.Module) -> LeanDecoder | None:
    """A decoder for a packed model, None if its layout is unknown or it computes anything else than the module."""
    config: Any = model.config
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    if type(model).__name__ not in LAYOUTS or kinds != {"full_attention"}:
        return None
    ids = torch.arange(1, 8)[None] % config.vocab_size
    try:
        decoder = LeanDecoder(model)
        found = decoder(Dense(ids))
    except (AttributeError, TypeError, RuntimeError):
        return None
    expected = model(input_ids=ids, position_ids=Dense(ids).positions, use_cache=False, paged=Dense(ids)).logits[0]
    return decoder if torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())) else None


def _layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    if type(mlp.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
        raise TypeError(f"{type(mlp.act_fn).__name__} instead of SiLU")
    return _Layer(
        before_attention=_as(FusedNorm, layer.input_layernorm),
        qkv=_shared(attention.q_proj, attention.v_proj),
        query_norm=_as(FusedNorm, attention.q_norm) if hasattr(attention, "q_norm") else None,
        key_norm=_as(FusedNorm, attention.k_norm) if hasattr(attention, "k_norm") else None,
        out=_as(PackedLinear, attention.o_proj),
        before_mlp=_as(FusedNorm, layer.post_attention_layernorm),
        gate_up=_shared(mlp.gate_proj, mlp.up_proj),
        down=_as(PackedLinear, mlp.down_proj),
    )


def _shared(first: Any, last: Any) -> PackedLinear:
    """The product that the layers from first to last share."""
    if _as(SharedColumns, first).product is not _as(SharedColumns, last).product:
        raise TypeError("layers that read one input do not share a product")
    return _as(PackedLinear, first.product.linear)


def _as(kind: type[T], part: Any) -> T:
    if not isinstance(part, kind):
        raise TypeError(f"{type(part).__name__} instead of {kind.__name__}")
    return part
