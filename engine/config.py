"""`EngineConfig`: every choice that shapes a run, in one frozen object; each field is also a command-line flag."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ValidationError

POLICIES = ("static", "continuous", "prefill_first")
KV_RULES = ("paged", "max", "pow2", "oracle")
FITS = ("first", "best")
ORDERS = ("fcfs", "priority")
VICTIMS = ("last", "priority", "fewest_blocks")
PREFIXES = ("none", "hash", "radix", "snapshot")
PREEMPTS = ("recompute", "swap")


@dataclass(frozen=True)
class EngineConfig:
    """How one engine schedules and stores.

    Attributes:
        num_blocks: blocks in the pool, P; every id 0 … P−1 is usable.
        block_size: token slots per block, b.
        max_num_seqs: slots B, the most sequences that share a step.
        max_num_batched_tokens: token budget of a step, None for no limit.
        max_model_len: the most tokens a request may reach, prompt and reply together; None for no limit.
        policy: who may enter a step, `static`, `continuous` or `prefill_first`.
        kv: `paged`, or a contiguous reservation rule `max`, `pow2`, `oracle`.
        fit: which free run a contiguous reservation takes, `first` (lowest address) or `best` (smallest).
        prefix: prefix index over finished blocks, `none`, `hash`, `radix` or `snapshot`; needs paged KV.
        snapshot_tokens: every how many tokens the snapshot index keeps a state, a multiple of block_size; None takes
            block_size.
        preempt: what happens to the KV of a preempted sequence, `recompute` (dropped) or `swap` (moved to the host,
            where there is room for all of it; needs paged KV).
        host_blocks: blocks of swap space in the host's memory.
        disk_blocks: further blocks of swap space on disk.
        watermark: share of the pool, in [0, 1), that admission leaves free.
        order: the waiting queue's order, `fcfs` or `priority` (smaller number first, then arrival).
        victim: who is preempted, `last` admitted, largest `priority`, or `fewest_blocks`; None follows `order`.
        seed: seed of everything random in the run.
    """

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 8
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    policy: str = "continuous"
    kv: str = "paged"
    fit: str = "first"
    prefix: str = "none"
    snapshot_tokens: int | None = None
    preempt: str = "recompute"
    host_blocks: int = 0
    disk_blocks: int = 0
    watermark: float = 0.0
    order: str = "fcfs"
    victim: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_int("num_blocks", self.num_blocks, minimum=1, maximum=100_000_000)
        require_int("block_size", self.block_size, minimum=1, maximum=1_000_000_000)
        require_int("max_num_seqs", self.max_num_seqs, minimum=1, maximum=1_000_000)
        for name in ("max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), minimum=1)
        require_int("host_blocks", self.host_blocks, minimum=0, maximum=100_000_000)
        require_int("disk_blocks", self.disk_blocks, minimum=0, maximum=100_000_000)
        require_int("seed", self.seed)
        _choice("policy", self.policy, POLICIES)
        _choice("kv", self.kv, KV_RULES)
        _choice("fit", self.fit, FITS)
        _choice("order", self.order, ORDERS)
        _choice("prefix", self.prefix, PREFIXES)
        _choice("preempt", self.preempt, PREEMPTS)
        if self.kv != "paged" and (self.prefix != "none" or self.preempt != "recompute"):
            raise ValidationError(
                f"prefix={self.prefix!r} and preempt={self.preempt!r} need kv='paged': contiguous runs share no blocks"
            )
        if self.snapshot_tokens is not None:
            require_int("snapshot_tokens", self.snapshot_tokens, minimum=1)
            if self.snapshot_tokens % self.block_size:
                raise ValidationError(
                    f"snapshot_tokens must be a multiple of block_size {self.block_size}, got {self.snapshot_tokens}"
                )
        if self.victim is not None:
            _choice("victim", self.victim, VICTIMS)
        if isinstance(self.watermark, bool) or not isinstance(self.watermark, (int, float)):
            raise ValidationError(f"watermark must be a number in [0, 1), got {self.watermark!r}")
        if not 0 <= self.watermark < 1:
            raise ValidationError(f"watermark must lie in [0, 1), got {self.watermark!r}")

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free."""
        return int(self.watermark * self.num_blocks + 1e-9)

    @property
    def victim_rule(self) -> str:
        """The victim rule in force: as given, else the one that goes with the order."""
        return self.victim or ("priority" if self.order == "priority" else "last")


def require_int(name: str, value: object, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return `value` if it is a whole number within the bounds, else raise `ValidationError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be a whole number, got {value!r}")
    if minimum is not None and value < minimum:
        raise ValidationError(f"{name} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise ValidationError(f"{name} must be at most {maximum}, got {value}")
    return value


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValidationError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
