"""In CI, a skip without one of the allowed reasons fails the run: small suites are run with this project's conftest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent / "conftest.py"
MARKED = "import pytest\n\n@pytest.mark.skip(reason={reason!r})\ndef test_a(): pass\n\ndef test_b(): pass\n"
WHOLE_FILE = "import pytest\n\npytest.skip({reason!r}, allow_module_level=True)\n"


def status(folder: Path, source: str, ci: str) -> int:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, env={**os.environ, "CI": ci}, capture_output=True, cwd=folder).returncode


@pytest.mark.parametrize(
    ("source", "reason", "ci", "expected"),
    [
        (MARKED, "no GPU here", "true", 0),
        (MARKED, "flaky", "true", 1),
        (MARKED, "flaky", "", 0),
        (WHOLE_FILE, "no chromium", "true", 1),
    ],
)
def test_skips(tmp_path, source, reason, ci, expected):
    assert status(tmp_path, source.format(reason=reason), ci) == expected
