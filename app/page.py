"""Composes what a page's component gets: the lesson's text as HTML, the words, the links, the first picture.

Everything but the first picture is plain data, the same for every visitor, and made once per lesson and language. What
a view needs beyond the text is in app/views.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from app import views
from app.code import excerpt
from app.figures import value_of
from app.text import Renderer
from lessons.figures import LABELS, show
from lessons.loader import load
from lessons.model import Choice, Formula, Prediction, Scene, Stop
from lessons.words import LANGUAGES, Words, words

PAGES = {
    1: ("batching", "l1_batching"),
    2: ("reservation", "l2_reservation"),
    3: ("paging", "l3_paging"),
    8: ("live", "l8_live"),
}
"""Lessons that have a page: number → (address, lesson id)."""
LESSONS = range(1, 10)
GROUPS = (
    *("mode", "policy", "length_names", "arrival_names", "codes", "errors", "outcomes", "twin"),
    *("figures", "live", "board", "account", "split"),
)


def language(asked: str | None) -> str:
    """The language asked for, or Chinese."""
    return asked if asked in LANGUAGES else LANGUAGES[0]


def lesson_page(number: int, params: Mapping[str, str]) -> dict[str, Any]:
    """Data of a lesson's page for an address."""
    lang = language(params.get("lang"))
    lesson = load(PAGES[number][1], lang)
    scene = next((scene for scene in lesson.scenes if scene.id == params.get("scene")), lesson.scenes[0])
    return {**_lesson(number, lang), **views.first(scene.view, scene.state, params)}


def home_page(params: Mapping[str, str]) -> dict[str, Any]:
    """Data of the first page."""
    return {**_frame("", language(params.get("lang"))), **views.first("swimlane", {}, {})}


@cache
def _lesson(number: int, lang: str) -> dict[str, Any]:
    slug, lesson_id = PAGES[number]
    lesson, table = load(lesson_id, lang), words(lang)
    render = Renderer(lesson, {label: table[f"ui.{label}"] for label in LABELS})
    return {
        **_frame(slug, lang),
        "title": render.heading(lesson.title),
        "lede": render.inline(lesson.lede),
        "kicker": table.fill("ui.kicker", n=number, title=table[f"lesson_names.n{number}"], minutes=lesson.minutes),
        "sentence": render.inline(lesson.sentence),
        "scenes": [_scene(scene, render, table) for scene in lesson.scenes],
        **views.common({scene.view for scene in lesson.scenes}, lang),
    }


@cache
def _frame(slug: str, lang: str) -> dict[str, Any]:
    """What every page has: words and navigation."""
    table = words(lang)
    return {
        "slug": slug,
        "lang": lang,
        "words": {**table.group("ui"), **{group: table.group(group) for group in GROUPS}},
        "nav": [
            {
                "number": n,
                "title": table[f"lesson_names.n{n}"],
                "question": table[f"lesson_questions.n{n}"],
                "slug": PAGES[n][0] if n in PAGES else "",
                "minutes": load(PAGES[n][1], lang).minutes if n in PAGES else 0,
            }
            for n in LESSONS
        ],
    }


def _scene(scene: Scene, render: Renderer, table: Words) -> dict[str, Any]:
    names = {stop.id: render.inline(stop.name) for stop in scene.route}
    return {
        "id": scene.id,
        "core": scene.core,
        "view": scene.view,
        "title": render.heading(scene.section.title),
        "html": render.block(scene.section.text),
        "state": dict(scene.state),
        "route": [_stop(stop, names, render) for stop in scene.route],
        "formulas": [_formula(formula, render) for formula in scene.formulas],
        "charts": [
            {"id": chart.id, "name": chart.name, "caption": render.inline(chart.caption)} for chart in scene.charts
        ],
        "predictions": [_prediction(guess, render, table) for guess in scene.predictions],
        "tries": [
            {
                "id": item.id,
                "html": render.inline(item.text),
                "answer": render.inline(item.answer),
                "state": dict(item.state),
            }
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
        "code": [_code(code.object, render.inline(code.caption)) for code in scene.code],
        "misconceptions": [
            {
                "claim": render.inline(myth.claim),
                "truth": render.inline(myth.truth),
                "experiment": render.inline(myth.experiment),
                "state": dict(myth.state),
            }
            for myth in scene.misconceptions
        ],
        "quiz": [
            {"html": render.inline(question.text), "choices": _choices(question.choices, render)}
            for question in scene.quiz
        ],
    }


def _stop(stop: Stop, names: dict[str, str], render: Renderer) -> dict[str, Any]:
    return {
        "id": stop.id,
        "name": names[stop.id],
        "html": render.inline(stop.text),
        "by_way": stop.by_way,
        "loop": stop.loop,
        "leaves": names.get(stop.leaves or "", ""),
        "joins": names.get(stop.joins or "", ""),
    }


def _choices(choices: tuple[Choice, ...], render: Renderer) -> list[dict[str, Any]]:
    return [{"html": render.inline(c.text), "right": c.right, "feedback": render.inline(c.feedback)} for c in choices]


def _prediction(guess: Prediction, render: Renderer, table: Words) -> dict[str, Any]:
    made = {"id": guess.id, "kind": guess.kind, "html": render.inline(guess.question)}
    if guess.feedback is None:
        return {**made, "choices": _choices(guess.choices, render)}
    value = value_of(guess.answer)
    policy, slots = (*guess.answer.split("."), "")[:2]
    percent = guess.kind == "percent"
    return {
        **made,
        "about": f"{policy}.{slots}",
        "start": guess.start,
        "tolerance": guess.tolerance,
        "answer": 100 * value if percent else value,
        "shown": show(value, "pct1" if percent else "int"),
        "name": table[f"mode.{policy}"] if f"mode.{policy}" in table else table["ui.counted"],
        "close": render.inline(guess.feedback.close),
        "high": render.inline(guess.feedback.high),
        "low": render.inline(guess.feedback.low),
    }


def _formula(formula: Formula, render: Renderer) -> dict[str, Any]:
    return {
        "id": formula.id,
        "expression": formula.expression,
        "html": render.inline(formula.text),
        "terms": [{"id": term.id, "name": term.name, "html": render.inline(term.text)} for term in formula.terms],
    }


def _code(reference: str, caption: str) -> dict[str, Any]:
    found = excerpt(reference)
    return {"caption": caption, "file": found["file"], "line": found["line"], "html": found["html"]}
