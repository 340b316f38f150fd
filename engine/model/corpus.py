"""The novel as paragraphs, and the split behind the 64 reply lengths.

The rules are those in the provenance of `data/reply_lengths.json`: blocks separated by blank lines, hard line wraps
inside a block joined with nothing, indents removed, headings and verses kept. The last tenth by characters is for
validation; the paragraph the cut falls inside belongs to neither side, so validation text is never trained on.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$", re.MULTILINE)
END = re.compile(r"^(?:\*\*\* ?)?End of (?:the |this )?Project Gutenberg", re.MULTILINE | re.IGNORECASE)
INDENT = " \t　"


@dataclass(frozen=True)
class Corpus:
    """Paragraphs in their order: `train`, the one `dropped` at the cut, `validation`; `sha256` is that of the file."""

    train: tuple[str, ...]
    dropped: str
    validation: tuple[str, ...]
    sha256: str

    @property
    def characters(self) -> tuple[int, int]:
        """Characters of both sides, without paragraph ends."""
        return sum(map(len, self.train)), sum(map(len, self.validation))


def paragraphs(text: str) -> list[str]:
    """All paragraphs of a plain or Gutenberg text, unwrapped and without indents."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    if start := START.search(text):
        text = text[start.end() :]
    if end := END.search(text):
        text = text[: end.start()]
    blocks = re.split(r"\n[ \t　]*\n", text)
    joined = ("".join(block.split("\n")).strip(INDENT) for block in blocks)
    return [paragraph for paragraph in joined if paragraph]


def split(parts: list[str], share: float = 0.1) -> tuple[list[str], str, list[str]]:
    """(training, dropped, validation), cut after `1 - share` of the characters of the paragraphs joined by newlines."""
    total = sum(map(len, parts)) + max(0, len(parts) - 1)
    cut = int(total * (1 - share))
    begin = 0
    for index, part in enumerate(parts):
        end = begin + len(part)
        if end >= cut:
            return parts[:index], part, parts[index + 1 :]
        begin = end + 1
    return [], "", []


def read(path: str | Path) -> Corpus:
    """Read a text file (UTF-8). Raises ValueError if it is too short to be split."""
    data = Path(path).read_bytes()
    train, dropped, validation = split(paragraphs(data.decode("utf-8")))
    if not train or not validation:
        raise ValueError(
            f"{path}: at least a few paragraphs, separated by blank lines, are needed to train and validate"
        )
    return Corpus(tuple(train), dropped, tuple(validation), hashlib.sha256(data).hexdigest())
