"""Lesson 3 in a real browser: the scene read off the cells, presses that queue, undo, addresses, bad input, looks."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from app.board import SCENE
from engine import CountingRunner, Engine, EngineConfig, Request, SamplingParams
from lessons.loader import load
from lessons.words import words
from tests.browser.pages import CONTRAST_ENABLED, OUTSIDE, SMALL, WIDE, component, query, state, until

pytestmark = pytest.mark.browser

PARTS = ("live", "reserved", "tail_waste", "hole", "free")
SCENE_END = "/paging?guess=2&scene=breaks"


def side(page, name: str, part: str = "stage"):
    return page.locator(f".{part} [data-side={name}]")


def cells(page, name: str) -> list[tuple[str, int]]:
    found = side(page, name).locator(".cell").evaluate_all("c => c.map(x => [x.dataset.state, +x.dataset.owner])")
    return [(what, owner) for what, owner in found]


def run(text: str) -> list[tuple[str, int]]:
    """ "live1*13 hole0*10" as cells."""
    made = []
    for word in text.split():
        what, count = word.split("*")
        made += [(what.rstrip("0123456789"), int(what[-1]))] * int(count)
    return made


def tables(page) -> dict[int, list[int]]:
    rows = side(page, "paged", "rest").locator("[data-table]")
    found = rows.evaluate_all(
        "r => r.map(x => [x.dataset.table, [...x.querySelectorAll('[data-block]')].map(b => b.dataset.block)])"
    )
    return {int(n): [int(block) for block in blocks] for n, blocks in found}


def share(page, name: str) -> str:
    return side(page, name).locator(".big").inner_text().replace("\n", "")


def press(page, act: str, at: int) -> None:
    page.locator(f"[data-act={act}]").click()
    until(page, at=at)


def test_the_scene_press_by_press(visit):
    """Four steps, request 2 ends in the fourth, request 4 arrives, one step; the tables are the engine's own."""
    engine = Engine(EngineConfig(12, block_size=4, max_num_seqs=12), CountingRunner())

    def submit(number, prompt, max_tokens):
        engine.submit(Request(tuple(range(prompt)), SamplingParams(max_tokens=max_tokens), request_id=str(number)))

    for number, prompt, max_tokens in ((1, 9, 7), (2, 6, 4), (3, 10, 6)):
        submit(number, prompt, max_tokens)
    page = visit("/paging?guess=2&acts=-")
    assert cells(page, "contiguous") == cells(page, "paged") == run("free0*48")
    left = [
        "live1*9 reserved1*7 live2*6 reserved2*4 live3*10 reserved3*6 free0*6",
        "live1*10 reserved1*6 live2*7 reserved2*3 live3*11 reserved3*5 free0*6",
        "live1*11 reserved1*5 live2*8 reserved2*2 live3*12 reserved3*4 free0*6",
        "live1*12 reserved1*4 free0*10 live3*13 reserved3*3 free0*6",
    ]
    for step, wanted in enumerate(left, 1):
        press(page, "s", step)
        engine.step()
        assert cells(page, "contiguous") == run(wanted)
        assert tables(page) == {int(k[:-2]): v for k, v in engine.block_tables().items()}
    page.locator(".arrive .length").fill("9")
    page.locator(".arrive .limit").fill("12")
    press(page, "arrive", 5)
    submit(4, 9, 3)
    press(page, "s", 6)
    engine.step()
    assert cells(page, "contiguous") == run("live1*13 reserved1*3 hole0*10 live3*14 reserved3*2 hole0*6")
    right = cells(page, "paged")
    assert right[:16] == run("live1*12 free0*4")
    assert right[16:] == run(
        "live4*1 tail_waste4*3 live3*12 live4*4 live3*2 tail_waste3*2 live1*1 tail_waste1*3 live4*4"
    )
    assert tables(page) == {int(k[:-2]): v for k, v in engine.block_tables().items()}
    assert tables(page)[4] == [11, 8, 4]
    last = side(page, "contiguous", "rest").locator(".log li").last
    assert last.get_attribute("data-code") == "NO_RUN(10)"
    assert "NO_RUN(10)" in last.inner_text()
    assert side(page, "paged", "rest").locator(".log li").last.get_attribute("data-code") == "ADMITTED"
    assert (share(page, "contiguous"), share(page, "paged")) == ("56.3%", "75.0%")
    for name in ("contiguous", "paged"):
        drawn = cells(page, name)
        for part in PARTS:
            key = side(page, name, "rest").locator(f"[data-part={part}]")
            assert int(key.inner_text()) == sum(what == part for what, _ in drawn)


