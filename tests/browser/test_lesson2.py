"""Lesson 2 in a real browser: the calculator, the anchor's account, four pools over time, addresses, looks."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from app.split import PARTS, RULES, picture
from lessons.loader import load
from tests.browser.pages import CONTRAST_ENABLED, OUTSIDE, SMALL, WIDE, component, query, state, until

pytestmark = pytest.mark.browser

SPLIT = "/reservation?guess=40&scene=better"
DRAWN = ".player.split:not(.late) .shares td"


def sums(page) -> list[str]:
    return [text.replace("\u00a0", " ") for text in page.locator(".sums .big").all_inner_texts()]


def big(page) -> dict[str, str]:
    return {rule: page.locator(f"[data-rule={rule}] .big").inner_text().replace("\n", "") for rule in RULES}


def drawn(page) -> None:
    page.wait_for_selector(DRAWN, state="attached", timeout=20_000)


def test_presets_and_own_values(visit):
    page = visit("/reservation")
    assert sums(page) == ["512 KiB", "2.0 GiB", "256.0 GiB"]
    page.locator("[data-preset=anchor]").click()
    assert sums(page)[:2] == ["64 KiB", "256 MiB"]
    page.locator("[data-preset=tiny]").click()
    assert sums(page)[0] == "2 KiB"
    page.locator(".fields [name=layers]").fill("8")
    page.wait_for_function("document.querySelector('[data-ready]').dataset.preset === 'own'")
    page.locator("[data-sum=token] .big", has_text="4").wait_for()
    assert sums(page)[0] == "4 KiB"
    page.wait_for_url("**layers=8**")
    page.reload()
    page.wait_for_selector("[data-ready='1']", state="attached")
    page.locator("[data-sum=token] .big", has_text="4").wait_for()
    assert page.locator(".fields [name=layers]").input_value() == "8"


def test_a_bad_value_is_explained_where_it_was_typed(visit):
    page = visit("/reservation?lang=en")
    error, field = page.locator(".account .err"), page.locator(".fields [name=tokens]")
    for word in ("0", "-3", "99999999", "<b>x</b>", ""):
        field.fill(word)
        error.get_by_text(f"“{word}”").wait_for()
        assert "tokens per request" in error.inner_text()
        assert field.get_attribute("aria-invalid") == "true"
        assert sums(page) == ["512 KiB", "2.0 GiB", "256.0 GiB"]  # the last good ones stay
    field.fill("８１９２")  # as a Chinese input method types it
    page.locator("[data-sum=all] .big", has_text="512.0").wait_for()
    assert error.inner_text() == ""


def test_58_not_91(visit):
    page = visit("/reservation?scene=anchor")
    fit = page.locator(".fit i")
    assert fit.count() == 91
    assert "23,305" in page.locator(".gpu").inner_text()
    assert not page.locator(".truth").is_visible()
    page.locator("[data-eat]").click()
    until(page, eaten=1)
    assert page.locator(".fit .live").count() == 58
    assert "58" in page.locator(".truth").inner_text()
    assert page.locator(".truth").is_visible()


def test_guess_first(visit):
    page = visit("/reservation?scene=naive")
    page.wait_for_function("document.querySelector('[data-ready]').dataset.split")
    assert set(big(page).values()) == {"?"}
    assert page.locator(".shares td").count() == 0
    page.locator(".split .pl").click()
    until(page, scene="guess")
    page.locator("[data-guess=max] input").fill("64")
    page.locator("[data-guess=max] .commit").click()
    drawn(page)
    assert big(page)["max"] == "29.5%"
    assert "64%" in page.locator("[data-guess=max]").inner_text()


def test_the_numbers_on_the_page_are_the_engines(visit):
    page = visit(SPLIT)
    drawn(page)
    wanted = picture({})
    for rule in RULES:
        made = wanted["rules"][rule]
        for part in PARTS:
            cell = page.locator(f"[data-mean-of='{rule}.{part}']").inner_text()
            assert float(cell.rstrip("%")) == pytest.approx(100 * made["mean"][part] / wanted["pool"], abs=0.051)
        busy = page.locator(f"[data-mean-of='{rule}.saturated']").inner_text()
        assert float(busy.rstrip("%")) == pytest.approx(100 * made["live_share_saturated"], abs=0.051)
        assert made["command"] in page.locator(".commands pre").text_content()
    shares = {rule: float(text.rstrip("%")) for rule, text in big(page).items()}
    assert max(shares, key=shares.__getitem__) == "paged"
    page.locator("[data-mean=waiting]").click()
    assert big(page)["paged"] == "93.1%"
    page.keyboard.press(",")  # one step back from the end
    until(page, t=len(wanted["rules"]["max"]["waiting"]) - 1)
    page.locator(".split .time").fill("700")
    until(page, t=700)
    for rule in RULES:
        shown = page.locator(f"[data-rule={rule}]").evaluate("e => ({...e.dataset})")
        parts = wanted["rules"][rule]["parts"]
        named = {"live": "live", "tail_waste": "tail_waste", "reserved": "reserved", "hole": "hole", "free": "free"}
        assert {part: int(shown[name]) for part, name in named.items()} == {p: parts[p][699] for p in PARTS}


def test_other_limits_play_and_the_task(visit):
    page = visit(SPLIT)
    drawn(page)
    page.locator("[data-key=prompt]").select_option("128")
    page.wait_for_function(
        "document.querySelector('[data-ready]').dataset.split.includes('prompt=128')", timeout=20_000
    )
    assert big(page)["max"] == "41.3%"
    assert page.locator("[data-goal='0']").get_attribute("data-met") == "1"
    page.locator(".split .pl").click()
    page.wait_for_function("+document.querySelector('[data-ready]').dataset.t > 20")
    page.locator(".split .pl").click()
    assert state(page)["moving"] == ""
    page.wait_for_url("**prompt=128**")


@pytest.mark.parametrize(
    "address",
    [
        "lang=en&guess=40&scene=better&t=700&mean=waiting&limit=1024",
        "preset=anchor&eaten=1",
        "guess=3&scene=trap&eaten=0",
    ],
)
def test_an_address_restores_the_exact_state(visit, address):
    page = visit("/reservation?" + address)
    wanted = dict(pair.split("=") for pair in address.split("&"))
    if "t" in wanted:
        drawn(page)
        until(page, t=wanted["t"], mean="waiting")
        page.keyboard.press(",")
        page.keyboard.press(".")
    else:
        until(page, preset="anchor", eaten=wanted["eaten"] if wanted["eaten"] == "1" else "")
        page.locator("[data-eat]").click()
        page.locator("[data-eat]").click()
    page.wait_for_timeout(500)
    assert query(page) == wanted
    assert page.locator(".notice").count() == 0


def test_rubbish_in_the_address_is_ignored_and_said(visit):
    page = visit("/reservation?" + quote("preset=<b>&layers=0&pool=3&mean=x&t=-1&guess=999", safe="=&"))
    text = page.locator(".notice").inner_text()
    assert all(f"{name}=" in text for name in ("guess", "layers", "pool"))
    assert sums(page)[0] == "512 KiB"


@pytest.mark.parametrize(
    "address", ["/reservation?lang=en", "/reservation?guess=40&scene=rules", "/reservation?scene=trap"]
)
def test_nothing_scrolls_sideways_on_a_phone(visit, address):
    page = visit(address, width=390, height=844)
    assert max(page.evaluate(WIDE)) <= 390
    assert component(page).evaluate(OUTSIDE) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(visit, theme):
    page = visit(f"{SPLIT}&theme={theme}")
    drawn(page)
    assert component(page).evaluate(CONTRAST_ENABLED) == []
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    until(page, scene="trap")
    assert component(page).evaluate(CONTRAST_ENABLED) == []


def test_projector(visit):
    page = visit("/reservation?guess=40&present=true", width=1920, height=1080)
    for _ in range(len(load("l2_reservation", "zh").scenes) - 1):
        assert component(page).evaluate(SMALL) == []
        page.keyboard.press("ArrowRight")
