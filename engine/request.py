"""What a user sends and what the engine makes of it: `SamplingParams`, `Request`, `Sequence`, `RequestState`.

A `Request` never changes. The engine keeps a `RequestState` beside it with one `Sequence` per branch; a sequence has
tokens it knows (prompt and reply so far) and tokens whose KV exists, and scheduling is the second chasing the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.config import require_int
from engine.errors import ValidationError

if TYPE_CHECKING:
    from engine.runner import Sampled

MAX_TOKENS_LIMIT = 10_000_000
"""The longest reply or prompt the engine accepts, in tokens: beyond every model's context, a typing error."""


@dataclass(frozen=True)
class SamplingParams:
    """How a reply is drawn and when it ends.

    Attributes:
        max_tokens: the most tokens of the reply.
        temperature: 0 for greedy, else the divisor of the logits.
        top_k: keep the k likeliest tokens, None for all.
        top_p: keep the smallest set of tokens with at least this probability, in (0, 1].
        seed: of this request's own random numbers; None takes the engine's.
        n: number of independent replies.
        beam_width: number of beams, None for no beam search.
        ignore_eos: go on after an end-of-text token.
        stop_token_ids: tokens that end the reply.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    n: int = 1
    beam_width: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_int("max_tokens", self.max_tokens, minimum=1, maximum=MAX_TOKENS_LIMIT)
        _finite("temperature", self.temperature)
        if self.temperature < 0:
            raise ValidationError(f"temperature must be at least 0, got {self.temperature}")
        if self.top_k is not None:
            require_int("top_k", self.top_k, minimum=1)
        _finite("top_p", self.top_p)
        if not 0 < self.top_p <= 1:
            raise ValidationError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.seed is not None:
            require_int("seed", self.seed)
        require_int("n", self.n, minimum=1)
        if self.n > 1 and self.temperature == 0:
            raise ValidationError("n > 1 needs a temperature above 0: greedy replies would all be equal")
        if self.beam_width is not None:
            require_int("beam_width", self.beam_width, minimum=1)
            if self.n > 1 or self.temperature > 0:
                raise ValidationError("beam search draws nothing at random: leave n at 1 and temperature at 0")
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))


@dataclass(frozen=True)
class Request:
    """What a user sent.

    Attributes:
        prompt_token_ids: the prompt, at least one token.
        params: how the reply is drawn.
        arrival: when it is first seen, in steps under the step clock, in seconds under the others.
        priority: smaller numbers first, where the engine orders by priority.
        name: a label for people.
        output_len: the true length of the reply where it is known (replays); the reply ends there. None: unknown.
        request_id: chosen by the sender, else given by `Engine.submit`.
    """

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    arrival: float = 0.0
    priority: int = 0
    name: str = ""
    output_len: int | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompt_token_ids, (str, bytes)) or not isinstance(self.prompt_token_ids, Iterable):
            raise ValidationError("prompt_token_ids must be a list of token ids")
        tokens = tuple(self.prompt_token_ids)
        if not tokens:
            raise ValidationError("the prompt is empty: give at least one token")
        if len(tokens) > MAX_TOKENS_LIMIT:
            raise ValidationError(f"the prompt has {len(tokens)} tokens; at most {MAX_TOKENS_LIMIT} are accepted")
        for token in tokens:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ValidationError(f"token ids are whole numbers from 0, got {token!r}")
        object.__setattr__(self, "prompt_token_ids", tokens)
        if not isinstance(self.params, SamplingParams):
            raise ValidationError("params must be a SamplingParams")
        _finite("arrival", self.arrival)
        if self.arrival < 0:
            raise ValidationError(f"arrival must be at least 0, got {self.arrival}")
        require_int("priority", self.priority)
        if self.output_len is not None:
            require_int("output_len", self.output_len, minimum=1, maximum=MAX_TOKENS_LIMIT)
        if self.request_id is not None and (not isinstance(self.request_id, str) or not self.request_id):
            raise ValidationError("request_id must be a non-empty string")

    @property
    def prompt_len(self) -> int:
        """Prompt tokens, p."""
        return len(self.prompt_token_ids)

    @property
    def reply_len(self) -> int:
        """Tokens after which the reply ends by length at the latest: max_tokens, or the known true length."""
        max_tokens = self.params.max_tokens
        return max_tokens if self.output_len is None else min(self.output_len, max_tokens)


class Status(StrEnum):
    """Where a sequence is in its life; exactly one at a time."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    FINISHED = "finished"
    REFUSED = "refused"
    ABORTED = "aborted"

    @property
    def is_final(self) -> bool:
        """True once nothing more will happen to the sequence."""
        return self in (Status.FINISHED, Status.REFUSED, Status.ABORTED)


