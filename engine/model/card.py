"""The model card: everything it says about numbers is measured here, on the weights as they were written.

Bits per character are comparable with the character baselines because all count the same symbols of the same validation
text: its characters and one paragraph end for each paragraph.
"""

import dataclasses
import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaForCausalLM

from engine.model import bpe
from engine.model.baselines import ALPHABET, CharacterModel, as_text
from engine.model.corpus import Corpus
from engine.model.recipe import evaluate

if TYPE_CHECKING:
    from engine.model.train import Run

NOVEL = (
    "f8668a4caa373797c22c5ec2caa501e969f7bf65f0dadeefe62741d1a624807f"  # sha256 of the paragraphs of Gutenberg #23950
)
PROMPTS = ("卻說", "玄德曰", "孔明笑曰", "次日，曹操")
REPLIES, REPLY_LIMIT, SAMPLE_LIMIT = 32, 400, 160


@dataclass(frozen=True)
class Reply:
    """What a model wrote after a prompt; `ended` if it stopped by itself with the end-of-text token."""

    text: str
    tokens: int
    ended: bool


@torch.no_grad()
def reply(model: LlamaForCausalLM, tokenizer: Any, prompt: str, limit: int, seed: int | None = None) -> Reply:
    """Greedy without a seed, otherwise sampled at temperature 0.8, top-p 0.95."""
    ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False).ids])
    how: dict[str, Any] = {"do_sample": False}
    if seed is not None:
        torch.manual_seed(seed)
        how = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 0}
    generator: Any = model
    written = generator.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, **how)
    new = written[0, ids.shape[1] :].tolist()
    ended = bool(new) and new[-1] == tokenizer.token_to_id(bpe.END_OF_TEXT)
    return Reply(tokenizer.decode(new[:-1] if ended else new, skip_special_tokens=False), len(new), ended)


def copied(text: str, source: str) -> int:
    """The longest run of characters of `text` that stands in `source`."""
    best = 0
    for begin in range(len(text)):
        while begin + best < len(text) and text[begin : begin + best + 1] in source:
            best += 1
    return best


def write_card(run: "Run", model: LlamaForCausalLM, tokenizer: Any, text: Corpus, folder: Path) -> None:
    """Measure and write `folder`/README.md from the template `card.md`. Takes a minute or two."""
    settings, data = run.settings, run.data
    facts: dict[str, Any] = dataclasses.asdict(settings) | {
        "parameters": sum(p.numel() for p in model.parameters()),
        "megabytes": sum(file.stat().st_size for file in folder.iterdir() if file.name != "README.md") / 1e6,
        "millions": run.step * settings.batch_tokens / 1e6,
        "epochs": run.step * settings.batch_tokens / len(data.train),
        "minutes": run.seconds / 60,
        "cpus": os.cpu_count() or 1,
        "file_digest": text.sha256,
        "train_paragraphs": len(text.train),
        "train_characters": text.characters[0],
        "train_tokens": len(data.train),
        "validation_paragraphs": len(text.validation),
        "validation_characters": text.characters[1],
        "validation_tokens": len(data.validation),
        "samples": samples(model, tokenizer),
    }
    facts |= (
        provenance(text) | quality(run, model, tokenizer, text) | reply_facts(model, tokenizer, as_text(text.train))
    )
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(template.format_map(facts), encoding="utf-8")


def provenance(text: Corpus) -> dict[str, str]:
    """Where the text is from: said only of the text whose paragraphs are known."""
    digest = hashlib.sha256("\n".join((*text.train, text.dropped, *text.validation)).encode()).hexdigest()
    known = (
        "《三國志演義》 (Romance of the Three Kingdoms), Luo Guanzhong, 14th century, in traditional characters: the\n"
        "paragraphs of Project Gutenberg's eBook #23950. The novel is in the public domain (Project Gutenberg says\n"
        "so for the USA); the text is not part of this project."
    )
    unknown = (
        "A text given by whoever trained this copy. Its paragraphs are not those of Project Gutenberg's eBook #23950."
    )
    return {"digest": digest, "source": known if digest == NOVEL else unknown}


def quality(run: "Run", model: LlamaForCausalLM, tokenizer: Any, text: Corpus) -> dict[str, Any]:
    """Losses on the validation part, the model's and the baselines', in bits per character."""
    if run.best is None:
        raise ValueError("no quality to report: the run has not been validated yet")
    best_step, best_loss, _ = run.best
    train_text, validation_text = as_text(text.train), as_text(text.validation)
    end = torch.tensor([tokenizer.token_to_id(bpe.END_OF_TEXT)])
    row = torch.cat([end, run.data.validation])  # so that the first token of the validation part counts too
    facts: dict[str, Any] = {
        "uniform_bits": math.log2(ALPHABET),
        "unigram_bits": CharacterModel(1, train_text).bits(validation_text),
        "trigram_bits": CharacterModel(3, train_text).bits(validation_text),
        "best_step": best_step,
        "best_loss": best_loss,
        "curve": " · ".join(f"{step:,}: {loss:.3f}" for step, loss in thinned(run.history)),
    }
    for name, window in (("near", run.settings.length), ("far", run.settings.positions)):
        nats, counted = evaluate(model, row, window, window // 2)
        facts[f"{name}_bits"] = nats / math.log(2) / len(validation_text)
        facts[f"{name}_loss"] = nats / counted
    return facts


def reply_facts(model: LlamaForCausalLM, tokenizer: Any, train_text: str) -> dict[str, Any]:
    """Do replies end by themselves, are they readable, are they copied?"""
    replies = [reply(model, tokenizer, PROMPTS[0], REPLY_LIMIT, seed) for seed in range(REPLIES)]
    finished = sorted(r.tokens for r in replies if r.ended)
    return {
        "replies": REPLIES,
        "reply_prompt": PROMPTS[0],
        "reply_limit": REPLY_LIMIT,
        "ended": len(finished),
        "middle": f", after {finished[len(finished) // 2]} tokens in the median" if finished else "",
        "broken": sum("\ufffd" in r.text.rstrip("\ufffd") for r in replies),
        "copied": max(copied(r.text, train_text) for r in replies),
    }


def samples(model: LlamaForCausalLM, tokenizer: Any) -> str:
    """Each prompt continued greedily and sampled once."""
    parts = []
    for number, prompt in enumerate(PROMPTS):
        for seed in (None, number):
            r = reply(model, tokenizer, prompt, SAMPLE_LIMIT, seed)
            how = "greedy" if seed is None else f"sampled, seed {seed}"
            stop = "ended by itself" if r.ended else f"cut after {r.tokens} tokens"
            parts.append(f"{prompt} ({how}; {stop}):\n\n> **{prompt}**{r.text}")
    return "\n\n".join(parts)


def thinned(history: list[tuple[int, float]], most: int = 10) -> list[tuple[int, float]]:
    """At most about `most` entries, evenly spread, the last among them."""
    every = max(1, math.ceil(len(history) / most))
    return history[::-1][::every][::-1]
