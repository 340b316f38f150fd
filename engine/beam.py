"""`Beams`: beam search over one request, without a model and without memory: scores in, the next beams out.

Each step every beam offers its likeliest 2W continuations; the best 2W of all of them are looked at, since at most one
of each beam's ends a text (a runner with more such tokens offers more). The best W that go on are the next beams: a
beam may leave several children, or none.

    beam 0  ─┬─ 卻      −1.2  → beam 0            a child keeps the blocks of the beam it leaves
             └─ 說      −1.9  → beam 2
    beam 1  ─── ⏹      −1.5  → finished, kept with its score ÷ length
    beam 2  ─── 玄      −1.6  → beam 1

It ends when W finished ones are kept and no running beam can beat the worst of them, or at the length limit. Scores are
sums of natural log-probabilities, divided by the number of tokens when a beam is finished. The rules are those of
transformers' beam search (length_penalty 1, early_stopping False), so that both give the same sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.runner import Candidate


class Beam(NamedTuple):
    """A beam that goes on: the beam it leaves, its new token, its sum of log-probabilities."""

    parent: int
    token: int
    score: float


class Finished(NamedTuple):
    """A finished beam: its score per token, its reply, why it ended."""

    score: float
    tokens: tuple[int, ...]
    reason: str


class Beams:
    """The search of one request.

    Args:
        width: W.
        max_tokens: the most tokens of a reply.

    Attributes:
        scores: of the running beams, best first.
        finished: kept, best first, at most W.
        over: True once nothing can change any more.
    """

    def __init__(self, width: int, max_tokens: int) -> None:
        self.width, self.max_tokens = width, max_tokens
        self.scores = [0.0]
        self.finished: list[Finished] = []
        self.over = False

    def advance(
        self, replies: Sequence[Sequence[int]], offers: Sequence[Sequence[Candidate]], *, ends: Sequence[int] = ()
    ) -> list[Beam]:
        """One step.

        Args:
            replies: the reply of each running beam so far.
            offers: its candidates, likeliest first; as many of all together are looked at as one beam offers at most.
            ends: further tokens that end a reply.

        Returns:
            the next beams, best first; empty when the search is over.
        """
        length = len(replies[0]) + 1
        pool = [
            (self.scores[beam] + candidate.logprob, -beam, -place, candidate)
            for beam, offer in enumerate(offers)
            for place, candidate in enumerate(offer)
        ]
        best = sorted(pool, key=lambda entry: entry[:3], reverse=True)[: max(map(len, offers))]
        at_limit = length >= self.max_tokens
        running: list[Beam] = []
        for rank, (score, beam, _, candidate) in enumerate(best):
            stops = candidate.is_eos or candidate.token_id in ends
            if not (stops or at_limit):
                running.append(Beam(-beam, candidate.token_id, score))
            elif rank < self.width:
                reply = (*replies[-beam], candidate.token_id)
                self.finished.append(Finished(score / length, reply, "stop" if stops else "length"))
        self.finished = sorted(self.finished, key=lambda done: -done.score)[: self.width]
        running = running[: self.width]
        self.scores = [beam.score for beam in running]
        hopeless = len(self.finished) == self.width and (
            not running or running[0].score / length <= self.finished[-1].score
        )
        self.over = at_limit or not running or hopeless
        return [] if self.over else running
