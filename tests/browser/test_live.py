"""The live pages in a real browser, on the small model: lesson 1 run on it, and the one engine of lesson 8.

One engine serves all tests of this file, as it serves a class: each begins by emptying it. What has to be seen at one
moment is looked at with the engine paused; everything else is waited for.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

from engine.model.fetch import available
from lessons.loader import load
from lessons.words import words
from tests.browser import pages
from tests.browser.pages import CONTRAST, SMALL, TEXTS, WIDE, component, query, state
from tests.browser.test_lesson1 import big

pytestmark = pytest.mark.browser

PATIENCE = 60_000
"""Milliseconds; the model may still be loading on a busy machine."""
BROKEN = "\N{REPLACEMENT CHARACTER}"
ROOT = "document.querySelector('[data-ready]').shadowRoot"
WATCH = f"""window.seen = [];
    new MutationObserver(() => window.seen.push({ROOT}.querySelector('.replies, .said-now').textContent))
        .observe({ROOT}, {{subtree: true, childList: true, characterData: true}})"""
"""Notes every text that replies ever had on the page."""


@pytest.fixture
def live(visit):
    """live(path, …) opens lesson 8 with nothing running, at full speed."""

    def go(path: str = "/live", **options):
        page = visit(path, **options)
        until(page, line="open", model="ready")
        if state(page)["paused"]:
            page.locator(".drive .pl").click()
        until(page, paused="")
        pace(page, 0)
        wait(page, "[...$('.replies li.open .cancel')].forEach((b) => b.click()) || !$('.replies li.open').length")
        return page

    return go


until = partial(pages.until, timeout=PATIENCE)


def wait(page, condition: str) -> object:
    """Until a condition holds; `$` finds all elements for a selector. Returns its value."""
    body = f"const $ = (s) => {ROOT}.querySelectorAll(s); return {condition}"
    return page.wait_for_function(f"() => {{ {body} }}", timeout=PATIENCE).json_value()


def pace(page, steps: int) -> None:
    page.locator(".pace select").select_option(str(steps))


def pause(page) -> int:
    """Pause; returns the step."""
    page.locator(".drive .pl").click()
    until(page, paused="1")
    return int(state(page)["step"])


def step(page) -> None:
    now = int(state(page)["step"])
    page.locator(".drive .next").click()
    until(page, step=now + 1)


def send(page, prompt: str, name: str = "", most: object = 60):
    """Send as a hand does, without chance in the reply; returns its item."""
    page.locator(".write .heat").fill("0")
    page.locator(".write .name").fill(name)
    page.locator(".write .max").fill(str(most))
    page.locator(".write textarea").fill(prompt)
    newest = "Math.max(0, ...[...$('.replies li')].map((li) => li.dataset.number))"
    before = wait(page, f"String({newest})")
    page.locator(".write textarea").press("Enter")
    number = wait(page, f"{newest} > {before} && {newest}")
    item = page.locator(f'.replies [data-number="{number}"]')
    assert page.locator(".write textarea").input_value() == ""
    return item


def number_of(item) -> str:
    return item.get_attribute("data-number")


# ---- lesson 1 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_lesson_1_on_the_model(visit, lang):
    table = words(lang)
    page = visit(f"/batching?lang={lang}&guess=75&step=9999999")
    assert page.locator(".badge .chip").inner_text() == table["ui.counted"]
    page.locator("[data-source=model]").click()
    until(page, source="model", run="running")
    page.evaluate(WATCH)
    page.wait_for_function("document.querySelector('[data-ready]').dataset.step > 20", timeout=PATIENCE)
    page.locator(".pl").click()
    until(page, run="paused")
    wait(page, "$('.said-now .rq').length === 8")
    at = int(state(page)["step"])
    page.locator(".next").click()
    page.wait_for_function(f"document.querySelector('[data-ready]').dataset.step > {at}", timeout=PATIENCE)
    assert int(state(page)["step"]) <= at + 2  # the one asked for, and perhaps the one under way when it was paused
    page.locator("[data-pace='20']").click()
    page.locator("[data-pace='20'][aria-pressed=true]").wait_for()
    page.locator(".pl").click()
    until(page, run="running")
    page.wait_for_function(f"document.querySelector('[data-ready]').dataset.step > {at + 3}", timeout=PATIENCE)
    line = page.locator(".pan[data-policy=static] .meas")
    assert line.locator(".chip.measured").inner_text() == table["ui.measured"]
    assert re.search(r"[1-9]\d* token", line.inner_text())
    assert re.search(r"tiny-model · (CPU|CUDA) · torch", line.inner_text())
    assert page.locator(".badge .chip").inner_text() == table["ui.measured"]
    page.locator(".source .end").click()
    until(page, run="stopped")
    seen = page.evaluate("window.seen")
    assert len(set(seen)) > 5, "the texts grew bit by bit"
    assert BROKEN not in "".join(seen)
    page.locator("[data-source=counted]").click()
    until(page, source="counted")
    assert not line.is_visible()
    assert big(page, "static") == "58.7%"


def test_a_whole_run_takes_the_counted_steps_and_real_seconds(visit):
    page = visit("/batching?lang=en&guess=75&lengths=own&own=12,3,7,5,9,2,8,30&B=2&step=9999")
    steps = "e => [...e.shadowRoot.querySelectorAll('.pan')].map((panel) => panel.dataset.steps)"
    counted = component(page).evaluate(steps)
    page.locator("[data-source=model]").click()
    until(page, run="done")
    assert counted == component(page).evaluate(steps)
    assert all(counted)
    took = page.locator(".took")
    assert len(re.findall(r"\d+\.\d", took.inner_text())) == 2
    assert "tiny-model" in took.inner_text()
    took.locator(".chip.measured").click()
    assert len(page.locator(".pop").inner_text()) > 10
    page.keyboard.press("Escape")
    page.locator(".pan[data-policy=static] .meas .chip").click()
    assert "tiny-model" in page.locator(".pop").inner_text()


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_list_the_model_has_no_room_for_is_said_where_it_was_typed(visit, lang):
    page = visit(f"/batching?lang={lang}&guess=75&lengths=own&own=5,1024,7&step=9999")
    before = big(page, "static")
    page.locator("[data-source=model]").click()
    error = page.locator(".own .err")
    wait(page, "$('.own .err')[0].textContent")
    assert error.inner_text() == words(lang).fill("errors.own_context", i=2, word=1024, positions=1024, max=1023)
    assert re.sub(r"\s", "", page.locator(".own textarea").input_value()) == "5,1024,7"
    assert state(page)["source"] == "counted"
    assert big(page, "static") == before


# ---- lesson 8 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_prompt_becomes_text_blocks_and_decisions(live, lang):
    table = words(lang)
    page = live(f"/live?lang={lang}")
    page.evaluate(WATCH)
    pace(page, 20)
    item = send(page, "卻說", "Ada", 40)
    n = number_of(item)
    wait(
        page, f"$('.map [data-owner=\"{n}\"]').length > 0 && $('.replies [data-number=\"{n}\"] .reply')[0].textContent"
    )
    pause(page)
    first = item.locator(".reply").inner_text()
    assert int(page.locator("[data-usage=live]").inner_text()) > 0
    parts = page.locator("[data-usage]").all_inner_texts()
    assert sum(int(part.replace(",", "")) for part in parts) == 128 * 16
    assert f"{table.fill('live.seat', slot=1, n=n)}" in page.locator(".lanes").get_attribute("aria-label")
    wait(page, "$('.just')[0].textContent.includes('ADMITTED')")
    assert page.locator(".occ b").inner_text() == "1"
    page.locator(f'.map [data-owner="{n}"]').first.hover()
    marked = "$('.map button')[$('.memory .whose .tb .me')[0]?.textContent]"
    wait(page, f"{marked}?.dataset.owner === '{n}'")  # its place in the owner's table
    assert page.locator(".rates .chip.measured").inner_text() == table["ui.measured"]
    assert re.match(r"\d", page.locator(".rates .tps").inner_text())
    assert re.match(r"tiny-model · (CPU|CUDA) · torch", page.locator(".bar .what").inner_text())
    page.locator(".drive .pl").click()
    wait(page, "!$('.replies li.open').length")
    whole = item.locator(".reply").inner_text()
    assert whole.startswith(first)
    assert len(whole) > len(first)
    seen = "".join(page.evaluate("window.seen"))
    assert BROKEN not in seen
    wait(page, "!$('.map [data-owner]:not([data-owner=\"\"])').length")  # all blocks are back
    wait(page, "$('.just')[0].textContent.includes('FINISHED')")


def test_pause_one_step_pace_and_cancel(live):
    page = live("/live?lang=en")
    at = pause(page)
    item = send(page, "次日，", "Ben", 500)
    assert item.locator(".state").inner_text() == words("en")["live.is_waiting"]
    assert page.locator(".bar .fresh").inner_text() == words("en")["live.paused"]
    step(page)
    step(page)
    assert int(state(page)["step"]) == at + 2
    assert item.locator(".state").inner_text() == words("en").fill("live.is_writing", n=2, of=500)
    page.locator(".drive .pl").click()
    pace(page, 20)
    page.wait_for_function(f"document.querySelector('[data-ready]').dataset.step > {at + 4}", timeout=PATIENCE)
    item.locator(".cancel").click()
    wait(page, "!$('.replies li.open').length")
    assert not item.locator(".cancel").is_visible()
    wait(page, "$('.just')[0].textContent.includes('ABORTED')")
    page.locator(".next").click(force=True)  # nothing: it is not paused
    assert page.locator(".write .err").inner_text() == ""


def test_a_crowd_queues_and_memory_runs_out(live):
    page = live("/live?guess=1300")
    pause(page)
    page.locator(".many").click()
    wait(page, "$('.replies li.open').length === 12")
    step(page)
    assert page.locator(".occ b").inner_text() == "8"
    wait(page, "$('.queue .head').length && $('.queue .head')[0].textContent.includes('SLOTS')")
    assert "BEHIND_HEAD" in page.locator(".queue").inner_text()
    assert page.locator(".queue .others .rq").count() == 3
    page.locator(".drive .pl").click()
    wait(page, "[...$('.replies li.open .cancel')].forEach((b) => b.click()) || !$('.replies li.open').length")
    page.locator("[data-try='1']").first.click()  # eight long ones
    wait(page, "$('.replies li.open').length === 8")
    told = words("zh")["live.is_preempted"].split("{")[0]
    wait(page, f"[...$('.replies .state')].some((s) => s.textContent.startsWith('{told}'))")
    wait(page, "['NO_BLOCKS', 'SLOTS'].includes($('.queue .head b')[0]?.textContent)")


def test_one_engine_for_everybody(live, visit):
    mine = live("/live?lang=en")
    theirs = visit("/live", dark=True)
    until(theirs, line="open", model="ready")
    pause(mine)
    until(theirs, paused="1")
    n = number_of(send(mine, "話說", "Chloe", 30))
    there = theirs.locator(f'.replies [data-number="{n}"]')
    there.wait_for(timeout=PATIENCE)
    assert "Chloe" in there.inner_text()
    theirs.locator(".drive .pl").click()
    until(mine, paused="")
    for page in (mine, theirs):
        wait(page, "!$('.replies li.open').length")
    texts = {page.locator(f'.replies [data-number="{n}"] .reply').inner_text() for page in (mine, theirs)}
    assert len(texts) == 1
    assert "" not in texts


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_bad_input_is_said_where_it_was_typed_and_stays(live, lang):
    table = words(lang)
    page = live(f"/live?lang={lang}")
    error, typed = page.locator(".write .err"), page.locator(".write textarea")

    def refuse(prompt: str, most: object, said: str) -> None:
        typed.fill(prompt)
        page.locator(".write .max").fill(str(most))
        page.locator(".write button[type=submit]").click()
        page.wait_for_function("([e, said]) => e.textContent.includes(said)", arg=[error.element_handle(), said])
        assert typed.input_value() == prompt

    refuse("", 60, table["errors.live_empty"])
    refuse("卻說", 0, table["errors.live_max_tokens"])
    refuse("卻說", 2.5, table["errors.live_max_tokens"])
    refuse("卻說", 10**9, "1,000,000,000")
    refuse("龜鬱" * 900, 60, "1,024")
    refuse("x" * 2001, 60, "2,001")
    page.locator(".write .heat").fill("7")
    refuse("卻說", 20, table["errors.live_temperature"])
    page.locator(".write .heat").fill("0.8")
    page.locator(".write button[type=submit]").click()
    wait(page, "$('.write .err')[0].textContent === '' && $('.write textarea')[0].value === ''")


def test_typed_markup_is_shown_as_text(live):
    page = live()
    pause(page)
    bad = "<img src=x onerror=alert(1)>"
    for _ in range(9):
        page.locator(".write .name").fill("<b>alert</b>")
        page.locator(".write textarea").fill(bad)
        page.locator(".write button[type=submit]").click()
        wait(page, "$('.write textarea')[0].value === ''")
    step(page)
    page.locator(".queue .head").wait_for()
    item = page.locator(".replies li.open").first
    assert item.locator(".asked").text_content() == bad
    assert item.locator(".who").text_content() == "<b>alert</b>"
    for part in (".queue .head", ".just"):
        assert "<b>alert</b>" in page.locator(part).inner_text()
    page.locator(f'.map [data-owner="{number_of(item)}"]').first.hover()
    assert "<b>alert</b>" in page.locator(".memory .whose").inner_text()
    assert page.locator(".player img, .player b b").count() == 0


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_nothing_scrolls_sideways_on_a_phone(live, lang):
    page = live(f"/live?lang={lang}", width=390, height=844)
    pause(page)
    page.locator(".many").click()
    send(page, "卻說" + "x" * 200, "W" * 24)
    step(page)
    assert max(page.evaluate(WIDE)) <= 390
    outside = "!x.closest('pre, table, .examples') && x.getBoundingClientRect().right > 391"
    over = f"e => {TEXTS}.filter(x => {outside}).map(x => x.outerHTML)"
    assert component(page).evaluate(over) == []


def test_projector(live):
    page = live("/live?present=true", width=1920, height=1080)
    pause(page)
    page.locator(".many").click()
    wait(page, "$('.replies li.open').length === 12")
    step(page)
    page.locator(".queue .head").wait_for()
    assert page.locator(".bar .what").is_visible()
    assert re.match(r"tiny-model · (CPU|CUDA) · torch", page.locator(".bar .what").inner_text())
    for button in (".write button[type=submit]", ".write .many"):
        box = page.locator(button).bounding_box()
        assert box["y"] + box["height"] <= 1080, "in reach without scrolling"
    box = page.locator(".memory .lg").bounding_box()
    assert box["y"] + box["height"] <= page.locator(".write").bounding_box()["y"], "nothing of the memory is covered"
    assert float(page.locator(".lanes").get_attribute("data-name-size")) >= 24
    scenes = load("l8_live", "zh").scenes
    for scene in scenes:
        until(page, scene=scene.id)
        assert component(page).evaluate(SMALL) == []
        if scene is not scenes[-1]:
            page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert "present" not in query(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(live, theme):
    page = live(f"/live?lang=en&guess=1300&theme={theme}")
    pause(page)
    page.locator(".many").click()
    wait(page, "$('.replies li.open').length === 12")
    step(page)
    page.locator(".write .max").fill("0")
    page.locator(".write button[type=submit]").click()
    wait(page, "$('.write .err')[0].textContent")
    unlike = component(page).evaluate(CONTRAST)
    assert [html for _, html in unlike if 'class="part' not in html] == []  # a part-filled block has an outlined number


def test_the_fetched_model_writes_english(live):
    if available("smollm2") is None:
        pytest.skip("SmolLM2 is not fetched (python -m engine fetch-model smollm2)")
    page = live("/live?lang=en")
    row = page.locator(".room [data-key=smollm2]")
    try:
        row.locator("[data-do=switch]").click()
        wait(page, "$('.bar .what')[0].textContent.toLowerCase().startsWith('smollm2')")
        item = send(page, "Once upon a time", "Dan", 12)
        wait(page, "$('.replies li.open').length === 0")
        assert re.search(r"[a-z]{2,} [a-z]{2,}", item.locator(".reply").inner_text())
    finally:
        page.locator(".room [data-key=tiny] [data-do=switch]").click()
        wait(page, "$('.bar .what')[0].textContent.startsWith('tiny-model')")


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_without_a_gpu_the_switch_says_why(live, lang):
    table = words(lang)
    page = live(f"/live?lang={lang}")
    row = page.locator(".room [data-key=gpu]")
    reasons = [table[f"live.gpu_{reason}"] for reason in ("no_gpu", "cpu_build", "no_triton")]
    about = row.locator(".about").inner_text()
    if about not in reasons:
        pytest.skip("there is a GPU")
    assert row.locator("button").count() == 0
    assert page.locator(".room [data-key=cpu] > span").last.inner_text() == table["live.model_runs"]


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_switch_asks_about_those_inside_and_lets_them_finish(live, interpreted, lang):
    table = words(lang)
    page = live(f"/live?lang={lang}", at=interpreted)
    room = page.locator(".room")
    to_gpu = room.locator("[data-key=gpu] [data-do=switch]")
    question = room.locator(".change")
    pace(page, 1)
    item = send(page, "卻說曹操", "Ada", 12)
    to_gpu.click()
    assert question.locator("span").inner_text() == table.fill("live.change_ask", n=1)
    question.get_by_role("button", name=table["live.change_stay"]).click()
    wait(page, "!$('.room .change').length")
    assert len(room.locator("[data-key=gpu]").inner_text()) > 10

    to_gpu.click()
    question.get_by_role("button", name=table["live.change_finish"]).click()
    wait(page, "$('.room .change [data-running=cancel]').length")  # the model is there, the door is shut
    page.locator(".write textarea").fill("卻說曹操")
    page.locator(".write button[type=submit]").click()
    wait(page, "$('.write .err')[0].textContent")
    assert page.locator(".write .err").inner_text() == table["errors.live_draining"]
    assert page.locator(".write textarea").input_value() == "卻說曹操", "nothing that was typed is lost"
    pace(page, 0)
    wait(page, "$('.bar .what')[0].textContent.includes('Triton')")
    assert "open" not in (item.get_attribute("class") or "").split()
    first = item.locator(".reply").inner_text()
    again = send(page, "卻說曹操", "Bob", 12)
    wait(page, "!$('.replies li.open').length")
    assert again.locator(".reply").inner_text() == first, "the kernels write what torch writes"
    assert "TRITON_INTERPRET=1" in page.locator(".bar .what").inner_text()

    pace(page, 1)
    send(page, "卻說曹操", "Cai", 200)
    room.locator("[data-key=cpu] [data-do=switch]").click()
    question.get_by_role("button", name=table["live.change_cancel"]).click()
    wait(page, "$('.bar .what')[0].textContent.includes('torch')")
    assert not page.locator(".replies li.open").count()
