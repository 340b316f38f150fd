"""Lesson text to HTML: Markdown with raw HTML off, then the inline marks (figures, request badges, citations).

Marks are swapped for placeholders before the Markdown is rendered, so that nothing inside them is read as Markdown, and
everything that ends up in a page is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from markdown_it import MarkdownIt

from app.figures import value_of
from lessons.figures import show
from lessons.marks import Fig, Mark, Req, split
from lessons.model import Figure, Lesson, Source

HUES = 12

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")


def badge(number: int) -> str:
    """A request's number on its hue, the same on every page."""
    hue = (number - 1) % HUES + 1
    return f'<span class="rq" data-request="{number - 1}" style="--c:var(--h{hue});--t:var(--t{hue})">{number}</span>'


class Renderer:
    """Renders the texts of one lesson in its language.

    Args:
        lesson: whose figures and sources the marks mean.
        labels: the names of the four labels, by label.
    """

    def __init__(self, lesson: Lesson, labels: dict[str, str]) -> None:
        self.lesson = lesson
        self.labels = labels

    def block(self, text: str) -> str:
        """Paragraphs, lists and tables."""
        return self._render(text, _markdown.render, chips=True)

    def inline(self, text: str, chips: bool = True) -> str:
        """A sentence without a paragraph around it."""
        return self._render(text, _markdown.renderInline, chips)

    def heading(self, text: str) -> str:
        """A heading that breaks behind ： and ， rather than inside a phrase."""
        pieces = [piece for piece in re.split(r"(?<=[：，])", text) if piece]
        return "".join(f'<span class="nb">{self.inline(piece, chips=False)}</span>' for piece in pieces)

    def figure(self, figure: Figure) -> str:
        """The figure's value as the page writes it."""
        value = figure.value if figure.source is None else value_of(figure.source)
        if value is None:
            raise ValueError(f"figure {figure.key} has neither a source nor a value")
        return show(value, figure.format)

    def chip(self, label: str, note: str) -> str:
        """The label of a number; a click opens where it comes from (`note` is HTML)."""
        name = escape(self.labels[label])
        return f'<button type="button" class="chip {label}" data-src="{escape(note)}">{name}</button>'

    def figure_chip(self, figure: Figure) -> str:
        """The label of a figure, with its note and its source."""
        cite = f" {self.cited(figure.cite)}" if figure.cite is not None else ""
        return self.chip(figure.label, self.inline(figure.note, chips=False) + cite)

    def cited(self, source: Source) -> str:
        """A publication, with its address."""
        text = self.inline(source.text, chips=False)
        return f'<a href="{escape(source.url)}" target="_blank" rel="noopener noreferrer">{text}</a>'

    def _render(self, text: str, render: Callable[[str], str], chips: bool) -> str:
        kept: list[str] = []
        parts = []
        for piece in split(text):
            if isinstance(piece, str):
                parts.append(piece.replace("\ue000", "").replace("\ue001", ""))
            else:
                parts.append(f"\ue000{len(kept)}\ue001")
                kept.append(self._mark(piece, chips))
        return _PLACEHOLDER.sub(lambda match: kept[int(match[1])], render("".join(parts)).strip())

    def _mark(self, mark: Mark, chips: bool) -> str:
        if isinstance(mark, Req):
            return badge(mark.number)
        if isinstance(mark, Fig):
            figure = self.lesson.figures[mark.key]
            value = f'<span class="fig" data-figure="{escape(mark.key)}">{escape(self.figure(figure))}</span>'
            return f'<span class="nb">{value}{self.figure_chip(figure)}</span>' if mark.chip and chips else value
        return self.chip("quoted", self.cited(self.lesson.sources[mark.key])) if chips else ""
