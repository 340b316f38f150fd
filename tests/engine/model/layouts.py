"""Small random-weight models of several layouts, saved to a folder, for tests of equality."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen3Config,
)

SHAPE = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def configs() -> dict[str, PreTrainedConfig]:
    """Layouts by name: own head_dim with QK norm; soft caps, sliding windows and 1 + weight norms; learnt positions."""
    return {
        "qwen3": Qwen3Config(**SHAPE, num_attention_heads=6, num_key_value_heads=2, head_dim=20),
        "gemma2": Gemma2Config(
            **SHAPE,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=9,
        ),
        "gpt2": GPT2Config(
            vocab_size=131, n_embd=48, n_layer=3, n_head=4, n_positions=256, initializer_range=0.3, eos_token_id=0
        ),
        "phi": PhiConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=4, partial_rotary_factor=0.5),
    }


def save(name: str, folder: Path, seed: int = 0) -> Path:
    """A model of the layout with random weights."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configs()[name])
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("bias") or "norm" in parameter_name:
            torch.nn.init.normal_(
                parameter, mean=float("norm" in parameter_name and "bias" not in parameter_name), std=0.2
            )
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    return folder