def test_guess_first(visit):
    page = visit("/paging")
    page.locator("[data-act=s]").click()  # the story so far may be played
    until(page, at=1)
    page.locator("[data-act=arrive]").click()  # anything else leads to the guess
    until(page, scene="guess", at=5)
    page.locator("[data-act=s]").click()
    page.wait_for_timeout(300)
    assert state(page)["at"] == "5"
    page.locator("[data-guess=who] [data-pick='0']").click()
    until(page, at=6)  # it plays the next step
    box = page.locator("[data-guess=who]").inner_text()
    (guess,) = load("l3_paging", "zh").scene("guess").predictions
    assert "✗" in box
    assert "✓" in box
    assert guess.choices[0].feedback.split("；")[0] in box
    page.wait_for_url("**guess=0**")


def test_ten_quick_clicks_lose_none_and_two_hundred_presses_come_back(visit):
    page = visit("/paging?guess=2&open=1:256,40:200&pool=256&acts=-")
    picture = "e => ['.stage', '.rest'].map(p => e.shadowRoot.querySelector('.board ' + p).innerHTML).join('')"
    start, address = component(page).evaluate(picture), page.url
    button = page.locator("[data-act=s]")
    button.evaluate("b => { for (let i = 0; i < 10; i++) b.click() }")
    assert until(page, at=10, pending=0)["acts"] == "s10"
    key = """([key, times]) => {
      for (let i = 0; i < times; i++) document.dispatchEvent(new KeyboardEvent('keydown', {key}));
    }"""
    page.evaluate(key, ["g", 190])
    until(page, at=200, pending=0)
    page.wait_for_url("**acts=s200**")
    page.evaluate(key, ["z", 200])
    until(page, at=0)
    assert component(page).evaluate(picture) == start
    page.locator("[data-act=reset]").click()
    page.wait_for_url(address)


def test_finish_undo_redo_reset_and_auto(visit):
    page = visit("/paging?guess=2&acts=s2")
    page.keyboard.press("2")
    assert until(page, at=3)["acts"] == "s2,f2"
    assert 2 not in tables(page)
    page.keyboard.press("u")
    until(page, at=2)
    assert 2 in tables(page)
    assert page.locator("[data-act=redo]").is_enabled()
    page.keyboard.press("y")
    until(page, at=3)
    page.keyboard.press("r")
    assert until(page, at=0)["total"] == "0"
    page.keyboard.press("a")
    until(page, at=1)
    until(page, at=2)
    page.keyboard.press("a")
    assert state(page)["running"] == ""


def test_a_block_tells_its_history_and_arrows_walk_the_grid(visit):
    page = visit(SCENE_END)
    side(page, "paged").locator(".cell[data-block='4']").nth(1).click()
    lines = side(page, "paged", "rest").locator(".log li").evaluate_all("l => l.map(x => x.dataset.what)")
    assert lines == ["taken", "written", "written", "written", "freed", "taken", "written"]
    page.wait_for_url("**block=p4**")
    first = side(page, "contiguous").locator(".cell").first
    first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    focused = component(page).evaluate("e => e.shadowRoot.activeElement.dataset.slot")
    assert focused == "17"
    assert state(page)["scene"] == "breaks"  # the arrows did not leave the scene
    page.keyboard.press("Enter")
    assert side(page, "contiguous", "rest").locator(".log li").first.get_attribute("data-what") == "taken"


def test_formula_and_chart(visit):
    page = visit("/paging?guess=2&scene=formula")
    page.locator(".formula .term[data-term=n]").first.click()
    said = page.locator(".formula").first.locator(".now")
    assert said.inner_text().split() == ["1", "13", "3", "14", "4", "9"]
    page.locator(".formula .term[data-term=allocated]").first.focus()
    page.keyboard.press("Enter")
    assert said.inner_text().split() == ["1", "16", "3", "16", "4", "12"]
    chart = page.locator(".chart")
    chart.scroll_into_view_if_needed()
    page.wait_for_selector(".chart[data-state=drawn] .bars .point", timeout=20_000)
    assert chart.locator(".bars .point").count() == 24
    assert chart.locator("tbody tr").count() == 8


