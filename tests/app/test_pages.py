"""Pages through AppTest, figures against the engine, text that a person typed, and the route."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import lanes
from app.components import SCRIPTS, STYLES, bundle
from app.figures import value_of
from app.page import home_page, language, lesson_page
from app.routes import answer
from app.text import Renderer, code_of
from lessons.errors import LessonError
from lessons.loader import load
from lessons.words import words

SCREENS = Path(__file__).parents[2] / "app" / "screens"


def data_of(page, **query):
    test = AppTest.from_file(str(SCREENS / page), default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    test.run()
    assert not test.exception
    return json.loads(test.get("bidi_component")[0].proto.json)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("page", ["home.py", "l1_batching.py"])
def test_pages_run_in_both_languages(page, lang):
    data = data_of(page, lang=lang)
    assert data["lang"] == lang
    assert data["initial"]["lanes"]["static"]["steps"] == 2116
    assert data["initial"]["lanes"]["continuous"]["steps"] == 1335


def test_rubbish_in_the_address_is_chinese():
    assert data_of("l1_batching.py", lang="<script>alert(1)</script>", B="x" * 5000)["lang"] == "zh"
    assert language(None) == "zh"


def test_the_lesson_shows_the_published_figures():
    html = json.dumps(lesson_page(1, "zh"), ensure_ascii=False)
    for shown in ("2,116", "1,335", "58.7%", "93.1%", "2,304", "51.25", "37.4%", "36.9"):
        assert shown in html, shown


def test_every_scene_has_words_and_its_code_is_the_engines():
    page = lesson_page(1, "en")
    code = [c for scene in page["scenes"] for c in scene["code"]]
    root = Path(__file__).parents[2]
    for piece in code:
        lines = (root / piece["file"]).read_text().splitlines()
        assert lines[piece["line"] - 1].strip() == piece["text"].splitlines()[0].strip()
    assert len(code) == 4


def test_words_that_the_browser_needs_are_there():
    used = bundle(SCRIPTS)
    import re

    ui = words("zh").group("ui")
    for key in set(re.findall(r"\bW\.([a-z_]+)\b", used)):
        assert key in ui or key in ("mode", "policy", "length_names", "arrival_names", "codes", "errors"), key
    assert home_page("en")["words"]["begin"]


def test_components_are_inline_text():
    assert "\n" in bundle(STYLES)
    assert bundle(SCRIPTS).count("export default") == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("static.8.steps", 2116),
        ("continuous.16.steps", 790),
        ("static.8.cells - static.8.useful_cells", 8 * 2116 - 9939),
        ("batch.8.1.steps", 356),
        ("batch.8.1.second", 286),
        ("batch.8.1.alone", 70),
        ("batch.8.count", 8),
        ("workload.length.7", 85),
        ("continuous.8.leave.7", 85),
        ("continuous.8.enter.9", 86),
        ("continuous.8.slot.9", 7),
        ("anchor.requests", 58),
    ],
)
def test_figures_come_from_the_engine(path, value):
    assert value_of(path) == value


@pytest.mark.parametrize("path", ["anchor.nothing", "static.8.enter.65", "magic.8.steps"])
def test_unknown_figures_are_errors(path):
    with pytest.raises(LessonError):
        value_of(path)


def test_text_is_escaped():
    render = Renderer(load("l1_batching", "en"), dict.fromkeys(("measured", "counted", "derived", "quoted"), "x"))
    html = render.block("<script>alert(1)</script> [[req:3]] **[[fig:fit!]]** <img src=x onerror=alert(1)>")
    assert "<script" not in html
    assert "<img" not in html
    assert 'class="rq"' in html
    assert ">58</span>" in html
    assert '"' not in render.chip("derived", '"><script>').split("data-src=")[1].split(">")[0].strip('"')


def test_code_is_read_from_the_source():
    piece = code_of("engine.scheduler:Scheduler.admit")
    assert piece["file"] == "engine/scheduler.py"
    assert piece["text"].startswith("def admit(")


def test_route_gives_lanes():
    status, body = answer({"B": "8,16"})
    found = json.loads(body)["lanes"]
    assert status == 200
    assert found["16"]["static"]["steps"] == 1258
    assert found["16"]["continuous"]["steps"] == 790


@pytest.mark.parametrize("arrivals", lanes.ARRIVALS)
@pytest.mark.parametrize("lengths", lanes.LENGTHS)
def test_route_knows_every_workload(lengths, arrivals):
    status, body = answer({"B": "4", "lengths": lengths, "arrivals": arrivals, "own": "5, 9, 2"})
    assert status == 200
    assert json.loads(body)["lanes"]["4"]["continuous"]["useful_cells"] > 0


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ({"own": "12, x"}, "own_words"),
        ({"own": "<script>alert(1)</script>"}, "own_words"),
        ({"own": "0"}, "own_range"),
        ({"own": "-3"}, "own_range"),
        ({"own": "1000000000000"}, "own_range"),
        ({"own": " , "}, "own_empty"),
        ({"own": "1 " * 300}, "own_many"),
        ({"own": "4000 " * 100}, "own_cells"),
    ],
)
def test_route_says_what_is_wrong_with_a_list(query, key):
    status, body = answer({"B": "8", "lengths": "own", **query})
    assert status == 400
    assert json.loads(body)["key"] == key
    assert words("zh").fill(f"errors.{key}", **json.loads(body)["values"])


@pytest.mark.parametrize(
    "query", [{"B": ""}, {"B": "9000"}, {"B": "-1"}, {"B": "8" + ",8" * 99}, {"B": "8", "lengths": "?"}]
)
def test_route_refuses_rubbish(query):
    status, body = answer(query)
    assert status == 400
    assert json.loads(body)["error"]


def test_a_broken_cache_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "CACHE", tmp_path)
    lanes.lanes_for.cache_clear()
    first = lanes.lanes_for(lanes.LaneSpec(), 8)
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")
    lanes.lanes_for.cache_clear()
    assert lanes.lanes_for(lanes.LaneSpec(), 8)["static"]["steps"] == first["static"]["steps"]
    lanes.lanes_for.cache_clear()
