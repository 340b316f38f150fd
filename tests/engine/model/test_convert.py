"""GGUF in, transformers' folder out: values, row order, tied weights, tokenizer, and damaged files."""

import numpy as np
import pytest

from engine.errors import EngineError
from engine.model.convert import convert, rotary_halves, weight_name
from engine.model.gguf import GGUF
from tests.engine.model import tiny_gguf


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    source = tiny_gguf.write_gguf(folder / "tiny.gguf")
    convert(source, folder)
    return source, folder


def test_values_come_back_within_a_step_of_their_scale(converted):
    file = GGUF(converted[0])
    for name, (kind, wanted) in tiny_gguf.tensors().items():
        got = file.tensor(name)
        assert got.dtype == np.float32
        assert got.shape == wanted.shape
        blocks = wanted.reshape(-1, 32) if kind != "F32" else wanted.reshape(-1, 1)
        step = {"F32": 0, "Q8_0": np.abs(blocks).max(1) / 127, "Q4_1": np.ptp(blocks, axis=1) / 15}[kind]
        assert np.all(np.abs(got - wanted).reshape(blocks.shape).max(1) <= 0.56 * step + 2e-3 * (kind == "Q4_1"))


def test_rows_of_a_head_are_taken_apart():
    matrix = np.arange(8, dtype=np.float32)[:, None]
    assert rotary_halves(matrix, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_names():
    assert weight_name("blk.3.ffn_up.weight") == "model.layers.3.mlp.up_proj.weight"
    with pytest.raises(EngineError, match="no place"):
        weight_name("blk.3.ssm_a.weight")


def test_transformers_loads_the_folder(converted):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, folder = converted
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert (model.dtype, model.lm_head.weight.data_ptr()) == (torch.float16, model.model.embed_tokens.weight.data_ptr())
    assert sum(parameter.numel() for parameter in model.parameters()) == tiny_gguf.COUNT
    assert (model.config.rms_norm_eps, model.config.rope_parameters["rope_theta"]) == (1e-5, 10000.0)
    assert model.generation_config.eos_token_id == 2
    up = GGUF(source).tensor("blk.1.ffn_up.weight").astype(np.float16)
    assert np.array_equal(model.model.layers[1].mlp.up_proj.weight.detach().numpy(), up)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 300
    for text in ("hello 12 hello", "  两个字 é 😀\n\t", "<|im_start|>hello<|im_end|>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("hello12<|im_end|>") == ["hello", "1", "2", "<|im_end|>"], "digits stay apart"
    assert tokenizer.eos_token == "<|im_end|>"
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
    assert chat == "<|im_start|>hello<|im_end|>"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "empty"),
        (lambda data: b"PK" + data[2:], "not a GGUF file"),
        (lambda data: data[:4] + b"\x09" + data[5:], "version 9"),
        (lambda data: data[:300], "cut short"),
        (lambda data: data[:-400], "lies beyond its end"),
    ],
)
def test_damaged_files(tmp_path, converted, damage, message):
    path = tmp_path / "x.gguf"
    path.write_bytes(damage(converted[0].read_bytes()))
    with pytest.raises(EngineError, match=message):
        GGUF(path)


def test_another_layout_is_refused(tmp_path):
    source = tiny_gguf.write_gguf(tmp_path / "x.gguf", general__architecture=("text", "mamba"))
    with pytest.raises(EngineError, match="mamba"):
        convert(source, tmp_path)
