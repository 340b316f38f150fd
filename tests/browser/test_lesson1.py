"""Lesson 1 in a real browser: figures, controls without round trips, addresses, keyboard, rubbish, small screens."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import quote, urlparse

import pytest

from lessons.loader import load
from lessons.words import words
from tests.browser import pages
from tests.browser.pages import CONTRAST, OUTSIDE, SMALL, WIDE, component, query, state

pytestmark = pytest.mark.browser

END = 9_999_999
until = partial(pages.until, timeout=10_000)


def big(page, policy: str) -> str:
    return page.locator(f".pan[data-policy={policy}] .big").inner_text().replace("\n", "")


def set_slots(page, slots: int) -> None:
    """Move the slider as a hand does, one notch at a time."""
    page.locator(".slots").focus()
    for _ in range(24):
        now = int(state(page)["b"])
        if now == slots:
            return
        page.keyboard.press("ArrowRight" if now < slots else "ArrowLeft")
    pytest.fail(f"B = {slots} is not on the slider")


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_published_figures_are_on_the_page(visit, lang):
    page = visit(f"/batching?lang={lang}&guess=75&step={END}")
    until(page, kept="20")
    seen = {}
    for slots in (8, 16):
        set_slots(page, slots)
        for policy in ("static", "continuous"):
            text = page.locator(f".pan[data-policy={policy}] .pm").inner_text()
            seen[slots, policy] = (re.findall(r"[\d,]+", text)[0], big(page, policy))
    assert seen == {
        (8, "static"): ("2,116", "58.7%"),
        (8, "continuous"): ("1,335", "93.1%"),
        (16, "static"): ("1,258", "49.4%"),
        (16, "continuous"): ("790", "78.6%"),
    }


def test_predict_first(visit):
    page = visit("/batching")
    assert big(page, "static") == big(page, "continuous") == "?"
    page.keyboard.press("Space")
    assert state(page)["step"] == "0"
    page.locator(".pl").click()  # leads to the guess
    until(page, scene="guess")
    box = page.locator("[data-guess=static8]")
    box.locator("input").fill("64")
    box.locator(".commit").click()
    assert big(page, "static") == "58.7%"
    assert "64%" in box.inner_text()
    assert "58.7%" in box.inner_text()
    page.wait_for_function("document.querySelector('[data-ready]').dataset.step > 20")  # it plays
    page.wait_for_url(re.compile("guess=64"))


def test_no_websocket_message_while_playing_scrubbing_or_changing(visit):
    page = visit("/batching?guess=75&step=0")
    until(page, kept="20")  # the other numbers of slots came over HTTP
    frames = []
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    for event in ("Network.webSocketFrameSent", "Network.webSocketFrameReceived"):
        cdp.on(event, lambda frame: frames.append(frame) if frame["response"]["opcode"] in (1, 2) else None)
    slowest = 0.0
    for slots in (9, 16, 64, 8):
        set_slots(page, slots)
        slowest = max(slowest, float(state(page)["pickMs"]))
    page.locator("[data-mode=static]").click()
    page.locator(".pl").click()
    page.wait_for_timeout(800)
    assert int(state(page)["step"]) > 20
    box = page.locator(".pan[data-policy=static] canvas").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    for i in range(20):
        page.mouse.move(box["x"] + 60 + 20 * i, box["y"] + 20)
    page.mouse.up()
    assert 0 < int(state(page)["step"]) < 2116
    page.locator(".next").click()
    page.locator("[data-speed='400']").click()
    page.locator(".reset").click()
    page.wait_for_timeout(400)
    assert frames == []
    assert slowest < 120


ADDRESSES = [
    "guess=75&scene=naive&mode=both&B=12&step=311&window=500&log=continuous",
    "lang=en&theme=dark&guess=60&scene=better&step=77&window=90",
    "guess=0&scene=result&B=64&lengths=one_long&arrivals=bursts:8:100&step=40",
    "guess=75&lengths=own&own=3,1,2&B=2&step=2&mode=continuous&present=true",
    "scene=naive&B=4",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_restores_the_exact_state(visit, address):
    page = visit("/batching?" + address)
    wanted = dict(pair.split("=") for pair in address.split("&"))
    shown = until(page, b=wanted.get("B", "8"), scene=wanted.get("scene", "way"))
    if "guess" in wanted:
        assert shown["step"] == wanted["step"]
    for key in ("mode", "window", "arrivals"):
        assert shown[key] == wanted.get(key, shown[key])
    assert shown["workload"] == wanted.get("lengths", "real64")
    page.keyboard.press(",")  # a change and back again: what is written is what was read
    page.keyboard.press(".")
    page.wait_for_timeout(500)
    assert query(page) == wanted
    assert page.locator(".notice").count() == 0


def test_language_and_reload_keep_the_state(visit):
    page = visit("/batching?guess=75&B=12&step=50")
    page.locator(".lang").click()
    page.get_by_text(words("en")["policy.static"], exact=True).first.wait_for()
    shown = until(page, b="12", scene="way", step="50")
    assert query(page)["lang"] == "en"
    page.reload()
    page.wait_for_selector("[data-ready='1']", state="attached")
    assert until(page, b="12")["step"] == shown["step"]
    assert page.locator(".lang").inner_text() == "中文"


@pytest.mark.parametrize(
    ("text", "said"),
    [("12, many", "“many”"), ("5, 0", "item 2"), ("1000000000000", "between 1"), ("", "at least one")],
)
def test_a_bad_own_list_is_explained_where_it_was_typed(visit, text, said):
    page = visit("/batching?lang=en&guess=75&step=10")
    page.locator("select.lengths").select_option("own")
    page.locator(".own textarea").fill(text)
    page.locator(".own .use").click()
    error = page.locator(".own .err")
    error.wait_for(state="visible", timeout=10_000)
    assert said in error.inner_text().lower()
    assert page.locator(".own textarea").input_value() == text
    assert big(page, "static") == "58.7%"  # the last picture stays
    page.locator(".own textarea").fill("5, 6, 7")
    page.locator(".own .use").click()
    error.wait_for(state="hidden", timeout=10_000)
    page.wait_for_url(re.compile("own=5"))
    assert "3" in page.locator(".load .facts").inner_text()


@pytest.mark.parametrize(
    ("rubbish", "named"),
    [
        ("B=<script>alert(1)</script>", ["B"]),
        ("B=99999999999&mode=magic&step=-4&window=x", ["B", "mode", "step", "window"]),
        ("lang=<img src=x onerror=alert(1)>", ["lang"]),
        ("own=<script>alert(1)</script>&lengths=own", ["own"]),
        ("scene=%00&guess=1e9&theme=pink&foo=<b>bar</b>", ["scene", "guess", "theme"]),
        ("arrivals=poisson:7&B=17", ["arrivals", "B"]),
    ],
)
def test_rubbish_in_the_address_is_ignored_and_said(visit, rubbish, named):
    page = visit("/batching?" + quote(rubbish, safe="=&%:"))
    notice = page.locator(".notice")
    text = notice.inner_text()
    assert all(f"{name}=" in text for name in named)
    assert notice.locator("script, img, b").count() == 0
    assert page.locator("h1").is_visible()
    assert page.locator("text=Traceback").count() == 0
    assert until(page, b="8", mode="both")
    notice.locator("button").click()
    assert notice.count() == 0


def test_keyboard(visit):
    page = visit("/batching?guess=75&step=100")
    page.keyboard.press(".")
    assert state(page)["step"] == "101"
    page.keyboard.press(",")
    assert state(page)["step"] == "100"
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('[data-ready]').dataset.step > 110")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    until(page, scene="why")
    page.keyboard.press("ArrowLeft")
    until(page, scene="way")
    page.locator(".slots").focus()
    page.keyboard.press("ArrowRight")  # belongs to the slider now
    assert until(page, b="9")["scene"] == "way"
    page.keyboard.press("Tab")
    ring = "e => getComputedStyle(e.shadowRoot.activeElement).outlineStyle"
    assert component(page).evaluate(ring) == "solid"


def test_projector(visit):
    page = visit("/batching?guess=75&present=true", width=1920, height=1080)
    assert page.locator(".sc:visible").count() == 1
    for _ in range(len(load("l1_batching", "zh").scenes) - 1):
        assert component(page).evaluate(SMALL) == []
        page.keyboard.press("ArrowRight")
    until(page, scene=load("l1_batching", "zh").scenes[-1].id)
    page.keyboard.press("Escape")
    assert page.locator(".sc:visible").count() > 1
    assert "present" not in query(page)


@pytest.mark.parametrize("path", ["/?lang=en", "/batching", "/batching?lang=en&guess=75&scene=naive"])
def test_nothing_scrolls_sideways_on_a_phone(visit, path):
    page = visit(path, width=390, height=844)
    assert max(page.evaluate(WIDE)) <= 390
    assert component(page).evaluate(OUTSIDE) == []


def test_the_picture_stays_in_view(visit):
    page = visit("/batching?guess=75")
    page.mouse.move(300, 500)
    page.mouse.wheel(0, 2500)
    page.wait_for_timeout(500)
    box = page.locator(".player").bounding_box()
    assert 0 <= box["y"] < 60
    assert box["y"] + page.locator(".stage").bounding_box()["height"] < 900
    assert state(page)["scene"] != "way"  # scrolling changed the scene


def test_dark_theme_reaches_the_whole_page_and_can_be_switched(visit):
    page = visit("/batching", dark=True)
    background = "getComputedStyle(document.querySelector('.stApp')).backgroundColor"
    assert page.evaluate(background) == "rgb(16, 20, 24)"
    page.locator("button.theme").click()
    assert page.evaluate(background) == "rgb(252, 252, 250)"
    assert query(page)["theme"] == "light"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(visit, theme):
    page = visit(f"/batching?guess=75&theme={theme}&step=500")
    assert component(page).evaluate(CONTRAST) == []


def test_reduced_motion_does_not_start_by_itself(visit):
    page = visit("/batching?scene=guess", still=True)
    page.locator(".commit").click()
    page.wait_for_timeout(500)
    assert state(page)["playing"] == ""
    assert big(page, "static") == "58.7%"


def test_everything_on_the_page_can_be_opened(visit):
    page = visit("/batching?lang=en&guess=75")
    for button in page.locator(".way button").all():
        button.click()
        assert len(page.locator(".stop").inner_text()) > 30
    page.locator("details.code summary").first.click()
    assert re.search(r"\b(class|def) \w+", page.locator("details.code pre").first.inner_text())
    page.locator(".prose .chip.derived").first.click()
    assert len(page.locator(".pop").inner_text()) > 10
    page.keyboard.press("Escape")
    assert page.locator(".pop").count() == 0
    page.locator(".prose .chip.quoted").first.click()
    assert page.locator(".pop a").get_attribute("href").startswith("https://")
    for button in page.locator(".quiz [data-choice]").all():
        button.click()
    assert all(len(text) > 15 for text in page.locator(".quiz .fb").all_inner_texts())


def test_the_text_twin_says_what_the_picture_shows(visit):
    page = visit("/batching?lang=en&guess=75&step=86&mode=continuous")
    page.locator("details.twin summary").click()
    runs, seats, requests = (table.inner_text() for table in page.locator("details.twin table").all())
    assert "1,335" in runs
    assert "93.1%" in runs
    assert re.search(r"^7\s+9\s+generating|^7\s+9\s+writing", seats, re.MULTILINE)  # request 9 sits in slot 7
    assert len(requests.splitlines()) >= 65


def test_a_try_leads_to_its_state(visit):
    page = visit("/batching?guess=75&scene=result")
    item = next(scene for scene in load("l1_batching", "zh").scenes if scene.tries).tries[0]
    page.wait_for_timeout(900)
    page.locator("[data-try='0']").first.click()
    until(page, mode=item.state["mode"], b=item.state["B"])
    assert page.locator(".try li.ok").count() == 1
    page.locator(".try details summary").first.click()
    assert len(page.locator(".try details").first.inner_text()) > 10


def test_arrivals_show_that_nobody_is_there_yet(visit):
    page = visit(f"/batching?guess=75&step={END}")
    page.locator("select.kind").select_option("poisson")
    until(page, arrivals="poisson:0.05")
    page.wait_for_selector(".lg .late", state="visible")
    page.locator(".rate select").select_option("0.2")
    until(page, arrivals="poisson:0.2")
    page.locator("select.kind").select_option("bursts")
    until(page, arrivals="bursts:16:200")
    page.locator("select.size").select_option("4")
    until(page, arrivals="bursts:4:200")
    page.locator(".reset").click()
    until(page, arrivals="all")


def test_home_leads_to_the_lesson_and_keeps_the_language(visit):
    page = visit("/")
    page.locator(".lang").click()
    page.get_by_text(words("en")["ui.begin"]).wait_for()
    page.locator("a.btn").click()
    page.wait_for_selector("details.code", state="attached")
    assert query(page)["lang"] == "en"
    assert urlparse(page.url).path == "/batching"
