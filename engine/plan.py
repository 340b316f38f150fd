"""`StepPlan`: everything one step needs, frozen, and the `Decision`s that led to it, each with a reason code.

The plan crosses the border between scheduler and runner; a runner needs nothing else. Decisions are what the page, the
export, the quiz and the tests read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, overload

from engine.request import SamplingParams


class Code(StrEnum):
    """Reason codes: the first group waits, TOO_BIG refuses, the rest happened."""

    NO_BLOCKS = "NO_BLOCKS"
    NO_RUN = "NO_RUN"
    WATERMARK = "WATERMARK"
    BUDGET = "BUDGET"
    SLOTS = "SLOTS"
    BEHIND_HEAD = "BEHIND_HEAD"
    WAIT_BATCH = "WAIT_BATCH"
    TOO_BIG = "TOO_BIG"
    ADMITTED = "ADMITTED"
    RESUMED = "RESUMED"
    PREEMPTED_BY = "PREEMPTED_BY"
    FINISHED = "FINISHED"
    ABORTED = "ABORTED"
    FORKED = "FORKED"
    COW_COPY = "COW_COPY"
    HIT = "HIT"
    MISS_AT_BLOCK = "MISS_AT_BLOCK"
    EVICTED = "EVICTED"
    SWAP_OUT = "SWAP_OUT"
    SWAP_IN = "SWAP_IN"
    SWAP_FULL = "SWAP_FULL"


_SHOWN = {
    Code.NO_RUN: "largest_run",
    Code.PREEMPTED_BY: "by",
    Code.EVICTED: "block",
    Code.HIT: "blocks",
    Code.MISS_AT_BLOCK: "block",
}
"""The detail that `repr` puts in brackets behind a code."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing the scheduler decided, or one thing that happened, to one sequence.

    Attributes:
        code: the reason code.
        request_id: whom it concerns.
        seq_id: the branch.
        step: the step's number.
        detail: figures behind it, by code:
            ADMITTED, RESUMED {slot, tokens, blocks}; FINISHED {reason, tokens, slot}; WAIT_BATCH {running, waiting};
            SLOTS {slots}; BUDGET {budget}; NO_BLOCKS {needed, free}; WATERMARK {needed, free, watermark};
            NO_RUN {largest_run, needed, free}, all in blocks; PREEMPTED_BY {by, tokens_lost}; TOO_BIG {needed, limit,
            rule}; ABORTED {reason: "error"} if the runner failed, else nothing; FORKED {parent, slot, blocks shared};
            COW_COPY {source, destination}; HIT {blocks, tokens, lookup: first or resumed}; MISS_AT_BLOCK {block, why,
            lookup}; EVICTED {block}; SWAP_OUT, SWAP_IN {blocks, bytes}; SWAP_FULL {needed, free}. Slots count from 0.
    """

    code: Code
    request_id: str
    seq_id: str
    step: int
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = self.detail.get(_SHOWN.get(self.code, ""))
        return f"{self.code}{'' if shown is None else f'({shown})'}[{self.seq_id} @ {self.step}]"


class Decisions(Sequence[Decision]):
    """A step's decisions: those spelled out, then one BEHIND_HEAD for every sequence behind the head of the queue.

    The latter are made when looked at, so that a step's cost does not grow with the length of the queue.
    """

    __slots__ = ("_behind", "_spelled", "_step")

    def __init__(self, step: int, spelled: Sequence[Decision], behind: Sequence[str] = ()) -> None:
        self._step = step
        self._spelled = tuple(spelled)
        self._behind = behind

    @property
    def spelled(self) -> tuple[Decision, ...]:
        """All decisions but BEHIND_HEAD."""
        return self._spelled

    @property
    def behind(self) -> Sequence[str]:
        """Ids of the sequences behind the head, in order."""
        return self._behind

    def __len__(self) -> int:
        return len(self._spelled) + len(self._behind)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Decision, ...]: ...
    def __getitem__(self, index: int | slice) -> Decision | tuple[Decision, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Decision]:
        yield from self._spelled
        for seq_id in self._behind:
            yield Decision(Code.BEHIND_HEAD, seq_id.rpartition("/")[0], seq_id, self._step)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decisions):
            return NotImplemented
        mine, theirs = (self._step, self._spelled), (other._step, other._spelled)
        return mine == theirs and tuple(self._behind) == tuple(other._behind)

    def __hash__(self) -> int:
        return hash((self._step, len(self)))

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(frozen=True)
class StepPlan:
    """What one step computes. Every mapping goes by sequence id, in scheduling order.

    Attributes:
        step: the step's number.
        block_size: token slots per block, b.
        num_blocks: blocks in the pool, P; id P is the guard block that padding may point at.
        num_scheduled_tokens: tokens each sequence computes in this step, at least 1.
        num_computed_tokens: tokens whose KV existed before: the position of the first scheduled token.
        token_ids: the scheduled tokens themselves.
        block_tables: the table at the forward, ceil((computed + scheduled) / b) ids (contiguous: the whole run).
        slot_mapping: pool slot each scheduled token's KV goes to, `table[p // b] * b + p % b`.
        sampling: the sequences that sample a token in this step, with how they do it.
        forks: {new branch: the sequence it leaves}: a branch that begins with this step samples from that row.
        copies: (source, destination) blocks copied before the forward.
        swap_out, swap_in: per sequence, the (device, host) block pairs moved before the forward; first all that go
            out, then the copies, then all that come in.
        host_blocks: host ids from here on lie on disk.
        decisions: why the plan is what it is.
    """

    step: int
    block_size: int
    num_blocks: int
    num_scheduled_tokens: Mapping[str, int]
    num_computed_tokens: Mapping[str, int]
    token_ids: Mapping[str, tuple[int, ...]]
    block_tables: Mapping[str, tuple[int, ...]]
    slot_mapping: Mapping[str, tuple[int, ...]]
    sampling: Mapping[str, SamplingParams]
    copies: tuple[tuple[int, int], ...] = ()
    swap_out: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    swap_in: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    forks: Mapping[str, str] = field(default_factory=dict)
    host_blocks: int = 0
    decisions: Decisions = field(default_factory=lambda: Decisions(0, ()))

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, all sequences together."""
        return sum(self.num_scheduled_tokens.values())

    @property
    def is_empty(self) -> bool:
        """True if nothing can run now."""
        return not self.num_scheduled_tokens


def slots_of(table: Sequence[int], start: int, count: int, block_size: int) -> tuple[int, ...]:
    """Pool slots of positions start … start + count − 1 under a block table.

    Raises:
        IndexError: a position lies beyond the table.
    """
    if count == 1:
        return (table[start // block_size] * block_size + start % block_size,)
    return tuple(table[p // block_size] * block_size + p % block_size for p in range(start, start + count))
