"""Inline marks in lesson text: what the app replaces before or after rendering Markdown.

[[fig:key]]     the value of figure `key`
[[fig:key!]]    the value and its label chip (click: where it comes from)
[[req:7]]       badge of request 7, numbered from 1, in that request's hue
[[cite:orca]]   the chip "quoted" alone, for a statement somebody else published
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lessons.errors import LessonError

_MARK = re.compile(r"\[\[(.*?)\]\]")
_KINDS = re.compile(r"fig:(?P<fig>[a-z0-9_]+)(?P<chip>!?)|req:(?P<req>[1-9][0-9]*)|cite:(?P<cite>[a-z0-9_]+)")


@dataclass(frozen=True)
class Fig:
    key: str
    chip: bool


@dataclass(frozen=True)
class Req:
    number: int


@dataclass(frozen=True)
class Cite:
    key: str


Mark = Fig | Req | Cite


def split(text: str) -> list[str | Mark]:
    """The text as a list of plain strings and marks, in order; LessonError for a mark nobody knows."""
    pieces: list[str | Mark] = []
    end = 0
    for match in _MARK.finditer(text):
        if match.start() > end:
            pieces.append(text[end : match.start()])
        pieces.append(_mark(match.group(1)))
        end = match.end()
    if end < len(text):
        pieces.append(text[end:])
    return pieces


def marks(text: str) -> Iterator[Mark]:
    """Only the marks."""
    return (piece for piece in split(text) if not isinstance(piece, str))


def plain(text: str) -> str:
    """The text without its marks."""
    return "".join(piece for piece in split(text) if isinstance(piece, str))


def _mark(body: str) -> Mark:
    match = _KINDS.fullmatch(body)
    if match is None:
        raise LessonError(f"unknown mark [[{body}]]: write [[fig:key]], [[fig:key!]], [[req:7]] or [[cite:key]]")
    if match["fig"]:
        return Fig(match["fig"], match["chip"] == "!")
    if match["req"]:
        return Req(int(match["req"]))
    return Cite(match["cite"])
