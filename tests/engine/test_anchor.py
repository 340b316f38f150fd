"""The anchor's figures, exactly, and against the model that transformers builds without memory."""

import json
from collections import Counter

import pytest

from engine.anchor import DATA, LLAMA2_7B, account, figures, kv_bytes_per_token, load, step_seconds
from engine.cli import main

EXACT = {
    "class_parameters": 27_356_728_560,
    "mtp_parameters": 424_699_392,
    "kv_bytes_per_token": 65_536,
    "block_bytes": 2**20,
    "blocks": 23_305,
    "weight_bytes": (27_356_728_560 + 424_699_392) * 2,
    "state_bytes": 48 * 48 * 128 * 128 * 4,
    "blocks_per_request": 256,
    "request_kv_bytes": 2**28,
    "requests": 58,
    "requests_by_blocks_alone": 91,
    "requests_eaten_by_state": 33,
    "requests_with_bf16_state": 71,
    "llama2_7b_kv_bytes_per_token": 512 * 1024,
    "llama2_7b_kv_gib": 256.0,
}
ROUNDED = {
    "weight_bytes": (55.563e9, 5e5),
    "step_weight_bytes": (51.25e9, 5e6),
    "left_bytes": (24.44e9, 5e6),
    "state_bytes": (150.99e6, 5e3),
    "request_bytes": (419.43e6, 5e3),
    "tokens_per_second_alone": (65, 0.5),
    "tokens_per_second_together": (2304, 0.5),
    "idle_share_alone": (0.9966, 5e-5),
    "requests_with_conv_state": (57.5, 0.5),
}


@pytest.mark.parametrize("key", EXACT)
def test_exact(key):
    assert figures()[key] == EXACT[key]


@pytest.mark.parametrize("key", ROUNDED)
def test_as_printed(key):
    value, tolerance = ROUNDED[key]
    assert figures()[key] == pytest.approx(value, abs=tolerance)


def test_every_figure_has_a_formula():
    assert all(figure.formula for figure in account().values())


def test_counts_are_whole_numbers():
    fractions = {"requests_with_conv_state", "llama2_7b_kv_gib", "idle_share_alone"}
    fractions |= {"tokens_per_second_alone", "tokens_per_second_together"}
    assert {key for key, value in figures().items() if not isinstance(value, int)} == fractions


def test_kv_calculator():
    assert kv_bytes_per_token(layers=16, kv_heads=4, head_dim=256, bytes_per_value=2) == 65_536
    assert 128 * 4096 * LLAMA2_7B.bytes_per_token == 256 * 2**30


def test_the_file_holds_no_results():
    """Only the architecture, the data sheet and sizes of one value: no derived figure is written down."""
    given = {"memory_bytes", "bytes_per_second", "flops_per_second", "context_tokens"}
    derived = {value for key, value in figures().items() if key not in given and value > 1000}
    assert not derived & set(numbers(json.loads(DATA.read_text(encoding="utf-8"))))


def numbers(value):
    if isinstance(value, dict):
        return [n for part in value.values() for n in numbers(part)]
    return [value] if isinstance(value, int) else []


def test_a_decode_step_is_bound_by_the_weights():
    card, gpu = load()
    kv_and_state = card.kv_token_bytes + 2 * card.state_bytes()
    bytes_moved = step_seconds(num_sequences=1, context_tokens=1, new_tokens=1) * gpu.bytes_per_second
    assert bytes_moved == pytest.approx(card.step_weight_bytes + kv_and_state, rel=1e-12)


def test_a_long_prompt_is_bound_by_arithmetic():
    short = step_seconds(num_sequences=1, context_tokens=1, new_tokens=1)
    long = step_seconds(num_sequences=1, context_tokens=4096, new_tokens=4096)
    assert long > 10 * short


def test_command_prints_one_object(capsys):
    assert main(["anchor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == figures()
    assert main(["anchor"]) == 0
    assert "23,305" in capsys.readouterr().out


def test_agrees_with_the_meta_model():
    torch = pytest.importorskip("torch")
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    card, _ = load()
    config = Qwen3_5Config(text_config=card.text, vision_config=card.vision, tie_word_embeddings=False)
    with torch.device("meta"):
        model = Qwen3_5ForConditionalGeneration(config)
    parts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        part = "head" if "lm_head" in name else "embedding" if "embed_tokens" in name else name.split(".")[1]
        parts[part] += parameter.numel()
    assert sum(parts.values()) == card.model_class == 27_356_728_560
    assert parts["head"] == parts["embedding"] == card.embedding
    assert parts["language_model"] == card.decoder
    assert parts["visual"] == card.vision_tower
    kinds = Counter(hasattr(layer, "self_attn") for layer in model.model.language_model.layers)
    assert (kinds[True], kinds[False]) == (card.attention_layers, card.linear_layers)
