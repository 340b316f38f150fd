"""What the browser runs: the bundle, its words, and the tokens."""

from __future__ import annotations

import re

import pytest

from app.components import HERE, SCRIPTS, STYLES, bundle
from app.page import GROUPS
from lessons.words import words

RUN_STATES = ("connecting", "loading", "busy", "running", "paused", "done", "stopped")
REASONS = ("length", "stop", "abort", "refused", "error")


def test_every_file_is_in_the_bundle_once():
    files = {path.name for path in HERE.iterdir() if path.suffix in (".css", ".js")}
    assert files - {"chrome.css"} == set(STYLES) | set(SCRIPTS)
    assert len(set(SCRIPTS)) == len(SCRIPTS)


def test_it_is_inline_text_with_one_default_export_at_the_end():
    assert "\n" in bundle(STYLES)
    assert bundle(SCRIPTS).count("export default") == 1
    assert "export default" in bundle(SCRIPTS[-1:])


def test_no_name_is_declared_twice():
    """The files share one scope."""
    names = re.findall(r"^(?:async )?(?:const|let|class|function) (\w+)", bundle(SCRIPTS), re.MULTILINE)
    assert [name for name in set(names) if names.count(name) > 1] == []


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_words_that_the_browser_needs_are_there(lang):
    code, table = bundle(SCRIPTS), words(lang)
    ui = table.group("ui")
    for key in set(re.findall(r"\b(?:W|words)\.([a-z_]+)\b", code)) - set(GROUPS):
        assert key in ui, key
    twin = table.group("twin")
    for key in set(re.findall(r"\bT\.([a-z_]+)\b|\bW\.twin\.([a-z_]+)\b", code)):
        assert "".join(key) in twin, key
    live = table.group("live")
    for key in set(re.findall(r"\b(?:this\.)?L\.([a-z_]+)\b|\bW\.live\.([a-z_]+)\b", code)):
        assert "".join(key) in live, key
    board = table.group("board")
    for key in set(re.findall(r"\bB\.([a-z_]+)\b|\bW\.board\.([a-z_]+)\b", code)):
        assert "".join(key) in board, key
    for group, names in (("run", RUN_STATES), ("ended", REASONS)):
        assert {f"{group}_{name}" for name in names} <= set(live)


def test_the_browser_schedules_nothing():
    """The player only looks things up: no module but the engine makes segments or counts utilisation."""
    code = bundle(SCRIPTS)
    assert not re.search(
        r"utilisation\s*[:=][^=]",
        code.replace("utilisation: percent(lanes.utilisation)", "").replace("utilisation: ''", ""),
    )
    assert "useful_cells /" not in code


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_of_text_in_both_themes(theme):
    css = (HERE / "tokens.css").read_text(encoding="utf-8")
    body = re.findall(r"\.course(?:\[data-theme=dark\])? \{([^}]*)\}", css)[theme == "dark"]
    token = {name: {"#fff": "#FFFFFF"}.get(value, value) for name, value in re.findall(r"--([\w]+): (#\w+)", body)}
    for text in ("ink", "ink2"):
        assert contrast(token[text], token["paper"]) >= 4.5
        assert contrast(token[text], token["panel"]) >= 4.5
    assert contrast(token["warn"], token["paper"]) >= 4.5
    for n in range(1, 13):
        assert contrast(token[f"t{n}"], token[f"h{n}"]) >= 4.5, n
