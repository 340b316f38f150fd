"""What browser tests read off a page: its state, its address, texts that are too pale, too small or too wide."""

from __future__ import annotations

from urllib.parse import parse_qs, urlparse

TEXTS = """[...e.shadowRoot.querySelectorAll('.course *')].filter((x) => x.checkVisibility()
    && !x.closest('option, .sw') && [...x.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))"""
"""Elements with text of their own that are shown; `e` is the component."""

SMALL = f"e => {TEXTS}.filter(x => parseFloat(getComputedStyle(x).fontSize) < 24).map(x => x.outerHTML)"
"""Texts under 24 px."""

OUTSIDE = f"""e => {TEXTS}.filter(x => !x.closest('pre, table') && x.getBoundingClientRect().right > innerWidth + 1)
    .map(x => x.outerHTML)"""
"""Texts that reach beyond the right edge."""

WIDE = "[document.documentElement, document.querySelector('[data-testid=stMain]')].map(e => e.scrollWidth)"
"""How wide the page is."""

_CONTRAST = """e => {
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (x) => {
    for (; x; x = x.parentElement) {
      const c = rgb(getComputedStyle(x).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c.slice(0, 3);
    }
    return [0, 0, 0];
  };
  return TEXTS.map((x) => {
    const a = light(rgb(getComputedStyle(x).color).slice(0, 3)), b = light(ground(x));
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), x.outerHTML];
  }).filter(([c]) => c < 4.5);
}"""

CONTRAST = _CONTRAST.replace("TEXTS", TEXTS)
"""Texts with a contrast below 4.5 : 1."""

CONTRAST_ENABLED = _CONTRAST.replace("TEXTS", TEXTS + ".filter((x) => !x.closest(':disabled'))")
"""The same but for disabled buttons."""


def component(page):
    return page.locator("[data-ready]").first


def state(page) -> dict:
    """The state that the page shows."""
    return component(page).evaluate("e => ({...e.dataset})")


def until(page, timeout: int = 15_000, **wanted: object) -> dict:
    """Wait, so many milliseconds at most, until the page shows this state."""
    for key, value in wanted.items():
        page.wait_for_selector(f"[data-ready][data-{key}='{value}']", state="attached", timeout=timeout)
    return state(page)


def query(page) -> dict:
    return {k: v[0] for k, v in parse_qs(urlparse(page.url).query).items()}
