"""Figures: the four labels and how a value is written.

Formats are a unit and the digits after the point, "int" or "pct1" for example:

    int     2,116           num1    36.9 (grouped, no unit)
    pct1    0.5871 → 58.7%  pp1     0.1443 → 14.4 (percentage points; the unit stands in the text)
    gb2     bytes → 51.25 GB (1e9), mb0 (1e6);  kib0, mib0, gib1, tib1 (powers of 1,024)
    ms1     seconds → 15.3 ms

Halves are rounded up, as the browser does it: 0.5625 is 56.3%.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from lessons.errors import LessonError

LABELS = ("measured", "counted", "derived", "quoted")

_FORMAT = re.compile(r"(int|num|pct|pp|gb|mb|kib|mib|gib|tib|ms)([0-3]?)")
_SCALE = {
    "int": (1.0, ""), "num": (1.0, ""), "pct": (100.0, "%"), "pp": (100.0, ""), "ms": (1e3, "\u00a0ms"),
    "gb": (1e-9, "\u00a0GB"), "mb": (1e-6, "\u00a0MB"), "kib": (2.0**-10, "\u00a0KiB"), "mib": (2.0**-20, "\u00a0MiB"),
    "gib": (2.0**-30, "\u00a0GiB"), "tib": (2.0**-40, "\u00a0TiB"),
}  # fmt: skip


def check_format(text: str) -> None:
    """LessonError unless the format is one of the list above."""
    if _FORMAT.fullmatch(text) is None:
        raise LessonError(
            f"unknown format '{text}': write int, num1, pct1, pp1, gb2, mb0, kib0, mib0, gib1, tib1 or ms1"
        )


def show(value: float, form: str) -> str:
    """The value as the page writes it, the same in both languages."""
    check_format(form)
    kind, digits = re.sub(r"\d", "", form), int(form[-1]) if form[-1].isdigit() else 0
    scale, unit = _SCALE[kind]
    rounded = Decimal(repr(float(value * scale))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:,}{unit}"
