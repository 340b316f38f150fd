"""Training: a step learns, a run resumes to the same state, what it writes can be loaded. All on a made-up text."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.model import bpe, corpus, train
from engine.model.recipe import Data, Settings, batch, evaluate, losses
from engine.model.train import Run

TINY = Settings(
    steps=6,
    batch_tokens=128,
    length=32,
    positions=64,
    long_share=0.34,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    mlp=48,
    vocabulary=300,
    warmup=1,
    evaluate_every=2,
)


def make_text() -> str:
    """Sixty paragraphs, each a turn of the same few sentences."""
    sentences = ("卻說玄德引兵去了。", "孔明笑曰：「此計可成。」", "操大驚，問諸將。", "次日，雲長上馬。")
    return "\n\n".join("".join(sentences[(i + k * (i % 3)) % 4] for k in range(3 + i % 4)) for i in range(60))


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(make_text(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(text_file: Path):
    text = corpus.read(text_file)
    tokenizer = bpe.train_tokenizer(text.train, TINY.vocabulary)
    return text, tokenizer, Data.of(text, tokenizer)


def make_run(made, **changes) -> Run:
    text, tokenizer, data = made
    settings = replace(TINY, vocabulary=tokenizer.get_vocab_size(), **changes)
    return Run(settings, data, text.sha256)


def test_importing_the_packages_does_not_import_torch():
    code = "import sys, engine, engine.model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_batch_depends_on_the_step_only_and_half_of_it_begins_with_a_paragraph(made):
    run = make_run(made)
    ids = batch(run.data, run.settings, 3)
    assert ids.shape == (4, 33)
    assert torch.equal(ids, batch(run.data, run.settings, 3))
    assert not torch.equal(ids, batch(run.data, run.settings, 2))
    beginnings = {tuple(run.data.train[at : at + 33].tolist()) for at in run.data.starts.tolist()}
    assert all(tuple(row.tolist()) in beginnings for row in ids[::2])
    assert batch(run.data, run.settings, 4).shape == (2, 65), "the last steps see sequences as long as the positions"


def test_a_step_lowers_the_loss_on_what_it_saw(made):
    run = make_run(made, dropout=0.0)
    seen = batch(run.data, run.settings, 0)
    run.model.train()
    before = losses(run.model, seen).mean().item()
    assert run.train_step() == pytest.approx(before, abs=1e-6)
    assert losses(run.model, seen).mean().item() < before


@torch.no_grad()
def test_evaluation_counts_every_token_once_whatever_the_window(made):
    run = make_run(made)
    run.model.eval()
    row = run.data.validation[:60]
    whole = losses(run.model, row.unsqueeze(0)).sum().item()
    assert evaluate(run.model, row, 64, 64) == (pytest.approx(whole, rel=1e-5), 59)
    assert evaluate(run.model, row, 64, 7) == (pytest.approx(whole, rel=1e-5), 59)
    nats, counted = evaluate(run.model, row, 16, 8)
    assert counted == 59
    assert nats == pytest.approx(whole, rel=0.2)


def test_a_resumed_run_is_the_uninterrupted_one(made, tmp_path: Path):
    straight = make_run(made)
    for _ in range(5):
        straight.train_step()
    interrupted = make_run(made)
    for _ in range(2):
        interrupted.train_step()
    interrupted.validate()
    interrupted.save(tmp_path / "c.pt")
    resumed = make_run(made)
    resumed.load(tmp_path / "c.pt")
    assert (resumed.step, resumed.history) == (2, interrupted.history)
    for _ in range(3):
        resumed.train_step()
    state = resumed.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in straight.model.state_dict().items())


def test_a_checkpoint_of_other_settings_is_refused(made, tmp_path: Path):
    make_run(made).save(tmp_path / "c.pt")
    with pytest.raises(ValueError, match="--fresh"):
        make_run(made, seed=1).load(tmp_path / "c.pt")


def test_the_rate_warms_up_and_falls_to_its_floor():
    settings = Settings(steps=1000, warmup=100, peak=1.0, floor=0.05)
    assert settings.rate_at(0) == pytest.approx(0.01)
    assert settings.rate_at(100) == pytest.approx(1.0)
    assert settings.rate_at(1000) == pytest.approx(0.05)


def test_the_command_trains_writes_a_loadable_folder_and_a_card(text_file: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("engine.model.card.REPLIES", 2)
    monkeypatch.setattr("engine.model.card.REPLY_LIMIT", 8)
    monkeypatch.setattr("engine.model.card.SAMPLE_LIMIT", 8)
    out, checkpoint = tmp_path / "model", tmp_path / "cache" / "c.pt"
    command = [
        "--text",
        str(text_file),
        "--out",
        str(out),
        "--checkpoint",
        str(checkpoint),
        "--threads",
        str(torch.get_num_threads()),
    ]
    assert train.main(command, TINY) == 0
    assert checkpoint.exists()
    said = capsys.readouterr().err
    assert "step 6/6" in said
    assert "\r" not in said, "a bar is for terminals"

    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.float16
    assert model.config.model_type == "llama"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 0
    assert tokenizer.decode(tokenizer("卻說玄德").input_ids) == "卻說玄德"
    ids = torch.tensor([tokenizer("卻說").input_ids])
    written = model.float().generate(ids, max_new_tokens=4, do_sample=False)
    assert written.shape[1] > ids.shape[1]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "character trigram" in card
    assert "{" not in card
    assert "A text given by" in card, "only the known text gets a provenance"

    assert train.main(command, TINY) == 0, "a finished run is not trained again"
    assert "going on from step 6" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"one paragraph", b"\xff\xfe\x00"])
def test_a_useless_text_is_a_clear_error(content: bytes, tmp_path: Path, capsys):
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        train.main(["--text", str(path)])
    assert "cannot be read" in capsys.readouterr().err


def test_the_settings_survive_a_round_trip_through_json():
    assert Settings(**json.loads(json.dumps(Settings().__dict__))) == Settings()
