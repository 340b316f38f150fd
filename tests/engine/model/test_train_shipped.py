"""The small model that comes with the project: it is small, it loads, it ends a reply; with the novel, its loss."""

import os
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.model import bpe, corpus
from engine.model.recipe import evaluate

FOLDER = Path(__file__).parents[3] / "data" / "tiny-model"


@pytest.fixture(scope="module")
def shipped():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    return AutoTokenizer.from_pretrained(FOLDER), model.eval()


def test_it_is_under_12_megabytes():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12_000_000


def test_it_has_the_layout_the_card_names(shipped):
    tokenizer, model = shipped
    assert (len(tokenizer), model.config.vocab_size) == (2048, 2048)
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 1024
    assert tokenizer("卻說").input_ids, "a prompt is encoded without added tokens"
    assert tokenizer.eos_token_id not in tokenizer("卻說").input_ids


@pytest.mark.parametrize("prompt", ["卻說", "玄德曰"])
def test_a_reply_ends_by_itself_at_least_sometimes(shipped, prompt: str):
    tokenizer, model = shipped
    ids = torch.tensor([tokenizer(prompt).input_ids] * 8)
    torch.manual_seed(0)
    written = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=256, do_sample=True, temperature=0.8, top_p=0.95
    )
    new = written[:, ids.shape[1] :]
    assert (new == tokenizer.eos_token_id).any()
    han = [c for c in tokenizer.decode(new[0], skip_special_tokens=True) if "\u4e00" <= c <= "\u9fff"]
    assert len(han) > 10


def test_with_the_novel_the_validation_loss_is_the_cards(shipped):
    path = os.environ.get("SANGUO_TEXT")
    if not path:
        pytest.skip("the novel's text is not given (set SANGUO_TEXT to the path of your copy)")
    tokenizer, model = shipped
    ids, _ = bpe.stream(tokenizer.backend_tokenizer, corpus.read(path).validation)
    nats, counted = evaluate(model, torch.tensor([0, *ids]), 512, 256)
    said = re.search(r"\((\d\.\d+) nats per token\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert said
    assert nats / counted == pytest.approx(float(said[1]), abs=0.02)
