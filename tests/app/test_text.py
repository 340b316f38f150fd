"""Lesson text to HTML: marks, escaping, headings; and the code excerpts."""

import re
from pathlib import Path

import pytest

from app.code import excerpt, highlight
from app.text import Renderer, badge
from lessons.figures import LABELS
from lessons.loader import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def render():
    return Renderer(load("l1_batching", "en"), {label: label for label in LABELS})


def test_html_in_a_text_is_escaped(render):
    html = render.block("<script>alert(1)</script> [[req:3]] **[[fig:fit!]]** <img src=x onerror=alert(1)>")
    assert "<script" not in html
    assert "<img" not in html
    assert 'class="rq"' in html
    assert ">58</span>" in html


def test_a_note_cannot_leave_its_attribute(render):
    assert re.fullmatch(
        r'<button type="button" class="chip derived" data-src="[^"<>]*">derived</button>',
        render.chip("derived", '"><script>'),
    )


def test_marks_inside_markdown_are_not_read_as_markdown(render):
    assert "<em>" not in render.inline("[[fig:static8_steps]] and [[fig:static8_steps]]")
    assert "2,116" in render.inline("**[[fig:static8_steps]]**")


def test_placeholders_typed_by_hand_mean_nothing(render):
    assert render.inline("\ue0000\ue001 text") == "0 text"


def test_quoted_figures_link_to_their_source(render):
    assert "https://www.usenix.org" in render.inline("[[fig:orca_speedup!]]")
    assert "https://arxiv.org" in render.inline("[[cite:vllm]]")


def test_badges_repeat_their_hue_every_twelve():
    assert "--h1)" in badge(1)
    assert "--h12)" in badge(12)
    assert "--h1)" in badge(13)
    assert ">13<" in badge(13)


def test_headings_break_behind_their_punctuation():
    render = Renderer(load("l1_batching", "zh"), {label: label for label in LABELS})
    assert render.heading("坏在哪：有位，不让坐").count('class="nb"') == 3


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_code_is_read_from_the_source(lang):
    for scene in load("l1_batching", lang).scenes:
        for code in scene.code:
            piece = excerpt(code.object)
            lines = (ROOT / piece["file"]).read_text(encoding="utf-8").splitlines()
            assert lines[piece["line"] - 1].strip() == piece["text"].splitlines()[0].strip()


def test_highlighting_keeps_the_text():
    text = 'def f(a: str) -> str:\n    """A <b>doc</b>\n    of two lines."""\n\n    return a + "&"  # <i>\n'
    html = highlight(text)
    plain = re.sub(r"</?span[^>]*>", "", html)
    assert plain == text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert '<span class="d">f</span>' in html
    assert '<span class="k">return</span>' in html
    assert highlight("x = (\n") == "x = (\n"  # not Python on its own: shown plain
