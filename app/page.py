"""Composes what a page's component gets: the lesson's text as HTML, the words, the links, the first picture.

Everything here is plain data and the same for every visitor, so it is made once per language and lesson.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from app import lanes
from app.figures import value_of
from app.text import Renderer, code_of
from lessons.figures import show
from lessons.loader import load
from lessons.model import Lesson, Scene
from lessons.words import LANGUAGES, words

LABELS = ("measured", "counted", "derived", "quoted")
PAGES = {1: ("batching", "l1_batching")}
"""Lessons that have a page: number → (address, lesson id)."""
GROUPS = ("mode", "policy", "length_names", "arrival_names", "codes", "errors")
FIRST_SLOTS = 8


def language(asked: str | None) -> str:
    """The language asked for, or Chinese."""
    return asked if asked in LANGUAGES else LANGUAGES[0]


@cache
def lesson_page(number: int, lang: str) -> dict[str, Any]:
    """Data of a lesson's page."""
    slug, lesson_id = PAGES[number]
    lesson = load(lesson_id, lang)
    ui = words(lang).group("ui")
    render = Renderer(lesson, {label: ui[label] for label in LABELS})
    title = words(lang)[f"lesson_names.n{number}"]
    return {
        **_frame(slug, lang),
        "title": render.inline(lesson.title),
        "lede": render.inline(lesson.lede),
        "kicker": words(lang).fill("ui.kicker", n=number, title=title, minutes=lesson.minutes),
        "sentence": render.inline(lesson.sentence),
        "scenes": [_scene(scene, render, lesson) for scene in lesson.scenes],
        "slots": list(lanes.SLOTS),
        "lengths": list(lanes.LENGTHS),
        "arrivals": list(lanes.ARRIVALS),
    }


@cache
def home_page(lang: str) -> dict[str, Any]:
    """Data of the first page."""
    return _frame("", lang)


def _frame(slug: str, lang: str) -> dict[str, Any]:
    """What every page has: words, navigation, the first picture."""
    table = words(lang)
    return {
        "slug": slug,
        "lang": lang,
        "words": {**table.group("ui"), **{group: table.group(group) for group in GROUPS}},
        "nav": [
            {
                "number": n,
                "title": table[f"lesson_names.n{n}"],
                "long": table[f"lesson_questions.n{n}"],
                "slug": PAGES[n][0] if n in PAGES else "",
            }
            for n in range(1, 10)
        ],
        "initial": {"B": FIRST_SLOTS, "lanes": lanes.lanes_for(lanes.LaneSpec(), FIRST_SLOTS)},
    }


def _scene(scene: Scene, render: Renderer, lesson: Lesson) -> dict[str, Any]:
    return {
        "id": scene.id,
        "core": scene.core,
        "title": render.inline(scene.section.title),
        "html": render.block(scene.section.text),
        "state": dict(scene.state),
        "route": [
            {"name": render.inline(stop.name), "html": render.inline(stop.text), "by": stop.by_way}
            for stop in scene.route
        ],
        "predictions": [
            {
                "id": guess.id,
                "html": render.inline(guess.question),
                "start": int(guess.start),
                "tolerance": guess.tolerance,
                "answer": 100 * value_of(guess.answer),
                "shown": show(value_of(guess.answer), "pct1"),
                "close": render.inline(guess.feedback.close),
                "high": render.inline(guess.feedback.high),
                "low": render.inline(guess.feedback.low),
            }
            for guess in scene.predictions
        ],
        "tries": [
            {"html": render.inline(item.text), "answer": render.inline(item.answer), "state": dict(item.state)}
            for item in scene.tries
        ],
        "goals": [
            {
                "id": goal.id,
                "html": render.inline(goal.text),
                "done": render.inline(goal.done),
                "quantity": goal.quantity,
                "at_least": goal.at_least,
                "at_most": goal.at_most,
            }
            for goal in scene.goals
        ],
        "code": [{**code_of(code.object), "caption": render.inline(code.caption)} for code in scene.code],
        "misconceptions": [
            {
                "claim": render.inline(m.claim),
                "truth": render.inline(m.truth),
                "experiment": render.inline(m.experiment),
                "state": dict(m.state),
            }
            for m in scene.misconceptions
        ],
        "quiz": [
            {
                "html": render.inline(question.text),
                "choices": [
                    {"html": render.inline(c.text), "right": c.right, "feedback": render.inline(c.feedback)}
                    for c in question.choices
                ],
            }
            for question in scene.quiz
        ],
    }
