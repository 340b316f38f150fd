"""How long a press on the board takes until it is painted, in a browser: `python -m tests.bench_board`.

Fifty presses of lesson 3's buttons, each a new one that the server must answer; from the press to the frame after the
one that drew it. The median is printed with its bound; exit status 1 if it is missed. Not a test: it reads a clock.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.browser.conftest import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[1]
PRESSES, BOUND_MS = 50, 100


def main() -> int:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        print("no browser: install Debian's chromium")
        return 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", address.rpartition(":")[2]]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{address}/paging?guess=2&acts=-&open=9:16,6:10,10:16,8:48")
            page.wait_for_selector("[data-ready='1']", state="attached")
            times = [_press(page, i) for i in range(PRESSES)]
            browser.close()
    finally:
        server.terminate()
        server.wait(timeout=20)
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


def _wait_for(address: str) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(address + "/_stcore/health", timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    raise SystemExit("the course did not start within a minute")


if __name__ == "__main__":
    sys.exit(main())
