"""Turn a Llama-layout GGUF file into a folder that transformers loads: float16 weights, config, tokenizer, template.

Two things differ between the files. Names: `blk.0.attn_q` is `model.layers.0.self_attn.q_proj`. And the order of rows
in q and k: GGUF interleaves the two halves that rotary embedding turns against each other, transformers keeps them
apart. The output matrix of a model with tied weights is the embedding and is stored once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import EngineError
from engine.model.gguf import GGUF

OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3
"""Token type of markers such as the one that ends a message; never produced from typed text piece by piece."""


def convert(source: Path, folder: Path, *, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write `model.safetensors`, config, tokenizer and chat template of the GGUF file into `folder`.

    `progress(tensors done, tensors in all)`. Raises EngineError for another layout than Llama's with a byte-level BPE.
    """
    from safetensors.numpy import save_file

    file = GGUF(source)
    meta = file.metadata
    kinds = (meta.get("general.architecture"), meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre"))
    if kinds != ("llama", "gpt2", "smollm"):
        raise EngineError(f"{source.name} is {kinds}; converted are Llama layouts with SmolLM's tokenizer")
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    tensors: dict[str, np.ndarray] = {}
    for done, name in enumerate(file.entries):
        progress(done, len(file.entries))
        values = file.tensor(name)
        part = name.split(".")[-2]
        if part in heads:
            values = rotary_halves(values, heads[part])
        tensors[weight_name(name)] = np.ascontiguousarray(values, dtype=np.float16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tied = "output.weight" not in file.entries
    _write_json(
        folder / "config.json", config_of(meta, vocabulary=file.entries["token_embd.weight"].shape[0], tied=tied)
    )
    ends = {name: meta[f"tokenizer.ggml.{key}_token_id"] for name, key in TOKEN_IDS.items()}
    _write_json(folder / "generation_config.json", ends)
    write_tokenizer(meta, folder)
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # the library makes it the owner's alone
    progress(len(file.entries), len(file.entries))


TOKEN_IDS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}


def weight_name(name: str) -> str:
    """`blk.3.ffn_up.weight` → `model.layers.3.mlp.up_proj.weight`. Raises EngineError for names of other layouts."""
    match name.split("."):
        case [part, "weight"] if part in OUTSIDE:
            return f"{OUTSIDE[part]}.weight"
        case ["blk", layer, part, "weight"] if part in IN_LAYER:
            return f"model.layers.{layer}.{IN_LAYER[part]}.weight"
    raise EngineError(f"{name} has no place in a Llama layout")


def rotary_halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from (a0 b0 a1 b1 …) to (a0 a1 … b0 b1 …); `matrix` is [heads × head_dim, hidden]."""
    rows, hidden = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def config_of(meta: dict[str, Any], *, vocabulary: int, tied: bool) -> dict[str, Any]:
    """`config.json` for transformers from GGUF metadata."""
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "vocab_size": vocabulary,
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "max_position_embeddings": meta["llama.context_length"],
        "hidden_act": "silu",
        "rms_norm_eps": _decimal(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": _decimal(meta["llama.rope.freq_base"])},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
    } | {name: meta[f"tokenizer.ggml.{key}_token_id"] for name, key in TOKEN_IDS.items()}


def write_tokenizer(meta: dict[str, Any], folder: Path) -> None:
    """`tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`: byte-level BPE, each digit on its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    kinds = meta["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": meta["llama.context_length"],
            "clean_up_tokenization_spaces": False,
        }
        | {name: tokens[meta[f"tokenizer.ggml.{key}_token_id"]] for name, key in named.items()},
    )
    (folder / "chat_template.jinja").write_text(meta["tokenizer.chat_template"], encoding="utf-8")


def _decimal(value: float) -> float:
    """A float32 as a person would have written it: 9.999999747378752e-06 is 1e-05."""
    return float(np.format_float_scientific(np.float32(value)))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
