"""`pack_linear_layers`: weight matrices laid out once the way a CPU's matrix product wants to read them.

Generating a token multiplies every weight matrix with a few rows, and PyTorch's plain `F.linear` rearranges the matrix
anew each time. oneDNN can keep the rearranged copy. The operators are PyTorch's own but private, so each layer's packed
result is compared with the plain one before it is trusted; where they are missing or differ, the layer stays as it is.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

BATCH_HINT = 8
"""Rows that the layout is chosen for; any number of rows gives the same result."""


class PackedLinear(nn.Module):
    """`nn.Linear` with its weight packed. Input [*, in_features], output [*, out_features], both float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), BATCH_HINT)
        self.bias = None if bias is None else bias.detach().contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), self.packed, self.bias, "none", [], "")


@torch.inference_mode()
def pack_linear_layers(model: nn.Module) -> int:
    """Replace the linear layers of a float32 model on the CPU by packed ones; returns how many were replaced."""
    if not torch.backends.mkldnn.is_available():
        return 0
    replaced = 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            packed = _packed(layer)
            if packed is not None:
                setattr(parent, name, packed)
                replaced += 1
    return replaced


def _packed(layer: nn.Module) -> PackedLinear | None:
    """The layer packed, None if it is of another kind or packing does not work here."""
    if type(layer) is nn.Linear:
        weight = layer.weight
    elif type(layer) is Conv1D:  # GPT-2's name for a linear layer with the weight the other way round
        weight = layer.weight.T
    else:
        return None
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return None
    try:
        packed = PackedLinear(weight.detach(), layer.bias)
        x = torch.linspace(-1, 1, 3 * weight.shape[1]).reshape(3, -1)
        expected = functional.linear(x, weight, layer.bias)
        same = torch.allclose(packed(x), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max() + 1))
    except (AttributeError, RuntimeError):
        return None
    return packed if same else None
