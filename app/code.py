"""The code that ran, taken from its own source as it stands, with light highlighting."""

from __future__ import annotations

import inspect
import io
import keyword
import tokenize
from functools import cache
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any


@cache
def excerpt(reference: str) -> dict[str, Any]:
    """The source of "module:Qualified.name": `file` and first `line`, `text`, and `html` with escaped, marked text."""
    module_name, _, name = reference.partition(":")
    module = import_module(module_name)
    target: Any = module
    for part in name.split("."):
        target = getattr(target, part)
    target = getattr(target, "fget", None) or inspect.unwrap(target)
    lines, start = inspect.getsourcelines(target)
    path = Path(*module_name.split(".")).with_suffix(".py")
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "".join(line[indent:] if line.strip() else "\n" for line in lines).rstrip() + "\n"
    return {"file": path.as_posix(), "line": start, "text": text, "html": highlight(text)}


def highlight(text: str) -> str:
    """Escaped Python with keywords (`k`), strings (`s`), comments (`c`) and the defined name (`d`) in spans."""
    lines = text.splitlines(keepends=True)
    parts: list[str] = []
    row, column = 1, 0

    def plain(to_row: int, to_column: int) -> None:
        nonlocal row, column
        while row < to_row:
            parts.append(escape(lines[row - 1][column:]))
            row, column = row + 1, 0
        parts.append(escape(lines[row - 1][column:to_column]) if row <= len(lines) else "")
        column = to_column

    try:
        before = ""
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = _kind(token, before)
            if kind:
                plain(*token.start)
                parts.append(f'<span class="{kind}">{escape(token.string)}</span>')
                row, column = token.end
            before = token.string
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return escape(text)
    plain(len(lines) + 1, 0)
    return "".join(parts)


def _kind(token: tokenize.TokenInfo, before: str) -> str:
    if token.type == tokenize.COMMENT:
        return "c"
    if token.type == tokenize.STRING:
        return "s"
    if token.type == tokenize.NAME:
        if before in ("def", "class"):
            return "d"
        return "k" if keyword.iskeyword(token.string) else ""
    return ""
