"""Swimlane data for the browser: which workload, how many slots, both policies; computed by the engine, never here.

A page gets its default view with the component; every other number of slots is fetched over HTTP in the background, so
that moving the slider costs no round trip. Finished traces are kept on disk under a hash of the engine's source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from engine.errors import ValidationError
from engine.simulate import simulate
from engine.workload import Workload, from_text, one_long, real64, uniform

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "lanes"
SLOTS = (*range(1, 17), 24, 32, 48, 64)
POLICIES = ("static", "continuous")
LENGTHS = ("real64", "uniform", "one_long", "own")
ARRIVALS = ("all", "poisson", "bursts")
MAX_REQUESTS, MAX_LENGTH, MAX_CELLS = 256, 4096, 100_000
POISSON_RATE = 0.05
"""Requests per step: about what eight slots can serve of the real lengths."""
BURST_SIZE, BURST_GAP = 16, 300


class OwnListError(ValidationError):
    """What is wrong with a learner's list: a key of the pages' own words, with the values they need."""

    def __init__(self, key: str, **values: int) -> None:
        super().__init__(f"{key}: {values}")
        self.key = key
        self.values = values


def own_lengths(text: str) -> Workload:
    """The workload a learner typed.

    Raises:
        OwnListError: it is no list of whole numbers, or too large for a picture.
    """
    words = [word for word in re.split(r"[\s,，、;；]+", text) if word]
    if not words:
        raise OwnListError("own_empty")
    for i, word in enumerate(words, 1):
        if not re.fullmatch(r"[+-]?\d+", word, re.ASCII):
            raise OwnListError("own_words", i=i)
        if len(word) > 6 or not 1 <= int(word) <= MAX_LENGTH:
            raise OwnListError("own_range", max=MAX_LENGTH)
    if len(words) > MAX_REQUESTS:
        raise OwnListError("own_many", max=MAX_REQUESTS)
    if sum(map(int, words)) > MAX_CELLS:
        raise OwnListError("own_cells", max=MAX_CELLS)
    return from_text(text)


@dataclass(frozen=True)
class LaneSpec:
    """What a learner chose: a distribution of lengths, or a list of their own, and how requests arrive."""

    lengths: str = "real64"
    own: str = ""
    arrivals: str = "all"

    def workload(self) -> Workload:
        """The workload it names.

        Raises:
            ValidationError: a name is unknown, or the own list is not usable; the message says what to type.
        """
        if self.lengths not in LENGTHS:
            raise ValidationError(f"lengths must be one of {', '.join(LENGTHS)}")
        if self.arrivals not in ARRIVALS:
            raise ValidationError(f"arrivals must be one of {', '.join(ARRIVALS)}")
        if self.lengths == "own":
            workload = own_lengths(self.own)
        elif self.lengths == "real64":
            workload = real64()
        else:
            workload = uniform(64, 22, 356, seed=1) if self.lengths == "uniform" else one_long()
        if self.arrivals == "poisson":
            return workload.with_arrivals(POISSON_RATE, seed=1)
        return workload.with_bursts(BURST_SIZE, BURST_GAP) if self.arrivals == "bursts" else workload


@lru_cache(maxsize=512)
def lanes_for(spec: LaneSpec, slots: int) -> dict[str, dict[str, Any]]:
    """{policy: lanes} of a workload at B = slots."""
    if slots not in SLOTS:
        raise ValidationError(f"B must be one of {', '.join(map(str, SLOTS))}")
    path = CACHE / engine_hash() / f"{hashlib.sha256(repr((spec, slots)).encode()).hexdigest()[:24]}.json"
    default = spec.lengths != "own"
    if default and path.exists():
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            path.unlink(missing_ok=True)  # a broken file: made again below
    workload = spec.workload()
    made = {policy: simulate(workload, policy=policy, slots=slots).trace.lanes() for policy in POLICIES}
    if default:
        _write(path, json.dumps(made, separators=(",", ":")))
    return made


@cache
def engine_hash() -> str:
    """A hash of everything the lanes depend on: the engine's source and the real lengths."""
    digest = hashlib.sha256()
    for path in (*sorted((ROOT / "engine").glob("*.py")), ROOT / "data" / "reply_lengths.json"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def warm_up() -> None:
    """Compute the default workload for every B, the first view first."""
    for slots in (8, 16, *SLOTS):
        lanes_for(LaneSpec(), slots)


def _write(path: Path, text: str) -> None:
    """Write in one go, so that a reader never sees half a file; a read-only disk only costs the cache."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{id(text)}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