class Sequence:
    """One branch of a request: its tokens, its block table, and how far its KV has come.

    Attributes:
        id: `"<request id>/<branch>"`.
        request: what the user sent.
        order: arrival rank among all requests (equal arrivals keep their order), −1 until it is seen.
        token_ids: all known tokens, prompt first.
        num_computed_tokens: tokens whose KV exists, the first that many of `token_ids`.
        block_table: physical block of each logical block.
        host_table: where its blocks lie while it is swapped out.
        branches_due: branches that will leave it with its first token; their slots are kept in `spare_slots`.
        dropped_tokens: KV tokens it lost when it was preempted last.
        score: of a beam: its sum of log-probabilities while it runs, the sum per token once it is finished.
        offer: of a beam: the candidates it has computed while others of its request have not.
        slot: the slot it sits in while it runs, else None.
        admitted_at: rank of its last admission, larger is later.
    """

    __slots__ = (
        "admitted_at",
        "block_table",
        "branches_due",
        "dropped_tokens",
        "finish_reason",
        "host_table",
        "id",
        "num_computed_tokens",
        "offer",
        "order",
        "output_times",
        "request",
        "score",
        "slot",
        "spare_slots",
        "status",
        "token_ids",
    )

    def __init__(self, request: Request, request_id: str, branch: int = 0) -> None:
        self.id = f"{request_id}/{branch}"
        self.request = request
        self.order = -1
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_computed_tokens = 0
        self.block_table: list[int] = []
        self.host_table: list[int] = []
        self.branches_due = (request.params.beam_width or request.params.n) - 1 if branch == 0 else 0
        self.dropped_tokens = 0
        self.score: float | None = None
        self.offer: Sampled | None = None
        self.slot: int | None = None
        self.spare_slots: list[int] = []
        self.admitted_at = -1
        self.status = Status.WAITING
        self.finish_reason: str | None = None
        self.output_times: list[float] = []

    @property
    def request_id(self) -> str:
        """The request this branch belongs to."""
        return self.id.rpartition("/")[0]

    @property
    def branch(self) -> int:
        """Its number among the branches of the request."""
        return int(self.id.rpartition("/")[2])

    @property
    def is_beam(self) -> bool:
        """True if it belongs to a beam search: then it lives and dies with the others of its request."""
        return self.request.params.beam_width is not None

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and reply so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the reply so far."""
        return len(self.token_ids) - self.request.prompt_len

    @property
    def output_token_ids(self) -> list[int]:
        """The reply so far."""
        return self.token_ids[self.request.prompt_len :]

    @property
    def num_missing_tokens(self) -> int:
        """Known tokens whose KV does not exist yet; 0 only for a beam that waits for the others of its request."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_prefilling(self) -> bool:
        """True until only the last known token is missing: the prompt, or a replay after preemption, is under way."""
        return self.num_missing_tokens > 1 or len(self.token_ids) == self.request.prompt_len

    def __repr__(self) -> str:
        return f"Sequence({self.id}, {self.status}, {self.num_computed_tokens}/{self.num_tokens} tokens)"


@dataclass
class RequestState:
    """A request as the engine knows it, found in `engine.requests`.

    Attributes:
        id: the request's id.
        request: what the user sent.
        sequences: its branches, in branch order.
        arrival: when it came, on the engine's clock: `request.arrival`, or the time of `submit` if that is later.
    """

    id: str
    request: Request
    sequences: list[Sequence]
    arrival: float

    @property
    def outputs(self) -> list[list[int]]:
        """The reply of each branch so far, as token ids."""
        return [seq.output_token_ids for seq in self.sequences]

    @property
    def scores(self) -> list[float | None]:
        """The score of each beam, best first; None where there is no beam search."""
        return [seq.score for seq in self.sequences]

    @property
    def finish_reasons(self) -> list[str | None]:
        """Why each branch ended: `length`, `stop`, `abort`, `refused`; None while it goes on."""
        return [seq.finish_reason for seq in self.sequences]

    @property
    def finish_reason(self) -> str | None:
        """Branch 0's reason once every branch has ended, else None."""
        reasons = self.finish_reasons
        return None if None in reasons else reasons[0]

    @property
    def status(self) -> Status:
        """The status of its first branch that is not over, else of branch 0."""
        return next((s.status for s in self.sequences if not s.status.is_final), self.sequences[0].status)


def _finite(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValidationError(f"{name} must be a finite number, got {value!r}")
