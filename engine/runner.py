"""`Runner`: who executes a plan. Here the protocol, and `CountingRunner`, which executes nothing.

A runner gets a `StepPlan` and returns one `Sampled` for every entry of `plan.sampling`; it never sees a scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.errors import ValidationError

if TYPE_CHECKING:
    from engine.plan import StepPlan
    from engine.trace import Trace


class Candidate(NamedTuple):
    """A token that a beam may go on with, its natural log-probability, and whether a text ends with it."""

    token_id: int
    logprob: float
    is_eos: bool = False


class Sampled(NamedTuple):
    """A row's result.

    Attributes:
        token_id: the token.
        logprob: its natural log-probability under the model, before temperature and truncation.
        is_eos: the model's vocabulary says that a text ends with it.
        candidates: where a beam asks (`params.beam_width` W), the 2W likeliest tokens, likeliest first.
    """

    token_id: int
    logprob: float = 0.0
    is_eos: bool = False
    candidates: tuple[Candidate, ...] = ()


class Limits(NamedTuple):
    """What a runner can compute at all; a runner that has `limits` is asked for them at `submit`.

    Attributes:
        vocab_size: token ids run from 0 to vocab_size − 1; None: any.
        max_model_len: positions of the model, prompt and reply together; None: any.
    """

    vocab_size: int | None = None
    max_model_len: int | None = None


class Runner(Protocol):
    """Executes plans.

    Three more members are optional: `limits: Limits`, without which every token and length is accepted;
    `prepare(num_blocks, block_size)`, which an `Engine` calls once so that a pool that does not fit is noticed early;
    and `kv_bytes_per_token`, the price of moving a token's KV.
    """

    def run(self, plan: StepPlan) -> Mapping[str, Sampled]:
        """Compute the scheduled tokens and sample where the plan says so: {sequence id: result}."""
        ...


class CountingRunner:
    """No model: every sampled token is 0, and replies end at the length their request says.

    Enough to count steps, slots and blocks exactly; a scheduler cannot tell it from a model. Beams are offered tokens
    0, 1, 2 … with falling probability, so the best beam leaves most children.

    Where the schedule hangs on the tokens themselves (a later prompt finds an earlier reply in the prefix index, beams
    leave one another), it gives those of a recorded run: the same requests then make the same trace.

    Args:
        recorded: the trace of that run.

    Raises:
        ValidationError: from `run`: a step samples others than the recorded one.
    """

    def __init__(self, recorded: Trace | None = None) -> None:
        self._recorded = None if recorded is None else dict(recorded.sampled())

    def run(self, plan: StepPlan) -> dict[str, Sampled]:
        if self._recorded is None:
            return {seq_id: self._sampled(params.beam_width) for seq_id, params in plan.sampling.items()}
        found = self._recorded.get(plan.step, {})
        if found.keys() != plan.sampling.keys():
            raise ValidationError(f"step {plan.step} is not the one that was recorded: hand in the same requests")
        return found

    @staticmethod
    def _sampled(width: int | None) -> Sampled:
        if width is None:
            return Sampled(0)
        return Sampled(0, candidates=tuple(Candidate(i, -0.5 * (i + 1)) for i in range(2 * width)))
