"""Character n-grams: what a model of one or three characters would need, to hold the small model's bits against.

Interpolated Witten-Bell smoothing: a context seen n times with t different successors gives the share t / (n + t) to
the next shorter context. Below the unigram stands a uniform guess among `ALPHABET` characters, so that a character
never seen in training has a price too. Paragraph ends count as a character (a newline), as they do for the model.
"""

import math
from collections import Counter
from collections.abc import Iterable

ALPHABET = 21_000  # about the size of Unicode's basic block of Chinese characters


class CharacterModel:
    """An n-gram model of characters, `order` 1 (unigram) to whatever memory allows."""

    def __init__(self, order: int, text: str):
        self.order = order
        text = "\n" * (order - 1) + text
        self.followed: list[Counter[str]] = [Counter() for _ in range(order)]  # context → times seen
        self.kinds: list[Counter[str]] = [Counter() for _ in range(order)]  # context → different successors
        self.counts: list[Counter[str]] = [Counter() for _ in range(order)]  # context + character → times seen
        for n in range(order):
            for at in range(order - 1, len(text)):
                self.counts[n][text[at - n : at + 1]] += 1
            for gram, count in self.counts[n].items():
                self.followed[n][gram[:-1]] += count
                self.kinds[n][gram[:-1]] += 1

    def probability(self, context: str, character: str) -> float:
        """P(character | the last `order - 1` characters of `context`)."""
        value = 1 / ALPHABET
        for n in range(self.order):
            seen = context[len(context) - n :]
            times, kinds = self.followed[n][seen], self.kinds[n][seen]
            if times:
                value = (self.counts[n][seen + character] + kinds * value) / (times + kinds)
        return value

    def bits(self, text: str) -> float:
        """Mean bits per character of `text`."""
        padded = "\n" * (self.order - 1) + text
        first = self.order - 1
        total = sum(
            math.log2(self.probability(padded[at - first : at], padded[at])) for at in range(first, len(padded))
        )
        return -total / len(text)


def as_text(paragraphs: Iterable[str]) -> str:
    """Paragraphs as the baselines and the bits per character count them: a newline after each."""
    return "".join(paragraph + "\n" for paragraph in paragraphs)
