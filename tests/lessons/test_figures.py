"""lessons/figures.py: how a value is written."""

import pytest

from lessons.errors import LessonError
from lessons.figures import show


@pytest.mark.parametrize(
    ("value", "form", "written"),
    [(2116, "int", "2,116"), (65.37, "int", "65"), (36.9, "num1", "36.9"), (0.58713, "pct1", "58.7%"),
     (0.1443, "pp1", "14.4"), (0.5625, "pct1", "56.3%"), (51_249_200_128, "gb2", "51.25\u00a0GB"),
     (419_430_400, "mb0", "419\u00a0MB"),
     (65_536, "kib0", "64\u00a0KiB"), (1_048_576, "mib0", "1\u00a0MiB"), (0.015298, "ms1", "15.3\u00a0ms")],
)  # fmt: skip
def test_shows(value, form, written):
    assert show(value, form) == written


@pytest.mark.parametrize("form", ["", "percent", "int9", "{0}"])
def test_an_unknown_format_is_an_error(form):
    with pytest.raises(LessonError, match="unknown format"):
        show(1, form)
