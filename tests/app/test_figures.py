"""Figures on the page come from the engine, by their source paths."""

import pytest

from app.figures import value_of
from lessons.errors import LessonError
from lessons.loader import load


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("static.8.steps", 2116),
        ("continuous.16.steps", 790),
        ("static.8.cells - static.8.useful_cells", 8 * 2116 - 9939),
        ("static.8.idle_cells", 8 * 2116 - 9939),
        ("continuous.8.steps@max", 1335),
        ("prefill_first.8.useful_cells", 9939),
        ("batch.8.1.steps", 356),
        ("batch.8.1.second", 286),
        ("batch.8.1.alone", 70),
        ("batch.8.count", 8),
        ("workload.length.7", 85),
        ("continuous.8.leave.7", 85),
        ("continuous.8.enter.9", 86),
        ("continuous.8.slot.9", 7),
        ("static.28.utilisation", 9939 / (28 * 949)),
        ("anchor.requests", 58),
    ],
)
def test_figures_come_from_the_engine(path, value):
    assert value_of(path) == pytest.approx(value)


@pytest.mark.parametrize(
    "path", ["anchor.nothing", "static.8.enter.65", "workload.length.65", "batch.8.9.steps", "m.8.steps"]
)
def test_unknown_figures_are_errors(path):
    with pytest.raises(LessonError):
        value_of(path)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_figure_of_the_lesson_resolves(lang):
    for figure in load("l1_batching", lang).figures.values():
        assert figure.source is None or value_of(figure.source) >= 0
