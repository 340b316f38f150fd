"""`python -m engine generate`, and text that never holds half a character."""

from __future__ import annotations

import json

import pytest
from transformers import AutoTokenizer

from engine.cli import main
from engine.model.generate import DEFAULT_MODEL
from engine.model.text import TextStream


def run(capsys, *arguments):
    status = main(["generate", *arguments])
    return status, *capsys.readouterr()


def test_json_is_one_object_and_repeats(capsys):
    arguments = (
        "--prompt",
        "卻說",
        "--prompt",
        "玄德曰",
        "--max-tokens",
        "30",
        "--json",
        "--temperature",
        "0.8",
        "--seed",
        "5",
    )
    status, out, err = run(capsys, *arguments)
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["backend"] == "torch"
    assert found["device"] == "cpu"
    assert found["tokens_per_second"] > 0
    assert [1 <= len(o["token_ids"]) <= 30 for o in found["outputs"]] == [True, True]
    assert json.loads(run(capsys, *arguments)[1])["outputs"] == found["outputs"]


def test_terminal_shows_the_same_text(capsys):
    common = ("--prompt", "卻說", "--prompt", "次日，曹操", "--max-tokens", "40")
    outputs = json.loads(run(capsys, *common, "--json")[1])["outputs"]
    _, out, err = run(capsys, *common)
    assert out == f"[1] 卻說{outputs[0]['text']}\n[2] 次日，曹操{outputs[1]['text']}\n"
    assert "tokens/s (measured: tiny-model, cpu, torch" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", " "), "the prompt is empty"),
        (("--prompt", "卻說", "--max-tokens", "0"), "max_tokens must be at least 1"),
        (("--prompt", "卻說", "--max-tokens", "1000000000"), "max_tokens must be at most"),
        (("--prompt", "卻說", "--max-tokens", "5000"), "the model's context is 1024"),
        (("--prompt", "卻說", "--model", "./nowhere"), "there is no model folder"),
        (("--prompt", "卻說", "--chat"), "no chat template"),
        (("--prompt", "卻說", "--n", "3"), "greedy replies would all be equal"),
        (("--prompt", "卻說", "--beam", "9"), "need as many slots, the engine has 8"),
        (("--prompt", "卻說", "--beam", "0"), "beam_width must be at least 1"),
        (("--prompt", "卻說", "--blocks", "1", "--max-tokens", "90"), "enlarge the pool"),
    ],
)
def test_bad_input(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_several_replies_and_beams_are_listed_by_prompt(capsys):
    common = ("--prompt", "卻說", "--prompt", "玄德曰", "--max-tokens", "8", "--ignore-eos", "--json")
    drawn = json.loads(run(capsys, *common, "--n", "2", "--temperature", "0.9")[1])["outputs"]
    assert [len(output["token_ids"]) for output in drawn] == [8] * 4
    assert drawn[0]["text"] != drawn[1]["text"]
    beams = json.loads(run(capsys, *common, "--beam", "3")[1])["outputs"]
    assert len(beams) == 6
    for scores in ([output["score"] for output in beams[:3]], [output["score"] for output in beams[3:]]):
        assert scores == sorted(scores, reverse=True)
    _, out, _ = run(capsys, *common[:-1], "--beam", "3")
    assert [line[:3] for line in out.splitlines()] == ["[1]", "[2]", "[3]", "[4]", "[5]", "[6]"]


def test_text_is_never_half_a_character():
    tokenizer = AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    text = "鼎足三分，龘龖𪚥！ok"
    ids = tokenizer(text).input_ids
    stream = TextStream(tokenizer)
    parts = [stream.add([token]) for token in ids]
    assert "" in parts  # some tokens are only a part of a character
    assert "".join(parts) == stream.text == text
    assert "\ufffd" not in "".join(parts)
    cut = TextStream(tokenizer)
    cut.add(tokenizer("龘").input_ids[:-1])
    assert (cut.text, cut.end()) == ("", "")
