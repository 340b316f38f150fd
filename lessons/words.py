"""UI words, course and lesson names, and the sentence of every reason code, from lessons/common/<lang>.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from lessons.errors import LessonError

COMMON = Path(__file__).parent / "common"
LANGUAGES = ("zh", "en")


class Words:
    """Words of one language under dotted keys: `w["player.static"]`, `w.fill("codes.ADMITTED", slot=3, …)`."""

    def __init__(self, lang: str, table: dict[str, object]) -> None:
        self.lang = lang
        self._words: dict[str, str] = dict(_flatten("", table, lang))

    def __getitem__(self, key: str) -> str:
        if key not in self._words:
            raise LessonError(f"no word '{key}' in lessons/common/{self.lang}.toml")
        return self._words[key]

    def __contains__(self, key: str) -> bool:
        return key in self._words

    def keys(self) -> set[str]:
        return set(self._words)

    def fill(self, key: str, **values: object) -> str:
        """The word with its {placeholders} filled in."""
        return self[key].format(**values)

    def group(self, prefix: str) -> dict[str, str]:
        """All words under a prefix, as a component gets them: `group("codes")["ADMITTED"]`."""
        return {key[len(prefix) + 1 :]: word for key, word in self._words.items() if key.startswith(prefix + ".")}


@cache
def words(lang: str) -> Words:
    """The words of a language, "zh" or "en"."""
    if lang not in LANGUAGES:
        raise LessonError(f"no language '{lang}': there are {', '.join(LANGUAGES)}")
    return Words(lang, tomllib.loads((COMMON / f"{lang}.toml").read_text(encoding="utf-8")))


def _flatten(prefix: str, table: dict[str, object], lang: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            pairs += _flatten(f"{prefix}{name}.", value, lang)
        elif isinstance(value, str):
            pairs.append((prefix + name, value))
        else:
            raise LessonError(f"lessons/common/{lang}.toml: {prefix}{name} must be a string")
    return pairs
