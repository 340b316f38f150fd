"""The rules of the corpus, the tokenizer and the baselines; with the novel at hand, the 64 lengths.

SANGUO_TEXT=PATH_TO_YOUR_COPY makes the last tests run.
"""

import json
import math
import os
from pathlib import Path

import pytest

from engine.model import bpe, corpus
from engine.model.baselines import ALPHABET, CharacterModel, as_text

LENGTHS = Path(__file__).parents[3] / "data" / "reply_lengths.json"


def test_wrapped_lines_are_joined_and_indents_removed():
    text = "\ufeff第一回：標題\r\n\r\n　　話說天下\r\n大勢。\r\n　\r\n\r\n　　詞曰：\r\n"
    assert corpus.paragraphs(text) == ["第一回：標題", "話說天下大勢。", "詞曰："]


def test_an_ideographic_space_within_a_paragraph_stays():
    assert corpus.paragraphs("　　詩曰：\n　　一二三\n四") == ["詩曰：　　一二三四"]


@pytest.mark.parametrize("end", ["End of Project Gutenberg's X", "*** END OF THE PROJECT GUTENBERG EBOOK X ***"])
def test_gutenbergs_own_words_are_left_out(end: str):
    text = f"Licence\n\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n甲\n\n乙\n\n{end}\n\nLicence"
    assert corpus.paragraphs(text) == ["甲", "乙"]


def test_the_paragraph_the_cut_falls_inside_is_dropped():
    parts = ["a" * 10] * 10  # 109 characters with newlines, cut at 98: inside the ninth (88 to 97) there is nothing
    train, dropped, validation = corpus.split(parts)
    assert (len(train), len(dropped), len(validation)) == (8, 10, 1)
    assert corpus.split(["a" * 50, "b" * 60, "c" * 5]) == (["a" * 50], "b" * 60, ["c" * 5])


def test_the_tokenizer_gives_every_text_back():
    tokenizer = bpe.train_tokenizer(["卻說玄德引兵去了。", "孔明笑曰：「此計可成。」"] * 20, 280)
    assert tokenizer.get_vocab_size() == 280
    assert tokenizer.token_to_id(bpe.END_OF_TEXT) == 0
    for text in ("卻說曹操", "plain ascii, é, 🙂\n\ttabs", "　　"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_stream_ends_every_paragraph():
    tokenizer = bpe.train_tokenizer(["甲乙"], 258)
    ids, starts = bpe.stream(tokenizer, ["甲", "乙乙"])
    counts = bpe.lengths(tokenizer, ["甲", "乙乙"])
    assert starts == [0, counts[0] + 1]
    assert [at for at, token in enumerate(ids) if token == 0] == [counts[0], counts[0] + 1 + counts[1]]


@pytest.mark.parametrize("order", [1, 3])
def test_a_baselines_probabilities_sum_to_one(order: int):
    model = CharacterModel(order, as_text(["abab", "abc"]))
    seen = "abc\n"
    for context in ("ab", "\n\n", "zz"):
        known = sum(model.probability(context, c) for c in seen)
        assert known + (ALPHABET - len(seen)) * model.probability(context, "z") == pytest.approx(1)


def test_a_longer_context_helps_on_a_regular_text():
    text = as_text(["abcabcabc"] * 20)
    unigram, trigram = (CharacterModel(order, text).bits("abcabc\n") for order in (1, 3))
    assert trigram < unigram < math.log2(ALPHABET)


@pytest.fixture(scope="module")
def novel() -> corpus.Corpus:
    path = os.environ.get("SANGUO_TEXT")
    if not path:
        pytest.skip("the novel's text is not given (set SANGUO_TEXT to the path of your copy)")
    return corpus.read(path)


def test_the_novel_splits_as_the_provenance_says(novel: corpus.Corpus):
    assert len(novel.train) == 3286
    assert len(novel.train) + 1 + len(novel.validation) == 3693
    assert sum(novel.characters) + len(novel.dropped) == 593_538


def test_the_64_lengths_come_out_again(novel: corpus.Corpus):
    tokenizer = bpe.train_tokenizer(novel.train)
    assert tokenizer.get_vocab_size() == bpe.VOCABULARY
    assert bpe.lengths(tokenizer, novel.validation[:64]) == json.loads(LENGTHS.read_text(encoding="utf-8"))["lengths"]


def test_the_saved_tokenizer_is_the_one_the_text_gives(novel: corpus.Corpus):
    saved = LENGTHS.parent / "tiny-model" / "tokenizer.json"
    again = json.loads(bpe.train_tokenizer(novel.train).to_str())["model"]
    kept = json.loads(saved.read_text(encoding="utf-8"))["model"]
    assert (kept["vocab"], kept["merges"]) == (again["vocab"], again["merges"])
