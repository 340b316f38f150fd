"""Settings for all tests: nothing is fetched, and in CI a test may be skipped for three reasons only.

Any other skip, of a test or of a whole file, fails the run when the variable CI is set.
"""

import os

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

IN_CI = bool(os.environ.get("CI"))
ALLOWED_SKIPS = ("no GPU", "the novel's text is not given", "SmolLM2 is not fetched")
"""A skip's reason starts with one of these."""

hypothesis.settings.register_profile("course", deadline=None, derandomize=IN_CI)
hypothesis.settings.load_profile("course")

_unexpected: list[str] = []


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (IN_CI and report.skipped) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(ALLOWED_SKIPS):
        _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note_skip(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _unexpected:
        terminalreporter.write_line(f"skipped without an allowed reason: {line}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
