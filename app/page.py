"""Composes what a page's component gets: the lesson's text as HTML, the words, the links, the first picture.

Everything but the first picture is plain data, the same for every visitor, and made once per lesson and language.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from app import lanes
from app.code import excerpt
from app.figures import value_of
from app.text import Renderer
from lessons.figures import LABELS, show
from lessons.loader import load
from lessons.model import Prediction, Scene, Stop
from lessons.words import LANGUAGES, Words, words

PAGES = {1: ("batching", "l1_batching"), 8: ("live", "l8_live")}
"""Lessons that have a page: number → (address, lesson id)."""
LESSONS = range(1, 10)
GROUPS = (
    *("mode", "policy", "length_names", "arrival_names", "codes", "errors", "outcomes", "twin"),
    *("figures", "live"),
)
PROMPTS = Path(__file__).parent.parent / "lessons" / "l8_live" / "prompts.toml"
"""What the live page offers to send."""
FIRST_SLOTS = 8


def language(asked: str | None) -> str:
    """The language asked for, or Chinese."""
    return asked if asked in LANGUAGES else LANGUAGES[0]


def lesson_page(number: int, params: Mapping[str, str]) -> dict[str, Any]:
    """Data of a lesson's page for an address."""
    page = _lesson(number, language(params.get("lang")))
    return {**page, "first": first_view(params)} if "swimlane" in page["views"] else page


def home_page(params: Mapping[str, str]) -> dict[str, Any]:
    """Data of the first page."""
    return {**_frame("", language(params.get("lang"))), "first": first_view({})}


def first_view(params: Mapping[str, str]) -> dict[str, Any]:
    """The lanes an address asks for, so that they are drawn at once; what it gets wrong falls back to the default.

    The browser reads the same address, and says there what it could not use.
    """
    try:
        spec = lanes.Spec.parse(params)
    except lanes.SpecError:
        spec = lanes.Spec()
    try:
        slots = lanes.parse_slots(params.get("B", ""))
    except lanes.SpecError:
        slots = FIRST_SLOTS
    return {
        "lengths": spec.lengths,
        "own": params.get("own", "") if spec.lengths == "own" else "",
        "arrivals": spec.arrivals,
        "B": slots,
        "lanes": lanes.lanes(spec, slots),
    }


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
        "views": sorted({scene.view for scene in lesson.scenes}),
        **_prompts(lang),
        "slots": list(lanes.SLOTS),
        "lengths": list(lanes.LENGTHS),
        "arrivals": {"kinds": lanes.DEFAULT_ARRIVALS, "rates": lanes.RATES, "sizes": lanes.BURSTS, "gaps": lanes.GAPS},
        "version": lanes.engine_hash(),
    }


def _prompts(lang: str) -> dict[str, Any]:
    """Openings by the language of a model, and names in the language of the page."""
    given = tomllib.loads(PROMPTS.read_text(encoding="utf-8"))
    return {"prompts": {key: given[key] for key in ("zh", "en", "long_zh", "long_en")}, "names": given["names"][lang]}


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


def _prediction(guess: Prediction, render: Renderer, table: Words) -> dict[str, Any]:
    value = value_of(guess.answer)
    policy, slots = (*guess.answer.split("."), "")[:2]
    percent = guess.kind == "percent"
    return {
        "id": guess.id,
        "kind": guess.kind,
        "about": f"{policy}.{slots}",
        "html": render.inline(guess.question),
        "start": guess.start,
        "tolerance": guess.tolerance,
        "answer": 100 * value if percent else value,
        "shown": show(value, "pct1" if percent else "int"),
        "name": table[f"mode.{policy}"] if f"mode.{policy}" in table else table["ui.counted"],
        "close": render.inline(guess.feedback.close),
        "high": render.inline(guess.feedback.high),
        "low": render.inline(guess.feedback.low),
    }


def _code(reference: str, caption: str) -> dict[str, Any]:
    found = excerpt(reference)
    return {"caption": caption, "file": found["file"], "line": found["line"], "html": found["html"]}
