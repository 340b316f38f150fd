"""`pack`: a loaded model's layers rearranged once, so that a CPU computes the same with less work per step.

Three things, each compared with the plain layer before it is trusted, and left alone where it differs or is missing:

- Weight matrices are kept in the layout the CPU's matrix product wants; `F.linear` rearranges them every time.
  The operators are PyTorch's own (oneDNN) but private.
- Layers that read the same input (query, key, value; gate, up) become one product, whose result they share.
- Root-mean-square norms take fewer passes over their input.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

BATCH_HINT = 16
"""Rows that the layout is chosen for; any number of rows gives the same result."""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that models call one after the other on one input."""


class PackedLinear(nn.Module):
    """`nn.Linear` with its weight packed. Input [*, in_features], output [*, out_features], both float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), BATCH_HINT)
        self.bias = None if bias is None else bias.contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), self.packed, self.bias, "none", [], "")


class SharedProduct:
    """One product for several layers: the first to be called computes it, the others take their columns.

    Remembered by the input's identity and per thread, so a layer that is called on its own is right as well.
    """

    def __init__(self, linear: nn.Module, sizes: list[int]) -> None:
        self.linear, self.sizes = linear, sizes
        self._memory = threading.local()

    def columns(self, x: torch.Tensor, part: int) -> torch.Tensor:
        """Columns of layer `part` for input x."""
        if getattr(self._memory, "x", None) is not x:
            self._memory.x, self._memory.parts = x, self.linear(x).split(self.sizes, -1)
        found = self._memory.parts[part]
        if part == len(self.sizes) - 1:
            self._memory.x = self._memory.parts = None
        return found


class SharedColumns(nn.Module):
    """One layer of a `SharedProduct`."""

    def __init__(self, product: SharedProduct, part: int) -> None:
        super().__init__()
        self.product, self.part = product, part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product.columns(x, self.part)


class FusedNorm(nn.Module):
    """Root-mean-square norm over the last dimension n in four operators: √n · w · x / hypot(‖x‖, √(n · eps))."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        count = weight.shape[0]
        self.weight = weight * count**0.5
        self.floor = torch.tensor((count * eps) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self.floor)).mul_(self.weight)


@torch.inference_mode()
def pack(model: nn.Module) -> int:
    """Replace what can be replaced in a float32 model on the CPU; returns the number of linear layers packed."""
    count = 0
    for parent in list(model.modules()):
        for names in SIBLINGS:
            count += _share(parent, [getattr(parent, name, None) for name in names], names)
        for name, layer in list(parent.named_children()):
            better = _linear(layer) or _norm(layer)
            if better is not None:
                setattr(parent, name, better)
                count += isinstance(better, PackedLinear)
    return count


def _share(parent: nn.Module, layers: list[Any], names: tuple[str, ...]) -> int:
    """Let sibling layers share one packed product; returns how many do."""
    if not all(type(layer) is nn.Linear for layer in layers):
        return 0
    if len({layer.in_features for layer in layers}) > 1 or len({layer.bias is None for layer in layers}) > 1:
        return 0
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    linear = _packed(weight, bias)
    if linear is None:
        return 0
    product = SharedProduct(linear, [layer.out_features for layer in layers])
    for part, name in enumerate(names):
        setattr(parent, name, SharedColumns(product, part))
    return len(layers)


def _linear(layer: nn.Module) -> PackedLinear | None:
    if type(layer) is nn.Linear:
        return _packed(layer.weight, layer.bias)
    if type(layer) is Conv1D:  # GPT-2's name for a linear layer, its weight the other way round
        return _packed(layer.weight.T, layer.bias)
    return None


def _packed(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear | None:
    """The layer packed, None if that does not work here."""
    if not torch.backends.mkldnn.is_available() or weight.dtype != torch.float32 or weight.device.type != "cpu":
        return None
    x = torch.linspace(-1, 1, 3 * weight.shape[1]).reshape(3, -1)
    try:
        packed = PackedLinear(weight, bias)
        return packed if _same(packed(x), functional.linear(x, weight, bias)) else None
    except (AttributeError, RuntimeError):
        return None


def _norm(layer: nn.Module) -> FusedNorm | None:
    """A model's own RMS norm in fewer passes; Gemma multiplies by 1 + weight."""
    weight = getattr(layer, "weight", None)
    eps = getattr(layer, "variance_epsilon", getattr(layer, "eps", None))
    if not type(layer).__name__.endswith("RMSNorm") or weight is None or not isinstance(eps, float):
        return None
    x = torch.linspace(-2, 3, 3 * weight.shape[0]).reshape(3, -1)
    expected = layer(x)
    for factor in (weight, 1 + weight):
        fused = FusedNorm(factor, eps)
        if _same(fused(x), expected):
            return fused
    return None


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max() + 1))
