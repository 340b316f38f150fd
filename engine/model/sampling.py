"""From logits to tokens: greedy, temperature, top-k, top-p, with random numbers that belong to the request.

The random number of a token depends on the request's seed, its branch and the token's position, on nothing else. So a
reply is the same however it is batched, chunked, preempted or resumed.
"""

from __future__ import annotations

import random

import torch

from engine.request import SamplingParams

_FIRST_LOOK = 512


def greedy(logits: torch.Tensor) -> list[int]:
    """The likeliest token of each row of [S, V]."""
    return logits.argmax(-1).tolist()


def draw(logits: torch.Tensor, params: SamplingParams, number: float) -> int:
    """One token from a row of logits [V].

    Args:
        params: temperature above 0; top_k and top_p as they say, top-k first.
        number: in [0, 1), where the cumulated distribution is cut.
    """
    logits = logits / params.temperature
    limit = min(params.top_k or len(logits), len(logits))
    if limit == len(logits) and params.top_p == 1:
        return _cut(torch.softmax(logits.double(), -1), number)
    norm = torch.logsumexp(logits if limit == len(logits) else logits.topk(limit).values, -1)
    looked = min(limit, _FIRST_LOOK)
    while True:  # sort only as many as carry the probability asked for
        values, tokens = logits.topk(looked)
        probabilities = torch.exp((values - norm).double())
        before = probabilities.cumsum(-1) - probabilities
        if looked == limit or before[-1] >= params.top_p:
            break
        looked = min(limit, 8 * looked)
    kept = probabilities[before < params.top_p]
    return int(tokens[_cut(kept, number)])


def number_of(seed: int | str, branch: int, position: int) -> float:
    """The random number in [0, 1) for a branch's token at a position."""
    return random.Random(f"{seed}/{branch}/{position}").random()


def _cut(weights: torch.Tensor, number: float) -> int:
    """Index where the cumulated weights pass `number` times their sum; never one of weight 0."""
    cumulated = weights.cumsum(-1)
    index = int(torch.searchsorted(cumulated, cumulated[-1] * number, right=True))
    return min(index, int(weights.nonzero()[-1]))
