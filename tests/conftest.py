"""Settings for all tests. In CI a test may be skipped for three reasons only; any other skip fails the run."""

import os

import pytest

ALLOWED_SKIPS = ("no GPU", "the novel's text is not given", "SmolLM2 is not fetched")
_unexpected: list[str] = []


def pytest_runtest_logreport(report):
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_terminal_summary(terminalreporter):
    for line in _unexpected:
        terminalreporter.write_line(f"skipped without an allowed reason: {line}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if _unexpected and session.exitstatus == 0:
        session.exitstatus = 1
