"""UI words, course and lesson names, and the sentence of every reason code.

They stand in lessons/common/<lang>.toml; what belongs to one view alone in <lang>.<view>.toml beside it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

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
    table: dict[str, object] = {}
    for path in sorted(COMMON.glob(f"{lang}*.toml")):
        _merge(table, tomllib.loads(path.read_text(encoding="utf-8")), path.name)
    return Words(lang, table)


def _merge(table: dict[str, Any], more: dict[str, Any], name: str) -> None:
    """Add words to a table; a word may be said once."""
    for key, value in more.items():
        if isinstance(value, dict):
            _merge(table.setdefault(key, {}), value, name)
        elif key in table:
            raise LessonError(f"lessons/common/{name}: '{key}' is there already")
        else:
            table[key] = value


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
