"""lessons/paths.py: the language of source paths."""

import pytest

from lessons.errors import LessonError
from lessons.paths import Atom, evaluate, parse


def test_parses_atoms_operators_and_variants():
    assert parse("static.8.steps - continuous.8.steps@max") == [
        Atom(("static", 8, "steps")),
        "-",
        Atom(("continuous", 8, "steps"), "max"),
    ]
    assert parse("batch.12.6.size") == [Atom(("batch", 12, 6, "size"))]
    assert parse("continuous.8.enter.9") == [Atom(("continuous", 8, "enter", 9))]


@pytest.mark.parametrize(
    "path",
    ["", "static.8", "static.0.steps", "batch.8.0.steps", "anchor", "workload.median", "anchor.blocks@max",
     "static.8.steps@buddy", "static.8.steps-continuous.8.steps", "static.8.steps -", "__import__('os')"],
)  # fmt: skip
def test_an_unknown_path_is_an_error(path):
    with pytest.raises(LessonError, match="unknown source path"):
        parse(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [("anchor.a", 7), ("anchor.a - anchor.b - anchor.b", 3), ("anchor.a + anchor.b * anchor.b", 11),
     ("anchor.b * anchor.b / anchor.a - anchor.b", 4 / 7 - 2),
     ("anchor.zero - anchor.a", -7), ("anchor.zero * anchor.a", 0)],
)  # fmt: skip
def test_evaluates_with_the_usual_precedence(path, value):
    quantities = {"a": 7, "b": 2, "zero": 0}
    assert evaluate(path, lambda atom: quantities[atom.parts[1]]) == value
