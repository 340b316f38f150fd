"""The recipe of the course's small model: its size, what a step sees, how its loss is counted.

A Llama of 3.3 million parameters. Every random choice of a step comes from (seed, step) alone, so a run that was
interrupted takes the very same steps as one that was not, and needs no saved random state.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from engine.model import bpe, corpus


@dataclass(frozen=True)
class Settings:
    """Everything that decides the weights, apart from the text itself."""

    steps: int = 2600
    batch_tokens: int = 4096
    length: int = 512
    positions: int = 1024
    long_share: float = 0.15  # the last part of the steps sees sequences as long as `positions`
    hidden: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    mlp: int = 704
    vocabulary: int = bpe.VOCABULARY
    dropout: float = 0.25
    peak: float = 2e-3
    floor: float = 0.05  # of the peak, at the last step
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 23950
    evaluate_every: int = 100

    def length_at(self, step: int) -> int:
        return self.positions if step >= self.steps * (1 - self.long_share) else self.length

    def rate_at(self, step: int) -> float:
        """Learning rate: linear warm-up, then a cosine down to `floor`."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        part = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.peak * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * part)) / 2)


@dataclass(frozen=True)
class Data:
    """Both sides of the split as rows of token ids; `starts` are the paragraph beginnings of the training row."""

    train: torch.Tensor
    starts: torch.Tensor
    validation: torch.Tensor

    @classmethod
    def of(cls, text: corpus.Corpus, tokenizer: Any) -> "Data":
        train, starts = bpe.stream(tokenizer, text.train)
        validation, _ = bpe.stream(tokenizer, text.validation)
        return cls(torch.tensor(train), torch.tensor(starts), torch.tensor(validation))


def dropout(values: torch.Tensor, share: float) -> torch.Tensor:
    """Inverted dropout from random bytes: on a CPU about three times as fast as torch's own, which draws one by one.

    The share is rounded to a 256th. The bytes come from numpy, seeded from torch's generator.
    """
    cut = round(share * 256)
    seed = int(torch.randint(2**62, ()).item())
    dice = np.frombuffer(np.random.default_rng(seed).bytes(values.numel()), dtype=np.uint8)
    keep = torch.from_numpy(dice >= cut).view(values.shape)
    return values * (keep.to(values.dtype) * (256 / (256 - cut)))


def build(settings: Settings) -> LlamaForCausalLM:
    """A fresh model. Llama has no dropout on what a layer adds, so training hangs it on as hooks (no new weights)."""
    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.hidden,
            intermediate_size=settings.mlp,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.kv_heads,
            max_position_embeddings=settings.positions,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            use_cache=False,
        )
    )

    def drop(module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return dropout(output, settings.dropout) if module.training and settings.dropout else output

    model.model.embed_tokens.register_forward_hook(drop)
    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(drop)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        layer.mlp.register_forward_hook(drop)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    return model


def batch(data: Data, settings: Settings, step: int) -> torch.Tensor:
    """`[sequences, length + 1]` ids of one step. Every second sequence begins where a paragraph does.

    A prompt has nothing before it, so the model must have seen beginnings at position 0; the other sequences begin
    anywhere, so that no tokens are seen less often because of where they stand.
    """
    length = min(settings.length_at(step), len(data.train) - 1)
    count = max(1, settings.batch_tokens // length)
    dice = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    last = len(data.train) - length
    begins = torch.randint(last, (count,), generator=dice)
    allowed = data.starts[data.starts < last]
    begins[::2] = allowed[torch.randint(len(allowed), (len(begins[::2]),), generator=dice)]
    return torch.stack([data.train[begin : begin + length + 1] for begin in begins.tolist()])


def losses(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """Nats of every predicted token, `[sequences, length]`, float32."""
    with torch.autocast("cpu", torch.bfloat16, enabled=model.training):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    flat = functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return flat.view(ids.shape[0], -1)


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, row: torch.Tensor, window: int, stride: int) -> tuple[float, int]:
    """(nats, tokens) of the whole row but its first token, predicted once, in windows that move on by `stride`.

    A token has at least `window - stride` tokens before it, except at the beginning of the row.
    """
    was_training = model.training
    model.eval()
    nats, counted, done = 0.0, 0, 1
    while done < len(row):
        end = min(done + stride, len(row))
        begin = max(0, end - window - 1)
        part = losses(model, row[begin:end].unsqueeze(0))[0]
        fresh = end - done
        nats += part[-fresh:].sum().item()
        counted += fresh
        done = end
    model.train(was_training)
    return nats, counted
