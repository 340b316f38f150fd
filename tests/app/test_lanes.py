"""Workloads of the page, the lanes behind them, the cache on disk, and the route."""

from __future__ import annotations

import gzip
import json

import pytest

from app import lanes
from app.lanes import Spec, SpecError, parse_own
from app.routes import answer
from lessons.words import words
from tests.factories import PUBLISHED


def body_of(query: dict[str, str]) -> tuple[int, dict]:
    status, body = answer(query)
    return status, json.loads(gzip.decompress(body))


@pytest.mark.parametrize(("policy", "slots", "steps", "utilisation"), PUBLISHED)
def test_published_figures(policy, slots, steps, utilisation):
    run = lanes.lanes(Spec(), slots)[policy]
    assert run["steps"] == steps
    assert run["utilisation"] == pytest.approx(utilisation, abs=5e-5)


def test_route_gives_both_policies():
    status, body = body_of({"B": "16"})
    assert status == 200
    assert (body["static"]["steps"], body["continuous"]["steps"]) == (1258, 790)


@pytest.mark.parametrize("arrivals", ["all", "poisson", "poisson:0.2", "bursts", "bursts:8:100"])
@pytest.mark.parametrize("lengths", lanes.LENGTHS)
def test_route_knows_every_workload(lengths, arrivals):
    status, body = body_of({"B": "4", "lengths": lengths, "arrivals": arrivals, "own": "5, 9, 2"})
    assert status == 200
    assert body["continuous"]["useful_cells"] == sum(body["continuous"]["lengths"])


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("12, x", "own_words"),
        ("1.5", "own_words"),
        ("<script>alert(1)</script>", "own_words"),
        ("0", "own_range"),
        ("7 -3", "own_range"),
        ("1000000000000", "own_range"),
        ("9" * 19_000, "own_range"),
        ("", "own_empty"),
        (" , ，\n", "own_empty"),
        ("1 " * 513, "own_many"),
        ("4000 " * 100, "own_cells"),
    ],
)
def test_a_bad_list_is_answered_with_a_reason_in_both_languages(typed, code):
    status, body = body_of({"B": "8", "lengths": "own", "own": typed})
    assert status == 400
    assert body["error"]["code"] == code
    for lang in ("zh", "en"):
        assert len(words(lang).fill(f"errors.{code}", **body["error"]["detail"])) < 200


@pytest.mark.parametrize("typed", ["12, 40, 7", "12，40、7", "12;40\n7", " 12  40 +7 "])
def test_separators_people_type(typed):
    assert parse_own(typed) == (12, 40, 7)


@pytest.mark.parametrize(
    "query",
    [
        {"B": ""},
        {"B": "17"},
        {"B": "9000"},
        {"B": "-1"},
        {"B": "8,8"},
        {"lengths": "?"},
        {"arrivals": "poisson:0"},
        {"arrivals": "poisson:1e400"},
        {"arrivals": "bursts:16"},
        {"arrivals": "bursts:1:1:1"},
        {"arrivals": "never"},
    ],
)
def test_route_refuses_rubbish(query):
    status, body = body_of(query)
    assert status == 400
    assert body["error"]["code"] == "query"


def test_route_survives_a_failing_engine(monkeypatch):
    def broken(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr("app.routes.packed", broken)
    status, body = body_of({"B": "8"})
    assert status == 500
    assert body["error"] == {"code": "broken", "detail": {}}


def test_every_error_has_words():
    for lang in ("zh", "en"):
        known = set(words(lang).group("errors"))
        assert known >= {"own_words", "own_range", "own_empty", "own_many", "own_cells", "query", "offline", "broken"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "CACHE", tmp_path)
    lanes.packed.cache_clear()
    yield tmp_path
    lanes.packed.cache_clear()


def test_a_broken_cache_file_is_made_again(cache):
    first = lanes.packed(Spec(), 8)
    (path,) = cache.rglob("*.gz")
    path.write_bytes(first[:100])
    lanes.packed.cache_clear()
    assert lanes.packed(Spec(), 8) == first
    assert path.read_bytes() == first


def test_what_people_type_is_not_kept_on_disk(cache):
    lanes.packed(Spec("own", (3, 1, 2)), 2)
    assert not list(cache.rglob("*.gz"))


def test_unknown_names():
    with pytest.raises(SpecError, match="lengths"):
        Spec.parse({"lengths": "normal"})
