"""Swimlane data for the browser: which workload, how many slots, both policies; computed by the engine, never here.

A page gets its first view with the component. Every other number of slots is fetched over HTTP in the background, so
that moving the slider costs no round trip. Finished runs of the offered workloads stay on disk, under a hash of the
engine's source.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from engine.simulate import simulate
from engine.workload import Workload, from_lengths, one_long, real64, split_list, uniform

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "lanes"

SLOTS = (*range(1, 17), 24, 32, 48, 64)
POLICIES = ("static", "continuous")
LENGTHS = ("real64", "uniform", "one_long", "own")
RATES = ("0.01", "0.02", "0.03", "0.05", "0.08", "0.12", "0.2")
"""Poisson arrivals, requests per step; eight slots serve about 0.05 of the real replies a step."""
BURSTS = ("4", "8", "16", "32")
GAPS = ("50", "100", "200", "300", "500")
"""Bursts: how many at once, and every how many steps."""
DEFAULT_ARRIVALS = {"all": "all", "poisson": "poisson:0.05", "bursts": "bursts:16:200"}

MAX_REQUESTS, MAX_LENGTH, MAX_TOKENS = 512, 4096, 100_000
"""Bounds of an own list, so that no visitor keeps the engine busy for more than some seconds."""

_engine = threading.Lock()


class SpecError(ValueError):
    """A workload nobody can run.

    Attributes:
        code: which rule is broken; the page says it in the learner's language (words `errors.<code>`).
        detail: the values in that sentence.
    """

    def __init__(self, code: str, **detail: Any) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Spec:
    """What a learner chose: a distribution of lengths or a list of their own, and how the requests arrive."""

    lengths: str = "real64"
    own: tuple[int, ...] = ()
    arrivals: str = "all"

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> Spec:
        """From the query of an address.

        Raises:
            SpecError: a name is unknown, or the own list is not usable.
        """
        lengths = params.get("lengths", "real64")
        if lengths not in LENGTHS:
            raise SpecError("query", name="lengths")
        own = parse_own(params.get("own", "")) if lengths == "own" else ()
        return cls(lengths, own, parse_arrivals(params.get("arrivals", "all")))

    def workload(self) -> Workload:
        """The engine's workload for it."""
        if self.lengths == "own":
            workload = from_lengths(self.own)
        elif self.lengths == "uniform":
            workload = uniform(64, 22, 356, seed=1)
        else:
            workload = real64() if self.lengths == "real64" else one_long()
        kind, *numbers = self.arrivals.split(":")
        if kind == "poisson":
            return workload.with_arrivals(float(numbers[0]), seed=1)
        return workload.with_bursts(int(numbers[0]), int(numbers[1])) if kind == "bursts" else workload


def parse_own(text: str) -> tuple[int, ...]:
    """Whole numbers set apart by commas, semicolons, blanks or line breaks; SpecError says which one is wrong."""
    words = split_list(text[:20_000])
    if not words:
        raise SpecError("own_empty")
    if len(words) > MAX_REQUESTS:
        raise SpecError("own_many", count=len(words), max=MAX_REQUESTS)
    lengths = []
    for i, word in enumerate(words, 1):
        if not re.fullmatch(r"[+-]?\d+", word, re.ASCII):
            raise SpecError("own_words", i=i, word=word if len(word) <= 20 else word[:20] + "…")
        value = int(word) if len(word) <= 18 else MAX_LENGTH + 1
        if not 1 <= value <= MAX_LENGTH:
            raise SpecError("own_range", i=i, word=word if len(word) <= 20 else word[:20] + "…", max=MAX_LENGTH)
        lengths.append(value)
    if sum(lengths) > MAX_TOKENS:
        raise SpecError("own_cells", total=sum(lengths), max=MAX_TOKENS)
    return tuple(lengths)


def parse_arrivals(text: str) -> str:
    """`all`, `poisson:RATE` or `bursts:SIZE:GAP` with the offered numbers; a bare name takes its defaults."""
    text = DEFAULT_ARRIVALS.get(text, text)
    kind, *numbers = text.split(":")
    offered = {"all": (), "poisson": (RATES,), "bursts": (BURSTS, GAPS)}.get(kind)
    if offered is None or len(numbers) != len(offered):
        raise SpecError("query", name="arrivals")
    if any(number not in choices for number, choices in zip(numbers, offered, strict=True)):
        raise SpecError("query", name="arrivals")
    return text


def parse_slots(text: str) -> int:
    """B, one of the offered ones."""
    if not re.fullmatch(r"\d{1,2}", text, re.ASCII) or int(text) not in SLOTS:
        raise SpecError("query", name="B")
    return int(text)


def lanes(spec: Spec, slots: int) -> dict[str, dict[str, Any]]:
    """{policy: the lanes of its trace} for a workload at B = slots."""
    return json.loads(gzip.decompress(packed(spec, slots)))


@lru_cache(maxsize=512)
def packed(spec: Spec, slots: int) -> bytes:
    """The same as gzipped JSON, as it goes to disk and over the network."""
    path = CACHE / engine_hash() / f"{hashlib.sha256(repr((spec, slots)).encode()).hexdigest()[:24]}.json.gz"
    offered = spec.lengths != "own"  # what people type would fill the disk
    if offered and path.exists():
        try:
            found = path.read_bytes()
            gzip.decompress(found)
            return found
        except (OSError, EOFError):
            pass  # a broken file is made again
    with _engine:
        workload = spec.workload()
        made = {policy: simulate(workload, policy=policy, slots=slots).trace.lanes() for policy in POLICIES}
    data = gzip.compress(json.dumps(made, separators=(",", ":")).encode(), compresslevel=6, mtime=0)
    if offered:
        _write(path, data)
    return data


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
        packed(Spec(), slots)


def _write(path: Path, data: bytes) -> None:
    """Write in one go, so that a reader never sees half a file; a read-only disk only costs the cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{threading.get_ident()}.part")
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        pass
