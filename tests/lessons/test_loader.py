"""lessons/loader.py: what a lesson file must hold, and the errors that say what is missing."""

import copy

import pytest

from lessons.errors import LessonError
from lessons.loader import build, lesson_ids, load, read_markdown
from lessons.model import Section

SECTIONS = {"a": Section("a", "A", "[[fig:n]] steps")}
BOTH = {"zh": "文", "en": "text"}
ENTRIES = {
    "id": "l0_test", "number": 1, "minutes": 3, "core": True, "sentence": BOTH,
    "scenes": [{"id": "a", "kind": "text", "view": "swimlane", "state": {"B": 8}}],
    "figures": [{"key": "n", "label": "counted", "format": "int", "source": "static.8.steps", "note": BOTH}],
}  # fmt: skip


def make(**changes):
    return build({**copy.deepcopy(ENTRIES), **changes}, "en", "T", "L", SECTIONS)


def figure(**changes):
    return {**copy.deepcopy(ENTRIES["figures"][0]), **changes}


def question(*rights):
    choices = [{"text": BOTH, "right": right, "feedback": BOTH} for right in rights]
    return {"id": "q", "scene": "a", "text": BOTH, "choices": choices}


def test_builds_a_lesson_with_what_hangs_on_its_scenes():
    lesson = make(quiz=[question(False, True)])
    assert lesson.scene("a").quiz[0].choices[1].right
    assert lesson.figures["n"].source == "static.8.steps"
    assert lesson.scene("a").core is False


def test_reads_markdown():
    title, lede, sections = read_markdown("# T\n\nlede\n\n## {#a} First\n\nx\n\n## {#b-2} Second\n\n### y\n", "t")
    assert (title, lede, list(sections)) == ("T", "lede", ["a", "b-2"])
    assert sections["b-2"] == Section("b-2", "Second", "### y")


@pytest.mark.parametrize(
    ("text", "message"),
    [("no title", "first line"), ("# T\n\n## No id\n", "every section"), ("# T\n## {#a} A\n## {#a} B\n", "twice")],
)
def test_malformed_markdown_is_an_error(text, message):
    with pytest.raises(LessonError, match=message):
        read_markdown(text, "t")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sentence": {"zh": "文"}}, "both zh and en"),
        ({"minutes": "3"}, "minutes"),
        ({"scenes": []}, "scenes need ids"),
        ({"scenes": [{"id": "b", "kind": "text", "view": "v", "state": {}}]}, "no section 'b'"),
        ({"scenes": [{"id": "a", "kind": "song", "view": "v", "state": {}}]}, "kind 'song'"),
        ({"figures": []}, "no figure 'n'"),
        ({"figures": [figure(), figure()]}, "twice"),
        ({"figures": [figure(label="guessed")]}, "label 'guessed'"),
        ({"figures": [figure(source="static.8.mood")]}, "unknown source path"),
        ({"figures": [figure(value=3)]}, "only a quoted figure"),
        ({"figures": [figure(label="quoted", value=3, cite="orca")]}, "quoted figure has a value and a cite"),
        ({"quiz": [question(False, False)]}, "exactly one is right"),
        ({"quiz": [question(True, True)]}, "exactly one is right"),
        ({"quiz": [{**question(True, False), "scene": "z"}]}, "scene 'z'"),
        ({"code": [{"scene": "a", "object": "engine.policies", "caption": BOTH}]}, "module:Qualified.name"),
        ({"goals": [{"id": "g", "scene": "a", "quantity": "x", "text": BOTH, "done": BOTH}]}, "at_least or at_most"),
        ({"route": [{"id": "r", "scene": "a", "name": BOTH, "text": BOTH, "by_way": True}]}, "by-way 'r'"),
        ({"route": [{"id": "r", "scene": "a", "name": BOTH, "text": BOTH, "figures": ["zz"]}]}, "no figure 'zz'"),
        ({"sentence": {"zh": "文", "en": "[[cite:nobody]]"}}, "no source 'nobody'"),
    ],
)
def test_a_broken_lesson_is_an_error_that_names_the_entry(changes, message):
    with pytest.raises(LessonError, match=message):
        make(**changes)


def test_unknown_lessons_and_languages_are_errors():
    assert "l1_batching" in lesson_ids()
    with pytest.raises(LessonError, match="no lesson"):
        load("../secrets", "zh")
    with pytest.raises(LessonError, match="no language"):
        load("l1_batching", "fr")


def test_a_guess_may_be_a_choice():
    entry = {**question(False, True), "kind": "choice", "question": BOTH}
    (guess,) = make(predictions=[entry]).scene("a").predictions
    assert [choice.right for choice in guess.choices] == [False, True]
    assert guess.feedback is None
    with pytest.raises(LessonError, match="exactly one is right"):
        make(predictions=[{**entry, **question(False, False)}])


def test_a_formula_and_its_terms_belong_together():
    terms = [{"id": "n", "name": BOTH, "text": BOTH}]
    entry = {"id": "f", "scene": "a", "expression": "{n} / 4", "text": BOTH, "terms": terms}
    (formula,) = make(formulas=[entry]).scene("a").formulas
    assert formula.terms[0].name == "text"
    for wrong in ("4", "{n} / {b}"):
        with pytest.raises(LessonError, match="must be the same"):
            make(formulas=[{**entry, "expression": wrong}])
