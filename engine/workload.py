"""Workloads: who asks for how much, and when. The 64 real reply lengths, made-up ones, the learner's own list, files.

A `Workload` is data; `requests()` turns it into engine requests. Prompts are made of token ids that occur nowhere else,
unless items share a `prefix_id`.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.config import require_int
from engine.errors import ValidationError
from engine.request import MAX_TOKENS_LIMIT, Request, SamplingParams

DATA = Path(__file__).resolve().parent.parent / "data"
MAX_ITEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One request to come.

    Attributes:
        output_tokens: the true length of its reply, at least 1.
        prompt_tokens: length of its prompt; None takes the run's default.
        max_tokens: its limit on the reply; None takes output_tokens.
        arrival: in steps or seconds, as the clock counts.
        priority: smaller first.
        name: a label for people.
        prefix_id: items with the same id start with the same `prefix_tokens` tokens.
        prefix_tokens: see prefix_id.
    """

    output_tokens: int
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    arrival: float = 0.0
    priority: int = 0
    name: str = ""
    prefix_id: str | None = None
    prefix_tokens: int = 0


@dataclass(frozen=True)
class Workload:
    """A list of items under a name."""

    items: tuple[WorkItem, ...]
    name: str = "own"

    def __post_init__(self) -> None:
        if not self.items:
            raise ValidationError("the workload is empty: give at least one length")

    @property
    def lengths(self) -> list[int]:
        """True reply lengths in order."""
        return [item.output_tokens for item in self.items]

    @property
    def states_a_limit(self) -> bool:
        """True if any item has a max_tokens of its own."""
        return any(item.max_tokens is not None for item in self.items)

    def with_arrivals(self, rate: float, seed: int = 0) -> Workload:
        """The same items arriving as a Poisson process, `rate` requests per unit of time on average."""
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate < float("inf"):
            raise ValidationError(f"the arrival rate must be a number above 0, got {rate!r}")
        rng, now, items = random.Random(seed), 0.0, []
        for item in self.items:
            now += rng.expovariate(rate)
            items.append(replace(item, arrival=now))
        return Workload(tuple(items), f"{self.name}, {rate:g} per unit of time")

    def with_bursts(self, size: int, gap: float) -> Workload:
        """The same items arriving `size` at a time, one burst every `gap`."""
        require_int("burst size", size, minimum=1)
        if not 0 < gap < float("inf"):
            raise ValidationError(f"the gap between bursts must be above 0, got {gap!r}")
        items = tuple(replace(item, arrival=i // size * gap) for i, item in enumerate(self.items))
        return Workload(items, f"{self.name}, {size} every {gap:g}")

    def requests(self, prompt_tokens: int = 1) -> list[Request]:
        """One engine request per item.

        Args:
            prompt_tokens: prompt length of items that state none.
        """
        require_int("prompt_tokens", prompt_tokens, minimum=1, maximum=MAX_TOKENS_LIMIT)
        prefixes: dict[str, int] = {}
        made = []
        next_token = 1 << 40  # far from the shared prefixes, which count from 0
        for item in self.items:
            length = item.prompt_tokens if item.prompt_tokens is not None else prompt_tokens
            shared = min(item.prefix_tokens, length) if item.prefix_id is not None else 0
            base = prefixes.setdefault(item.prefix_id, len(prefixes)) * (1 << 24) if item.prefix_id is not None else 0
            own = length - shared
            prompt = (*range(base, base + shared), *range(next_token, next_token + own))
            next_token += own
            made.append(
                Request(
                    prompt_token_ids=prompt,
                    params=SamplingParams(max_tokens=item.max_tokens or item.output_tokens),
                    arrival=item.arrival,
                    priority=item.priority,
                    name=item.name,
                    output_len=item.output_tokens,
                )
            )
        return made


def real64() -> Workload:
    """64 real replies: whole paragraphs of a novel, 22 to 356 tokens (`data/reply_lengths.json` says which)."""
    data = json.loads((DATA / "reply_lengths.json").read_text(encoding="utf-8"))
    return from_lengths(data["lengths"], "real64")


def uniform(count: int, low: int, high: int, seed: int = 0) -> Workload:
    """`count` lengths drawn evenly from low … high with `random.Random(seed)`."""
    require_int("uniform N", count, minimum=1, maximum=MAX_ITEMS)
    require_int("uniform LO", low, minimum=1, maximum=MAX_TOKENS_LIMIT)
    require_int("uniform HI", high, minimum=low, maximum=MAX_TOKENS_LIMIT)
    rng = random.Random(seed)
    return from_lengths([rng.randint(low, high) for _ in range(count)], f"uniform:{count}:{low}:{high}:{seed}")


def one_long(count: int = 64, short: int = 40, long: int = 400) -> Workload:
    """All replies equally short but one, the first."""
    require_int("count", count, minimum=1, maximum=MAX_ITEMS)
    return from_lengths([long] + [short] * (count - 1), f"one long:{count}:{short}:{long}")


def from_lengths(lengths: Sequence[object], name: str = "own") -> Workload:
    """A workload of bare reply lengths."""
    return Workload(tuple(_item({"output_tokens": n}, i) for i, n in enumerate(lengths, 1)), name)


def split_list(text: str) -> list[str]:
    """The entries of a list as a person types it, set apart by commas, semicolons, blanks or line breaks."""
    return [word for word in re.split(r"[\s,，、;；]+", text) if word]


def from_text(text: str) -> Workload:
    """A list as a person types it: whole numbers set apart by commas, spaces or line breaks."""
    lengths = []
    for i, word in enumerate(split_list(text), 1):
        if not re.fullmatch(r"[+-]?\d{1,18}", word, re.ASCII):
            shown = word if len(word) <= 20 else word[:20] + "…"
            raise ValidationError(f"length {i} is {shown!r}: write whole numbers only, such as 12, 40, 7")
        lengths.append(int(word))
    return from_lengths(lengths)


def parse_workload(spec: str) -> Workload:
    """`real64`, `uniform:N:LO:HI:SEED`, or the path of a .json or .csv file.

    Raises:
        ValidationError: the spec or the file cannot be understood.
    """
    if spec == "real64":
        return real64()
    if spec.startswith("uniform"):
        parts = spec.split(":")[1:]
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != 4:
            raise ValidationError(f"write uniform:N:LO:HI:SEED with four whole numbers, got {spec!r}")
        return uniform(*numbers)
    return read_file(Path(spec))


def read_file(path: Path) -> Workload:
    """A .json file (a list of lengths, {"lengths": […]}, or a list of items) or a .csv file with the items' columns."""
    if path.suffix not in (".json", ".csv"):
        raise ValidationError(
            f"{str(path)!r} is no workload: give real64, uniform:N:LO:HI:SEED, or a .json or .csv file"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValidationError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValidationError(f"{path} is not a UTF-8 text file") from None
    if path.suffix == ".csv":
        rows: list[Any] = list(csv.DictReader(text.splitlines()))
        rows = [{k: v for k, v in row.items() if k and v not in (None, "")} for row in rows]
    else:
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValidationError(f"{path} is not valid JSON: {error}") from None
        found = data.get("lengths") if isinstance(data, dict) else data
        rows = found if isinstance(found, list) else []
        if not isinstance(found, list):
            raise ValidationError(f'{path} must hold a list of lengths, {{"lengths": […]}} or a list of items')
    if len(rows) > MAX_ITEMS:
        raise ValidationError(f"{path} has {len(rows)} items; at most {MAX_ITEMS} are accepted")
    items = [_item(row if isinstance(row, dict) else {"output_tokens": row}, i) for i, row in enumerate(rows, 1)]
    return Workload(tuple(items), path.name)


def _item(row: dict[str, Any], number: int) -> WorkItem:
    """One item from JSON or CSV values; unknown keys are ignored."""

    def whole(key: str, minimum: int) -> int | None:
        value = row.get(key)
        if value is None:
            return None
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value, re.ASCII):
            value = int(value)
        return require_int(f"item {number}: {key}", value, minimum=minimum, maximum=MAX_TOKENS_LIMIT)

    output_tokens = whole("output_tokens", 1)
    if output_tokens is None:
        raise ValidationError(f"item {number} has no output_tokens")
    try:
        arrival = float(row.get("arrival") or 0)
        priority = int(row.get("priority") or 0)
    except (TypeError, ValueError):
        raise ValidationError(f"item {number}: arrival and priority must be numbers") from None
    if not 0 <= arrival < 1e12:
        raise ValidationError(f"item {number}: arrival must be a finite number from 0, got {arrival}")
    prefix_id = row.get("prefix_id")
    return WorkItem(
        output_tokens=output_tokens,
        prompt_tokens=whole("prompt_tokens", 1),
        max_tokens=whole("max_tokens", 1),
        arrival=arrival,
        priority=priority,
        name=str(row.get("name") or ""),
        prefix_id=None if prefix_id is None else str(prefix_id),
        prefix_tokens=whole("prefix_tokens", 0) or 0,
    )
