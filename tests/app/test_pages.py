"""The pages as Streamlit runs them, in both languages and with every kind of address."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import views
from app.page import LESSONS, PAGES, home_page, language, lesson_page
from lessons.loader import load
from lessons.words import words

APP = Path(__file__).parents[2] / "app"
SCREENS = APP / "screens"


def data_of(page: Path, **query: str) -> dict:
    test = AppTest.from_file(str(page), default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    test.run()
    assert not test.exception
    return json.loads(test.get("bidi_component")[0].proto.json)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("page", ["home.py", "l1_batching.py"])
def test_pages_run_in_both_languages(page, lang):
    data = data_of(SCREENS / page, lang=lang)
    assert data["lang"] == lang
    assert data["words"]["course"] == words(lang)["ui.course"]
    assert data["first"]["lanes"]["static"]["steps"] == 2116
    assert data["first"]["lanes"]["continuous"]["steps"] == 1335


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("number", PAGES)
def test_every_lesson_has_a_screen(number, lang):
    slug, lesson_id = PAGES[number]
    data = data_of(SCREENS / f"{lesson_id}.py", lang=lang, guess="<script>", acts="s,<b>", scene="nowhere")
    assert (data["slug"], data["lang"]) == (slug, lang)
    assert len(data["scenes"]) == len(load(lesson_id, lang).scenes)
    assert "<script" not in json.dumps(data)
    assert len(json.dumps(data)) < 250_000


def test_the_first_board_is_the_one_of_the_address():
    page = SCREENS / "l3_paging.py"
    assert data_of(page, acts="s2", b="8")["first"]["acts"] == ["s", "s"]
    scene = data_of(page, scene="better")["first"]
    assert scene["acts"][-2:] == ["a9:12", "s"]
    assert data_of(page, scene="better", acts="a9:99")["first"] == scene


def test_the_script_opens_the_first_page():
    assert data_of(APP / "script.py")["slug"] == ""


def test_an_error_in_a_page_is_one_sentence(monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("app.page.home_page", broken)
    with caplog.at_level(logging.CRITICAL):
        test = AppTest.from_file(str(APP / "script.py"), default_timeout=60).run()
    assert not test.exception
    shown = " ".join(element.proto.body for element in test.get("html"))
    assert words("zh")["ui.error"] in shown
    assert "secret detail" not in shown


def test_the_first_view_is_the_one_of_the_address():
    view = data_of(SCREENS / "l1_batching.py", B="16", lengths="own", own="5, 9, 2", arrivals="bursts:4:50")["first"]
    assert (view["B"], view["lengths"], view["own"], view["arrivals"]) == (16, "own", "5, 9, 2", "bursts:4:50")
    assert view["lanes"]["static"]["lengths"] == [5, 9, 2]


@pytest.mark.parametrize(
    "query",
    [
        {"lang": "<script>alert(1)</script>", "B": "x" * 5000},
        {"lengths": "own", "own": "0"},
        {"lengths": "own", "own": "<script>alert(1)</script>"},
        {"arrivals": "poisson:1e9", "B": "-1"},
    ],
)
def test_rubbish_in_the_address_falls_back_to_the_default(query):
    data = data_of(SCREENS / "l1_batching.py", **query)
    assert data["lang"] == "zh"
    assert data["first"]["lanes"]["static"]["utilisation"] == pytest.approx(0.5871, abs=1e-4)
    assert "<script" not in json.dumps(data)


def test_languages():
    assert [language(asked) for asked in ("en", "zh", None, "fr")] == ["en", "zh", "zh", "zh"]


def test_the_lesson_shows_the_published_figures():
    html = json.dumps(lesson_page(1, {}), ensure_ascii=False)
    for shown in ("2,116", "1,335", "58.7%", "93.1%", "2,304", "51.25", "37.4%", "36.9"):
        assert shown in html, shown


def test_every_part_of_a_lesson_reaches_the_page():
    lesson, page = load("l1_batching", "en"), lesson_page(1, {"lang": "en"})
    assert [scene["id"] for scene in page["scenes"]] == [scene.id for scene in lesson.scenes]
    for sent, scene in zip(page["scenes"], lesson.scenes, strict=True):
        for part in ("route", "predictions", "tries", "goals", "code", "misconceptions", "quiz"):
            assert len(sent[part]) == len(getattr(scene, part)), (scene.id, part)
        assert sent["state"] == dict(scene.state)


def test_the_first_prediction_is_the_engines():
    guess = next(guess for scene in lesson_page(1, {})["scenes"] for guess in scene["predictions"])
    assert guess["about"] == "static.8"
    assert guess["answer"] == pytest.approx(58.713, abs=0.001)
    assert guess["shown"] == "58.7%"


def test_lessons_without_a_page_have_no_address():
    nav = home_page({})["nav"]
    assert [item["number"] for item in nav] == list(LESSONS)
    assert {item["number"] for item in nav if item["slug"]} == set(PAGES)


def test_pages_are_small_enough_to_open_at_once():
    assert len(json.dumps(lesson_page(1, {"lang": "en"}))) < 200_000
    assert views.first("swimlane", {}, {})["first"]["B"] == 8
