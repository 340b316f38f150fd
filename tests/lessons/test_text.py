"""Rules for the text of every lesson: same parts in both languages, no typed numbers, no stray words, no bold bug."""

import re
from collections import Counter

import pytest

from lessons.loader import lesson_ids, load, texts
from lessons.marks import Cite, Fig, Req, marks, plain
from lessons.model import Lesson
from lessons.words import LANGUAGES

NAMES = re.compile(
    r"H100|BF16|float32|Qwen3\.8-27B|GPT-3 175B|OPT-13B|Llama-2-7B|Pow2"  # names of things
    r"|B=\d+"  # the slots a reader chooses
    r"|第 \d 课|lessons? \d( and \d)?|和第 \d 课"  # other lessons
)
FACTORS = re.compile(r"2 字节|2 bytes|2（K 与 V）|2 \(K and V\)")
"""What a note's formula may spell out: two of K and V, two bytes a value."""
CHINESE_IN_ENGLISH = re.compile("「小明把苹果给了」|「小王」")
CJK = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")

EVERY = [(lesson_id, lang) for lesson_id in lesson_ids() for lang in LANGUAGES]


def seen(lesson: Lesson) -> list[tuple[str, str]]:
    return texts(lesson)


@pytest.mark.parametrize(("lesson_id", "lang"), EVERY)
def test_every_number_comes_from_a_figure(lesson_id, lang):
    """A digit stands in a mark, in code, in a name, or in a note's formula; nowhere else."""
    for where, text in seen(load(lesson_id, lang)):
        rest = NAMES.sub("", re.sub(r"`[^`]*`", "", plain(text)))
        if where.startswith("figure "):
            rest = FACTORS.sub("", rest)
        assert not re.search(r"\d", rest), f"{where}: a number without a source in “{rest}”"


@pytest.mark.parametrize(("lesson_id", "lang"), EVERY)
def test_every_figure_is_used(lesson_id, lang):
    lesson = load(lesson_id, lang)
    used = {mark.key for _, text in seen(lesson) for mark in marks(text) if isinstance(mark, Fig)}
    assert set(lesson.figures) == used


@pytest.mark.parametrize(("lesson_id", "lang"), EVERY)
def test_the_stops_name_the_figures_in_their_text(lesson_id, lang):
    for scene in load(lesson_id, lang).scenes:
        for stop in scene.route:
            assert set(stop.figures) == {mark.key for mark in marks(stop.text) if isinstance(mark, Fig)}, stop.id


@pytest.mark.parametrize("lesson_id", lesson_ids())
def test_both_languages_say_the_same(lesson_id):
    """Same scenes, and in every text the same figures, badges, sources and reason codes."""
    zh, en = load(lesson_id, "zh"), load(lesson_id, "en")
    assert [scene.id for scene in zh.scenes] == [scene.id for scene in en.scenes]
    for (where, chinese), (_, english) in zip(seen(zh), seen(en), strict=True):
        assert Counter(marks(chinese)) == Counter(marks(english)), where
        assert Counter(re.findall(r"`[^`]+`", chinese)) == Counter(re.findall(r"`[^`]+`", english)), where
        assert chinese.count("\n\n") == english.count("\n\n"), f"{where}: paragraphs"
        assert chinese.count("**") == english.count("**"), f"{where}: emphasis"


@pytest.mark.parametrize("lesson_id", lesson_ids())
def test_nothing_is_left_untranslated(lesson_id):
    for (where, chinese), (_, english) in zip(seen(load(lesson_id, "zh")), seen(load(lesson_id, "en")), strict=True):
        assert not CJK.search(CHINESE_IN_ENGLISH.sub("", english)), where
        assert not chinese or CJK.search(chinese), where
        assert bool(chinese) == bool(english), where


@pytest.mark.parametrize("lesson_id", lesson_ids())
def test_chinese_punctuation(lesson_id):
    """Bold that touches a quote or a punctuation mark prints its asterisks; half-width marks do not follow 汉字."""
    for where, text in seen(load(lesson_id, "zh")):
        for bold in re.finditer(r"\*\*(.+?)\*\*(.?)", text):
            inner, after = bold.groups()
            assert not re.match(r"[“「《（‘]", inner), f"{where}: bold begins with a quote: {bold[0]}"
            assert not re.search(r"[”」》）’。，！？：；]$", inner), f"{where}: bold ends with a mark: {bold[0]}{after}"
        assert not re.search(r"[\u4e00-\u9fff][,;:?!]", plain(text)), where
        assert "——" not in text, f"{where}: dash"


@pytest.mark.parametrize(("lesson_id", "lang"), EVERY)
def test_every_choice_has_its_own_feedback_and_marks_are_of_the_workload(lesson_id, lang):
    lesson = load(lesson_id, lang)
    for scene in lesson.scenes:
        for question in scene.quiz:
            feedback = [choice.feedback for choice in question.choices]
            assert len(set(feedback)) == len(feedback), question.id
        if scene.kind == "misconception":
            assert scene.misconceptions
        if scene.kind == "quiz":
            assert len(scene.quiz) >= 2
    for where, text in seen(lesson):
        for mark in marks(text):
            assert not isinstance(mark, Req) or mark.number <= 64, where
            assert not isinstance(mark, Cite) or mark.key in lesson.sources, where


@pytest.mark.parametrize("lesson_id", lesson_ids())
def test_a_lesson_has_a_guess_things_to_try_a_misconception_and_the_code(lesson_id):
    lesson = load(lesson_id, "zh")
    kinds = [scene.kind for scene in lesson.scenes]
    assert kinds.index("predict") < kinds.index("try")
    assert sum(len(scene.tries) for scene in lesson.scenes) >= 3
    assert any(scene.misconceptions for scene in lesson.scenes)
    assert any(scene.code for scene in lesson.scenes)
    assert sum(len(scene.section.text) for scene in lesson.scenes if scene.core) / 300 <= lesson.minutes
