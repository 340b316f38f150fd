"""`TextStream`: token ids in, text out, and never half a character.

A byte-level vocabulary splits 汉字 over several tokens, so a reply's first n tokens may end in the middle of one.
What is incomplete is held back until the rest has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_BROKEN = "\ufffd"
_CONTEXT = 8  # tokens decoded again before the new ones: some decoders look at their neighbours


class TextStream:
    """Decodes one reply as it comes.

    Args:
        tokenizer: of transformers; special tokens are left out of the text.

    Attributes:
        text: everything given out so far.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._done = 0  # tokens whose text has been given out
        self.text = ""

    def add(self, token_ids: Iterable[int]) -> str:
        """Take further tokens; returns the text that is new and complete, perhaps none."""
        self._ids.extend(token_ids)
        start = max(0, self._done - _CONTEXT)
        before, now = self._decode(self._ids[start : self._done]), self._decode(self._ids[start:])
        if now.endswith(_BROKEN) or len(now) <= len(before):
            return ""
        return self._give(now[len(before) :])

    def end(self) -> str:
        """The reply is over: what is left, without bytes that never became a character."""
        start = max(0, self._done - _CONTEXT)
        before, now = self._decode(self._ids[start : self._done]), self._decode(self._ids[start:])
        return self._give(now[len(before) :])

    def _give(self, text: str) -> str:
        self._done = len(self._ids)
        text = text.replace(_BROKEN, "")
        self.text += text
        return text

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