def test_the_model_writes_on_the_same_board(visit):
    page = visit("/paging?guess=2&lang=en&scene=live")
    page.locator("[data-source=model]").click()
    page.wait_for_selector("[data-ready][data-model=written][data-same='1']", state="attached", timeout=60_000)
    left, right = (side(page, name, "rest").locator(".said li").all_inner_texts() for name in ("contiguous", "paged"))
    assert len(left) == len(right) == 4
    assert left[:3] == right[:3]
    assert left[3] != right[3]  # request 4 has not entered on the left
    assert side(page, "paged", "rest").locator(".said .chip.measured").count() == 1
    page.locator("[data-act=s]").click()
    until(page, at=7, model="written", same=1)
    page.locator("[data-source=counted]").click()
    assert not side(page, "paged", "rest").locator(".said").is_visible()


def test_a_bad_newcomer_is_refused_where_it_was_typed(visit):
    page = visit("/paging?guess=2&lang=en&acts=s3,f1&at=3")
    before = cells(page, "paged")
    error = page.locator("p.err.arrive")
    for length, limit, said in (
        ("9", "8", "limit 8"),
        ("0", "4", "“0”"),
        ("9", "99999999", "TOO_BIG"),
        ("9", "1000000000", "from 10 to 48"),
        ("9", "-3", "from 10 to 48"),
        ("<b>", "4", "“<b>”"),
        ("", "", "“”"),
    ):
        page.locator(".arrive .length").fill(length)
        page.locator(".arrive .limit").fill(limit)
        page.locator("[data-act=arrive]").click()
        error.get_by_text(said).wait_for()
        assert page.locator(".arrive input").evaluate_all("i => i.map(x => x.value)") == [length, limit]
        now = state(page)
        assert (cells(page, "paged"), now["acts"], now["total"]) == (before, "s3", "4")  # redo is still there
    page.locator(".arrive .length").fill("５")  # as a Chinese input method types it
    page.locator(".arrive .limit").fill("７")
    page.locator("[data-act=arrive]").click()
    assert until(page, at=4)["acts"] == "s3,a5:7"
    assert error.inner_text() == ""


def test_a_bad_opening_is_refused_where_it_was_typed(visit):
    page = visit("/paging?guess=2&lang=en&acts=s3", height=1700)
    page.locator(".opening summary").click()
    row = page.locator(".opening [data-row='1']")
    row.locator(".limit").fill("5")
    page.locator(".opening .use").click()
    error = page.locator(".err.opening")
    error.get_by_text("limit 5").wait_for()
    assert row.locator(".limit").get_attribute("aria-invalid") == "true"
    assert row.locator(".limit").input_value() == "5"
    assert state(page)["acts"] == "s3"  # the board as it was
    row.locator(".limit").fill("２０")
    page.locator(".opening [data-rule=b]").select_option("8")
    for _ in range(10):
        page.locator(".opening .add").click()  # more than the memory holds: they wait
    page.locator(".opening .use").click()
    until(page, at=0, total=0)
    press(page, "s", 1)
    assert error.inner_text() == ""
    assert side(page, "paged", "rest").locator(".tb .w").count() > 0
    page.wait_for_url("**b=8**")
    assert query(page)["open"].split(",")[1] == "6:20"


@pytest.mark.parametrize(
    "address",
    [
        "lang=en&guess=1&scene=better&acts=s3,f1,a5:9,s2&at=4&block=c20",
        "guess=2&theme=dark&open=5:9,3:30&pool=64&b=8&seats=1&watermark=0.25&budget=4&acts=s2",
        "guess=2&scene=exercise&at=1",
    ],
)
def test_an_address_restores_the_exact_state(visit, address):
    page = visit("/paging?" + address)
    wanted = dict(pair.split("=") for pair in address.split("&"))
    until(page, at=wanted.get("at", "2"), scene=wanted.get("scene", "door"), pending=0)
    page.keyboard.press("u")  # a change and back again: what is written is what was read
    page.keyboard.press("y")
    page.wait_for_timeout(500)
    assert query(page) == wanted
    shown = [cells(page, name) for name in ("contiguous", "paged")]
    page.reload()
    page.wait_for_selector("[data-ready='1']", state="attached")
    assert [cells(page, name) for name in ("contiguous", "paged")] == shown
    assert page.locator(".notice").count() == 0


