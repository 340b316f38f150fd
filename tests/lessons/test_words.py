"""lessons/common: both languages have the same words, with the same placeholders, and each is in its own language."""

import re
from string import Formatter

import pytest

from lessons.errors import LessonError
from lessons.words import LANGUAGES, words

CODES = """
    ADMITTED RESUMED PREEMPTED_BY FINISHED FORKED COW_COPY EVICTED HIT MISS_AT_BLOCK SWAP_OUT SWAP_IN SWAP_FULL ABORTED
    TOO_BIG NO_BLOCKS NO_RUN WATERMARK BUDGET SLOTS BEHIND_HEAD WAIT_BATCH
""".split()  # noqa: SIM905
SAME_IN_BOTH = {"live.model_tiny", "live.model_smollm2"}
"""Names, spelled alike in both languages."""


def placeholders(word: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(word) if name is not None}


def test_the_same_keys_and_placeholders_in_both_languages():
    zh, en = words("zh"), words("en")
    assert zh.keys() == en.keys()
    assert {key for key in sorted(zh.keys()) if placeholders(zh[key]) != placeholders(en[key])} == set()


def test_every_word_is_in_its_language():
    zh, en = words("zh"), words("en")
    assert [key for key in sorted(en.keys()) if re.search(r"[\u3000-\u9fff\uff00-\uffef]", en[key])] == []
    assert {key for key in sorted(zh.keys()) if not re.search(r"[\u4e00-\u9fff]", zh[key])} == SAME_IN_BOTH
    assert {key for key in sorted(zh.keys()) if zh[key] == en[key]} == SAME_IN_BOTH


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_reason_code_has_a_sentence(lang):
    assert set(words(lang).group("codes")) == set(CODES)
    assert "3" in words(lang).fill("codes.ADMITTED", slot=3)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nine_lessons_have_a_name_and_a_question(lang):
    for group in ("lesson_names", "lesson_questions"):
        assert set(words(lang).group(group)) == {f"n{number}" for number in range(1, 10)}


def test_a_missing_word_or_language_is_an_error():
    with pytest.raises(LessonError, match="no word"):
        words("zh")["ui.nothing"]
    with pytest.raises(LessonError, match="no language"):
        words("fr")
