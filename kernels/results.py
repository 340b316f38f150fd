"""Tables and targets of the benchmarks, as text and in `RESULTS.md`.

Each benchmark owns the lines between its two markers in the file, `<!-- name -->` and `<!-- /name -->`; the text around
them is written by hand and stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Table:
    """A table: its title, columns, rows; how many rows are wrong."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    wrong: int = 0

    def add(self, row: Sequence[object], wrong: bool = False) -> None:
        """Add a row of numbers and words."""
        self.rows.append([shown(cell) for cell in row])
        self.wrong += wrong

    def text(self) -> str:
        """As Markdown, columns aligned."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in (self.columns, ["-" * width for width in widths], *self.rows)
        ]
        return f"{self.title}\n\n" + "\n".join(f"| {line} |" for line in lines)


@dataclass(frozen=True)
class Target:
    """A figure and what it is aimed at: at most `limit`, or at least."""

    name: str
    found: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if math.isnan(self.found):
            return None
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def text(self) -> str:
        """One line of a list."""
        word = {None: "not measured", True: "met", False: "MISSED"}[self.met]
        aim = f"at {'least' if self.at_least else 'most'} {self.limit:g}"
        return f"- {self.name}: {shown(self.found)}, {aim}: {word}"


def shown(cell: object) -> str:
    """A number with three figures; — for one that was not measured."""
    if not isinstance(cell, float):
        return str(cell)
    if math.isnan(cell):
        return "—"
    return f"{cell:.1e}" if 0 < abs(cell) < 0.01 else f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def write(file: str | Path, name: str, head: str, tables: Sequence[Table], targets: Sequence[Target]) -> None:
    """Replace what stands between the markers of `name`.

    Raises:
        ValueError: the markers are not there.
    """
    path = Path(file)
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path} needs the lines {begin} and {end}, once each")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    parts = [head, *(table.text() for table in tables), "\n".join(target.text() for target in targets)]
    path.write_text(before + begin + "\n" + "\n\n".join(part for part in parts if part) + "\n" + end + after, "utf-8")
