"""Lesson 2: what its sentences claim, against the engine's runs and by arithmetic that shares no code with it."""

from __future__ import annotations

from math import ceil, log2

import pytest

from app.code import excerpt
from app.figures import value_of
from app.split import RULES, run
from lessons.loader import load
from lessons.model import Lesson

EXAMPLE = [(5, 3), (6, 9), (3, 2), (10, 6)]


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load("l2_reservation", "zh")


@pytest.fixture(scope="module")
def value(lesson):
    return lambda key: value_of(lesson.figures[key].source)


def report(rule: str, **options: int) -> dict:
    return run(rule, **options)["report"]


def test_published_figures(value):
    assert (value("fit"), value("blocks"), value("by_blocks"), value("kv_token")) == (58, 23_305, 91, 65_536)
    assert value("eaten") == 91 - 58
    assert value("llama_all") == 256.0


def test_the_example_on_paper(lesson, value):
    assert value("ex_max") == 4 * 32 == 128
    assert value("ex_pow2") == sum(p + 2 ** ceil(log2(o)) for p, o in EXAMPLE) == 54
    assert value("ex_oracle") == sum(p + o for p, o in EXAMPLE) == 44
    assert value("ex_paged") == sum(4 * ceil((p + o) / 4) for p, o in EXAMPLE) == 48
    assert value("ex_held") == sum(4 * ceil((p + o - 1) / 4) for p, o in EXAMPLE) == 44
    assert value("ex_live") == sum(p + o - 1 for p, o in EXAMPLE) == 40
    for pair in EXAMPLE:
        assert "({},{})".format(*pair) in lesson.scene("rules").section.text


def test_the_closer_to_the_present_the_less_is_wasted(value):
    live = [value(f"{rule}_live") for rule in RULES]
    assert live == sorted(live)
    assert value("max_reserved") > value("pow2_reserved") > value("oracle_reserved")
    assert value("max_live") < 0.5
    assert value("paged_waiting") > value("paged_live")
    assert value("preemptions") > 0
    assert value("paged_steps") < value("max_steps")


def test_most_of_what_is_free_under_paging_belongs_to_the_end(value):
    made = run("paged")
    last = max(step for step, waiting in enumerate(made["waiting"]) if waiting)
    free = made["parts"]["free"]
    assert sum(free[last + 1 :]) > sum(free) / 2


def test_the_guess_is_the_engines(lesson, value):
    (guess,) = lesson.scene("guess").predictions
    assert value_of(guess.answer) == value("max_live")


def tries(lesson) -> dict:
    return {item.id: item.state for scene in lesson.scenes for item in scene.tries}


def shares(key: str, **options: int) -> list[float]:
    return [report(rule, **options)["kv"][key] for rule in RULES]


def test_a_higher_limit(lesson):
    limit = tries(lesson)["limit"]["limit"]
    before, after = shares("live_share"), shares("live_share", limit=limit)
    assert max(run("max", limit=limit)["running"]) == 1  # one by one
    assert after[0] < before[0] / 2
    assert before[1] * 0.85 < after[1] < before[1]
    assert after[2:] == before[2:]


def test_only_steps_with_somebody_waiting(lesson):
    assert tries(lesson)["saturated"]["mean"] == "waiting"
    change = [b - a for a, b in zip(shares("live_share"), shares("live_share_saturated"), strict=True)]
    assert change.index(max(map(abs, change))) == RULES.index("paged")


def test_four_times_the_memory(lesson):
    pool = tries(lesson)["pool"]["pool"]
    assert pool == 4 * value_of("split.pool")
    before, after = shares("live_share_saturated"), shares("live_share_saturated", pool=pool)
    assert all(abs(a - b) < 0.03 for a, b in zip(after, before, strict=True))
    assert all(a < b for a, b in zip(shares("live_share", pool=pool), shares("live_share"), strict=True))


def test_the_task_can_be_done(lesson):
    (goal,) = lesson.scene("tries").goals
    assert report("max")["kv"]["live_share"] < goal.at_least < report("max", prompt=128)["kv"]["live_share"]


def test_duplicates(value):
    assert value("copies") == 2 * value("prompt")


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_figure_resolves_and_the_code_exists(lang):
    lesson = load("l2_reservation", lang)
    for figure in lesson.figures.values():
        assert figure.source is None or value_of(figure.source) >= 0
    for code in lesson.scene("code").code:
        assert excerpt(code.object)["text"]