@pytest.mark.parametrize(
    ("rubbish", "named"),
    [
        ("acts=<script>alert(1)</script>&guess=9", ["acts", "guess"]),
        ("guess=2&open=9:8&b=3&at=x", ["open", "b", "at"]),
        ("guess=2&acts=a9:999,s&block=q1", ["acts", "block"]),
    ],
)
def test_rubbish_in_the_address_is_ignored_and_said(visit, rubbish, named):
    page = visit("/paging?" + quote(rubbish, safe="=&:,"))
    page.locator(".notice").first.wait_for()
    page.wait_for_function("document.querySelector('[data-ready]').dataset.pending === '0'")
    text = " ".join(page.locator(".notice").all_inner_texts())
    assert all(f"{name}=" in text for name in named)
    assert len(cells(page, "paged")) == 48


def test_language_switch_keeps_the_board(visit):
    page = visit("/paging?guess=2&at=6")
    page.locator(".lang").click()
    page.get_by_text(words("en")["board.paged"], exact=True).first.wait_for()
    assert until(page, at=6)["acts"] == SCENE
    assert tables(page)[4] == [11, 8, 4]


@pytest.mark.parametrize("address", ["/paging?guess=2&scene=better&lang=en", "/paging?guess=2&scene=exercise"])
def test_nothing_scrolls_sideways_on_a_phone(visit, address):
    page = visit(address, width=390, height=844)
    assert max(page.evaluate(WIDE)) <= 390
    assert component(page).evaluate(OUTSIDE) == []


def below_the_picture(page) -> float:
    """Pixels from the picture to the heading of the current scene."""
    stage = page.locator(".player:not([hidden]) .stage").bounding_box()
    return page.locator(".sc.on h2").bounding_box()["y"] - stage["y"] - stage["height"]


def test_the_whole_figure_comes_over_the_text_on_a_phone(visit):
    """All that can be pressed is at hand beside any scene; the scene stays, and so does the place in the text."""
    page = visit("/paging?guess=2&scene=exercise", width=390, height=844)
    page.wait_for_function("performance.now() > 3000")
    place = below_the_picture(page)
    assert page.locator("[data-act=s]").bounding_box()["y"] < 0
    page.locator(".whole").click()
    press(page, "s", 1)
    assert state(page)["scene"] == "exercise"
    assert tables(page) == {1: [0], 2: [1], 3: [2, 3], 4: [4, 5, 6], 5: [7, 8, 9, 10]}
    page.locator(".whole").click()
    assert page.locator("[data-act=s]").bounding_box()["y"] < 0
    assert abs(below_the_picture(page) - place) < 20
    assert state(page)["scene"] == "exercise"


@pytest.mark.parametrize("address", ["/reservation?guess=40&scene=guess", "/paging?guess=2&scene=breaks&lang=en"])
def test_a_deep_link_shows_the_scenes_beginning_below_the_picture_on_a_phone(visit, address):
    page = visit(address, width=390, height=844)
    page.wait_for_function("performance.now() > 3000")
    assert below_the_picture(page) >= 0


def test_misconceptions_end_where_their_text_says(visit):
    """Two seats: request 3 waits with SLOTS beside free blocks. Four steps: as many slots written on both sides."""
    page = visit("/paging?guess=2&scene=myth")
    page.locator("[data-myth='0']").click()
    until(page, at=2)
    assert side(page, "paged", "rest").locator(".log li").last.get_attribute("data-code") == "SLOTS"
    assert [what for what, _ in cells(page, "paged")].count("free") > 12
    page.locator("[data-myth='1']").click()
    until(page, at=4, acts="s4")
    written = [[what for what, _ in cells(page, name)].count("live") for name in ("contiguous", "paged")]
    assert written[0] == written[1] > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(visit, theme):
    page = visit(f"{SCENE_END}&theme={theme}")
    assert component(page).evaluate(CONTRAST_ENABLED) == []


def test_projector(visit):
    page = visit("/paging?guess=2&present=true", width=1920, height=1080)
    for _ in range(len(load("l3_paging", "zh").scenes) - 1):
        assert component(page).evaluate(SMALL) == []
        page.keyboard.press("ArrowRight")
        if state(page)["scene"] == "exercise":
            page.keyboard.press("g")
            until(page, at=1)
    page.keyboard.press("Escape")
    assert "present" not in query(page)
