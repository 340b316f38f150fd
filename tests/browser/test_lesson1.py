"""Lesson 1 in a real browser: figures, controls without round trips, links, keyboard, rubbish, small screens."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlparse

import pytest

from lessons.loader import load
from lessons.words import words

pytestmark = pytest.mark.browser

PUBLISHED = [
    (8, "static", "2,116", "58.7"),
    (8, "continuous", "1,335", "93.1"),
    (16, "static", "1,258", "49.4"),
    (16, "continuous", "790", "78.6"),
]


def host(page):
    return page.locator("[data-ready]").first


def state(page) -> dict:
    page.wait_for_timeout(300)
    return host(page).evaluate("e => ({...e.dataset})")


def query(page) -> dict:
    return {k: v[0] for k, v in parse_qs(urlparse(page.url).query).items()}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_published_figures_are_on_the_page(visit, lang):
    for slots in (8, 16):
        page = visit(f"/batching?lang={lang}&guess=75&mode=both&B={slots}&step=9999999")
        for b, policy, steps, utilisation in PUBLISHED:
            if b == slots:
                panel = page.locator(f".pan[data-p={policy}]")
                assert steps in panel.locator(".pm").inner_text()
                assert panel.locator(".big").inner_text().replace("\n", "") == f"{utilisation}%"


def test_predict_first(visit):
    page = visit("/batching")
    assert page.locator(".pan[data-p=static] .big").inner_text() == "?"
    page.locator("#gi").fill("64")
    page.locator("#go").click()
    assert page.locator(".pan[data-p=static] .big").inner_text().replace("\n", "") == "58.7%"
    assert "64%" in page.locator("[data-guess]").inner_text()
    assert "58.7%" in page.locator("[data-guess]").inner_text()
    page.wait_for_timeout(700)
    assert int(state(page)["step"]) > 0  # it plays
    assert query(page)["guess"] == "64"


def test_no_message_while_playing_scrubbing_or_changing_b(visit):
    page = visit("/batching?guess=75&mode=both&B=8&step=0")
    frames = []
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    for event in ("Network.webSocketFrameSent", "Network.webSocketFrameReceived"):
        cdp.on(event, lambda frame: frames.append(frame) if frame["response"]["opcode"] in (1, 2) else None)
    page.wait_for_timeout(4000)  # the other numbers of slots come over HTTP meanwhile
    frames.clear()
    slider = page.locator("#B")
    slider.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert state(page)["b"] == "14"
    assert float(state(page)["pickMs"]) < 200
    page.locator("#mode [data-m=static]").click()
    page.locator("#play").click()
    page.wait_for_timeout(800)
    box = page.locator(".pan[data-p=static] canvas").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    for i in range(12):
        page.mouse.move(box["x"] + 60 + 20 * i, box["y"] + 20)
    page.mouse.up()
    assert 0 < int(state(page)["step"]) < 2000
    assert frames == []


def test_a_link_restores_the_exact_state(visit):
    page = visit("/batching?guess=75&mode=static&B=8&step=310&window=420")
    page.locator("#mode [data-m=both]").click()
    page.locator("#B").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#stp").click()
    before = state(page)
    wanted = {k: before[k] for k in ("step", "b", "mode", "window")}
    again = visit(page.url[page.url.index("/batching") :])
    after = state(again)
    assert {k: after[k] for k in wanted} == wanted
    assert after["step"] == "311"
    assert after["b"] == "9"


def test_own_lengths_survive_in_the_link(visit):
    page = visit("/batching?guess=75&mode=both&B=2&step=9999999&lengths=own&own=3,1,2&arrivals=all")
    page.wait_for_function("document.querySelector('[data-ready=\"1\"]')?.dataset.b === '2'")
    assert "6" in page.locator(".pan[data-p=static] .pm").inner_text()
    assert page.locator("#own").input_value() == "3,1,2"


@pytest.mark.parametrize(
    ("text", "said"),
    [("12, many", "whole number"), ("0", "between 1"), ("1000000000000", "between 1"), ("", "at least one")],
)
def test_a_bad_own_list_is_said_where_it_was_typed(visit, text, said):
    page = visit("/batching?lang=en&guess=75&mode=both&B=8&step=10")
    page.locator("#len").select_option("own")
    page.locator("#own").fill(text)
    page.locator("#ownGo").click()
    page.wait_for_function("document.querySelector('[data-testid=stMain]') !== null")
    error = page.locator(".own .err")
    error.wait_for(state="visible", timeout=10_000)
    assert said in error.inner_text().lower()
    assert page.locator("#own").input_value() == text
    page.locator("#own").fill("5, 6, 7")
    page.locator("#ownGo").click()
    error.wait_for(state="hidden", timeout=10_000)
    assert state(page)["ready"] == "1"


@pytest.mark.parametrize(
    "rubbish",
    [
        "B=<script>alert(1)</script>",
        "B=99999999999&mode=magic&step=-4&window=x",
        "lang=<img src=x onerror=alert(1)>",
        "own=<script>alert(1)</script>&lengths=own",
        "scene=%00&guess=1e9&theme=pink&foo=<b>bar</b>",
    ],
)
def test_rubbish_in_the_link_is_ignored_and_said(visit, rubbish):
    page = visit("/batching?" + quote(rubbish, safe="=&%"))
    notice = page.locator(".notice")
    assert notice.is_visible()
    assert "<" not in notice.inner_html().replace("<p", "").split(":")[-1].split("：")[-1]
    assert page.locator("h1").is_visible()
    assert page.locator("text=Traceback").count() == 0


def test_keyboard(visit):
    page = visit("/batching?guess=75&mode=both&B=8&step=100")
    page.mouse.click(5, 400)
    page.keyboard.press(".")
    assert state(page)["step"] == "101"
    page.keyboard.press("Space")
    page.wait_for_timeout(400)
    page.keyboard.press("Space")
    assert int(state(page)["step"]) > 101
    page.keyboard.press("ArrowRight")
    assert state(page)["scene"] == "why"
    page.keyboard.press("ArrowLeft")
    assert state(page)["scene"] == "way"


@pytest.mark.parametrize("path", ["/", "/batching", "/batching?lang=en&guess=75&scene=naive"])
def test_nothing_scrolls_sideways_on_a_phone(visit, path):
    page = visit(path, width=390, height=844)
    wide = page.evaluate(
        "[document.documentElement, document.querySelector('[data-testid=stMain]')].map(e => e.scrollWidth)"
    )
    assert max(wide) <= 390


def test_dark_theme_reaches_the_whole_page_and_can_be_switched(visit):
    page = visit("/batching", dark=True)
    background = "getComputedStyle(document.querySelector('.stApp')).backgroundColor"
    assert page.evaluate(background) == "rgb(16, 20, 24)"
    page.locator("[data-theme-btn]").click()
    assert page.evaluate(background) == "rgb(252, 252, 250)"
    assert query(page)["theme"] == "light"


def test_reduced_motion_does_not_start_by_itself(visit):
    page = visit("/batching", still=True)
    page.locator("#go").click()
    page.wait_for_timeout(600)
    assert state(page)["step"] == "0"


def test_everything_on_the_page_can_be_opened(visit):
    page = visit("/batching?lang=en&guess=75")
    for index in range(page.locator(".route button").count()):
        page.locator(".route button").nth(index).click()
        assert len(page.locator(".stop").inner_text()) > 30
    page.locator("details.code summary").first.click()
    assert re.search(r"\b(class|def) \w+", page.locator("details.code pre").first.inner_text())
    page.locator(".chip.derived").first.click()
    assert len(page.locator("#pop").inner_text()) > 10
    for index in range(page.locator(".quiz [data-q]").count()):
        page.locator(".quiz [data-q]").nth(index).click()
    assert all(len(text) > 15 for text in page.locator(".quiz .fb").all_inner_texts())
    page.locator("details.twin summary").click()
    assert re.search(r"2,116", page.locator("details.twin table").inner_text())
    page.locator("[data-try='0']").first.scroll_into_view_if_needed()
    page.wait_for_timeout(800)  # the scene under the eye takes over first
    page.locator("[data-try='0']").first.click()
    page.wait_for_timeout(300)
    wanted = next(scene for scene in load("l1_batching", "en").scenes if scene.tries).tries[0].state
    assert state(page)["mode"] == wanted["mode"]


def test_language_switch_and_home(visit):
    page = visit("/")
    page.locator("[data-lang]").click()
    page.wait_for_selector(f"text={words('en')['ui.course']}")
    page.locator("a.btn").click()
    page.wait_for_selector("details.code", state="attached")
    assert query(page)["lang"] == "en"


def test_arrivals_show_that_nobody_is_there_yet(visit):
    page = visit("/batching?guess=75&mode=both&B=8&step=9999999&arrivals=poisson")
    page.wait_for_function("document.querySelector('[data-ready=\"1\"]') !== null")
    assert page.locator(".lg span.early").is_visible()
    assert page.locator(".pan[data-p=continuous]").get_attribute("data-steps") not in (None, "1335", "")
