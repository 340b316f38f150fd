"""Train the course's own small model on a copy of the novel: `python -m engine.model.train --text PATH`.

It learns to continue traditional Chinese prose, so that the course has a real model to run where there is no network.
The text is not part of the project; the reader brings it. The run shows where it is, writes a checkpoint every few
minutes and goes on from it after an interruption. Not an example of how to train large models: one process, and one
text of 1.8 MB.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaForCausalLM
from transformers.utils import logging

from engine.model import bpe, corpus
from engine.model.card import write_card
from engine.model.recipe import Data, Settings, batch, build, evaluate, losses

CHECKPOINT = Path(".cache/tiny-model/checkpoint.pt")
OUT = Path("data/tiny-model")


class Run:
    """Model, optimiser, the step reached and the best weights so far; can be written to a file and read back."""

    def __init__(self, settings: Settings, data: Data, text_sha256: str):
        self.settings, self.data, self.text_sha256 = settings, data, text_sha256
        self.model = build(settings)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": vectors, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=settings.peak, betas=(0.9, 0.95), fused=True)
        self.step = 0
        self.seconds = 0.0
        self.history: list[tuple[int, float]] = []  # (steps taken, validation nats per token)
        self.best: tuple[int, float, dict[str, torch.Tensor]] | None = None

    def train_step(self) -> float:
        """One step; returns its training loss in nats per token."""
        torch.manual_seed(self.settings.seed * 1_000_003 + self.step)  # dropout
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate_at(self.step)
        self.model.train()
        loss = losses(self.model, batch(self.data, self.settings, self.step)).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimiser.step()
        self.step += 1
        return loss.item()

    def validate(self) -> float:
        """Nats per validation token now; keeps a copy of the weights if none were better."""
        nats, counted = evaluate(self.model, self.data.validation, self.settings.length, self.settings.length)
        value = nats / counted
        self.history.append((self.step, value))
        if self.best is None or value < self.best[1]:
            weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            self.best = (self.step, value, weights)
        return value

    def save(self, path: Path) -> None:
        """Write atomically: an interruption leaves the previous checkpoint."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "settings": dataclasses.asdict(self.settings),
            "text": self.text_sha256,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "best": self.best,
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        part.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. Raises ValueError if it belongs to another text or other settings."""
        state = torch.load(path, weights_only=True)
        if state["text"] != self.text_sha256 or state["settings"] != dataclasses.asdict(self.settings):
            raise ValueError(f"{path} belongs to another text or other settings: use --fresh to begin anew")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.history = [tuple(entry) for entry in state["history"]]
        self.best = tuple(state["best"]) if state["best"] else None


def export(run: Run, tokenizer: Any, folder: Path) -> LlamaForCausalLM:
    """Write the best weights (fp16), configuration and tokenizer; returns the model as it was written, in float32."""
    if run.best is None:
        raise ValueError("nothing to export: the run has not been validated yet")
    model = build(dataclasses.replace(run.settings, dropout=0.0))
    model.load_state_dict(run.best[2])
    model = model.half()
    model.config.use_cache = True
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model.save_pretrained(folder)
    bpe.save_tokenizer(tokenizer, folder, run.settings.positions)
    return model.float().eval()


class Progress:
    """A bar on a terminal; elsewhere a line now and then."""

    def __init__(self, total: int, every_s: float = 30.0):
        self.total, self.every_s, self.last = total, every_s, 0.0
        self.bar = sys.stderr.isatty()

    def show(self, step: int, loss: float, best: float | None, speed: float) -> None:
        now = time.monotonic()
        if now - self.last < (0.2 if self.bar else self.every_s) and step < self.total:
            return
        self.last = now
        left = (self.total - step) / speed if speed else 0.0
        words = f"step {step}/{self.total}  loss {loss:.3f}"
        if best is not None:
            words += f"  best validation {best:.3f}"
        words += f"  {left / 60:.1f} min left"
        if self.bar:
            full = round(24 * step / self.total)
            print(f"\r[{'#' * full}{'.' * (24 - full)}] {words} ", end="", file=sys.stderr, flush=True)
        else:
            print(words, file=sys.stderr, flush=True)


def steps_for(minutes: float, settings: Settings, data: Data, text_sha256: str) -> int:
    """How many steps fit into `minutes` here, measured on a few of a throw-away run (evaluation taken into account)."""
    trial = Run(settings, data, text_sha256)
    trial.train_step()
    begin = time.monotonic()
    for _ in range(5):
        trial.train_step()
    return max(1, int(minutes * 60 / ((time.monotonic() - begin) / 5) * 0.9))


def train(run: Run, tokenizer: Any, out: Path, checkpoint: Path, save_every_s: float = 180.0) -> None:
    """Take the steps that are left; write `checkpoint` and the best model now and then, so that something is there."""
    progress = Progress(run.settings.steps)
    begin, first, earlier, saved = time.monotonic(), run.step, run.seconds, time.monotonic()
    while run.step < run.settings.steps:
        loss = run.train_step()
        run.seconds = earlier + time.monotonic() - begin
        if run.step % run.settings.evaluate_every == 0 or run.step == run.settings.steps:
            run.validate()
            if time.monotonic() - saved > save_every_s or run.step == run.settings.steps:
                run.save(checkpoint)
                export(run, tokenizer, out)
                saved = time.monotonic()
        speed = (run.step - first) / (time.monotonic() - begin)
        progress.show(run.step, loss, run.best[1] if run.best else None, speed)
    if progress.bar:
        print(file=sys.stderr)


def main(arguments: list[str] | None = None, base: Settings | None = None) -> int:
    """The command line; `base` are the settings that no option changes."""
    base = base or Settings()
    parser = argparse.ArgumentParser(prog="python -m engine.model.train", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--text", required=True, type=Path, help="the novel as a UTF-8 text file (your own copy)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the model (default {OUT})")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--steps", type=int, default=base.steps, help=f"training steps (default {base.steps})")
    size.add_argument("--minutes", type=float, help="as many steps as fit; measured first")
    parser.add_argument("--seed", type=int, default=base.seed)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--checkpoint", type=Path, default=CHECKPOINT, help=f"where a run goes on from (default {CHECKPOINT})"
    )
    parser.add_argument("--fresh", action="store_true", help="begin anew even if there is a checkpoint")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()  # transformers' own, of writing one file
    try:
        text = corpus.read(options.text)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        parser.error(f"the text cannot be read: {error}")
    tokenizer = bpe.train_tokenizer(text.train, base.vocabulary)
    data = Data.of(text, tokenizer)
    settings = dataclasses.replace(base, steps=options.steps, seed=options.seed, vocabulary=tokenizer.get_vocab_size())
    resumes = options.checkpoint.exists() and not options.fresh
    if options.minutes and resumes:
        settings = dataclasses.replace(
            settings, steps=torch.load(options.checkpoint, weights_only=True)["settings"]["steps"]
        )
    elif options.minutes:
        settings = dataclasses.replace(settings, steps=steps_for(options.minutes, settings, data, text.sha256))
    run = Run(settings, data, text.sha256)
    if resumes:
        try:
            run.load(options.checkpoint)
        except ValueError as error:
            parser.error(str(error))
        print(f"going on from step {run.step}", file=sys.stderr)
    print(
        f"{len(data.train)} training tokens, {len(data.validation)} validation tokens, {settings.steps} steps",
        file=sys.stderr,
    )
    train(run, tokenizer, options.out, options.checkpoint)
    model = export(run, tokenizer, options.out)
    write_card(run, model, tokenizer, text, options.out)
    print(f"written to {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
