"""Lesson text to HTML: Markdown with raw HTML off, then the inline marks (figures, request badges, citations).

Marks are swapped for placeholders before the Markdown is rendered, so that nothing inside them is read as Markdown, and
everything that ends up in a page is escaped here.
"""

from __future__ import annotations

import inspect
import re
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from app.figures import value_of
from lessons.figures import show
from lessons.marks import Fig, Req, split
from lessons.model import Figure, Lesson

ROOT = Path(__file__).resolve().parent.parent
HUES = 12

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")


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
        return self._render(text, _markdown.render)

    def inline(self, text: str) -> str:
        """A sentence without a paragraph around it."""
        return self._render(text, _markdown.renderInline)

    def figure(self, figure: Figure) -> str:
        """The figure's value as the page writes it."""
        value = figure.value if figure.source is None else value_of(figure.source)
        if value is None:
            raise ValueError(f"figure {figure.key} has neither a source nor a value")
        return show(value, figure.format)

    def chip(self, label: str, note: str) -> str:
        """The label of a number; a click opens where it comes from."""
        name = escape(self.labels[label])
        return f'<button type="button" class="chip {label}" data-src="{escape(note)}">{name}</button>'

    def _render(self, text: str, render: Any) -> str:
        kept: list[str] = []
        parts = []
        for piece in split(text):
            if isinstance(piece, str):
                parts.append(piece.replace("\ue000", "").replace("\ue001", ""))
            else:
                parts.append(f"\ue000{len(kept)}\ue001")
                kept.append(self._mark(piece))
        return _PLACEHOLDER.sub(lambda match: kept[int(match[1])], render("".join(parts)).strip())

    def _mark(self, mark: Any) -> str:
        if isinstance(mark, Req):
            return f'<span class="rq" style="--c:var(--h{(mark.number - 1) % HUES + 1})">{mark.number}</span>'
        if isinstance(mark, Fig):
            figure = self.lesson.figures[mark.key]
            value = f'<span class="fig" data-figure="{escape(mark.key)}">{escape(self.figure(figure))}</span>'
            chip = self.chip(figure.label, self._note(figure))
            return f'<span class="nw">{value}{chip}</span>' if mark.chip else value
        source = self.lesson.sources[mark.key]
        return self.chip("quoted", source.text)

    @staticmethod
    def _note(figure: Figure) -> str:
        return f"{figure.note} {figure.cite.text}" if figure.cite is not None else figure.note


def code_of(reference: str) -> dict[str, Any]:
    """The source of "module:Qualified.name", as it runs: file, first line and text."""
    module_name, _, name = reference.partition(":")
    target: Any = import_module(module_name)
    for part in name.split("."):
        target = getattr(target, part)
    lines, start = inspect.getsourcelines(target)
    path = Path(inspect.getsourcefile(target) or "").resolve()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "".join(line[indent:] if line.strip() else line for line in lines)
    return {"file": str(path.relative_to(ROOT)), "line": start, "text": text.rstrip()}
