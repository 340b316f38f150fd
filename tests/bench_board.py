"""How long a press on the board takes until it is painted, in a browser: `python -m tests.bench_board`.

Fifty presses of lesson 3's buttons, each a new one that the server must answer; from the press to the frame after the
one that drew it. The median is printed with its bound; exit status 1 if it is missed. Not a test: it reads a clock.
"""

from __future__ import annotations

import statistics
import sys

from tests.browser.conftest import CHROMIUM, FLAGS, course

PRESSES, BOUND_MS = 50, 100


def main() -> int:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        print("no browser: install Debian's chromium")
        return 1
    with course() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/paging?guess=2&acts=-&open=9:16,6:10,10:16,8:48")
        page.wait_for_selector("[data-ready='1']", state="attached")
        times = [_press(page, i) for i in range(PRESSES)]
        browser.close()
    median = statistics.median(times)
    verdict = "ok" if median < BOUND_MS else "MISSED"
    print(f"press to paint, median of {PRESSES}: {median:.0f} ms  (under {BOUND_MS})  {verdict}")
    return int(median >= BOUND_MS)


def _press(page, number: int) -> float:
    """One press: mostly a step, now and then somebody arrives."""
    if number % 8 == 5:
        page.locator(".arrive .length").fill("4")
        page.locator(".arrive .limit").fill("12")
    page.locator("[data-act=arrive]" if number % 8 == 5 else "[data-act=s]").click()
    page.wait_for_selector(f"[data-ready][data-at='{number + 1}']", state="attached")
    page.wait_for_timeout(60)
    return float(page.locator("[data-ready]").first.get_attribute("data-paint-ms"))


if __name__ == "__main__":
    sys.exit(main())
