"""One server and one browser for all browser tests; without a browser they are skipped with the reason."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextlib.contextmanager
def course(**environment: str):
    """The address of a course running on a free port, its process with these variables too."""
    if CHROMIUM is None:
        pytest.skip("no browser: install Debian's chromium to run these")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, **quiet)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(address + "/_stcore/health", timeout=2):
                    break
            except OSError:
                time.sleep(0.25)
        else:
            pytest.fail("the course did not start within a minute")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def server():
    with course() as address:
        yield address


@pytest.fixture(scope="session")
def interpreted():
    """The address of a course that can switch to the kernels, in Triton's interpreter: there may be no GPU."""
    with course(TRITON_INTERPRET="1") as address:
        yield address


@pytest.fixture(scope="session")
def browser(server):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def visit(server, browser):
    """visit(path, …) opens a page of `at`, and waits for its picture; problems on it fail the test."""
    opened, problems = [], []

    def go(
        path: str,
        *,
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        still: bool = False,
        at: str = server,
        **options,
    ):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            **options,
        )
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append("a dialog: something was executed"), dialog.dismiss()))
        page.goto(at + path)
        page.wait_for_selector("[data-ready='1']", timeout=60_000, state="attached")
        return page

    yield go
    for context in opened:
        context.close()
    assert not problems
