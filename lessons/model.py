"""What a lesson is made of. Everything is frozen, in one language, and Markdown stays Markdown.

A lesson is a list of scenes; a scene is one idea: a section of text, a picture in a defined state, one thing to do.
What there is to do (a prediction, tries, questions …) hangs on the scene.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

StateValue = str | int | float | bool


@dataclass(frozen=True)
class Source:
    """A publication that is quoted."""

    id: str
    text: str
    url: str


@dataclass(frozen=True)
class Figure:
    """A number on the page. `source` is a path (lessons/paths.py); a quoted figure has `value` and `cite` instead."""

    key: str
    label: str
    format: str
    note: str
    source: str | None = None
    value: float | None = None
    cite: Source | None = None


@dataclass(frozen=True)
class Feedback:
    """What is said to a guess, seen from the answer."""

    close: str
    high: str
    low: str


@dataclass(frozen=True)
class Choice:
    text: str
    right: bool
    feedback: str


@dataclass(frozen=True)
class Prediction:
    """The learner commits to a number or a choice before it is revealed.

    kind "percent" (0 to 100) or "number": `answer` is a source path; kind "choice": there are `choices` instead.
    """

    id: str
    kind: str
    question: str
    answer: str = ""
    start: float = 0.0
    tolerance: float = 0.0
    feedback: Feedback | None = None
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Try:
    """One thing to try: a question, the state that leads to it, and an answer that opens on demand."""

    id: str
    state: Mapping[str, StateValue]
    text: str
    answer: str


@dataclass(frozen=True)
class Goal:
    """A task the engine checks: `quantity` ("static.utilisation", say) of the view's own run, against a bound."""

    id: str
    quantity: str
    at_least: float | None
    at_most: float | None
    text: str
    done: str


@dataclass(frozen=True)
class Question:
    id: str
    text: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Misconception:
    """What people say, and the experiment that refutes it: a state of the view and what is seen there."""

    id: str
    claim: str
    truth: str
    experiment: str
    state: Mapping[str, StateValue]


@dataclass(frozen=True)
class Term:
    """A part of a formula that can be clicked: its name as written in the formula, and what it means."""

    id: str
    name: str
    text: str


@dataclass(frozen=True)
class Formula:
    """A formula: symbols set apart by blanks, with {term} where one can be clicked.

    "{allocated} = ⌈ {n} / {b} ⌉ × {b}"
    """

    id: str
    expression: str
    text: str
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Chart:
    """A chart by the name of its data, with what it shows in words."""

    id: str
    name: str
    caption: str


@dataclass(frozen=True)
class Stop:
    """A stop on the request's way. A by-way leaves the main way at stop `leaves` and joins it again at `joins`."""

    id: str
    name: str
    text: str
    by_way: bool
    loop: bool
    leaves: str | None
    joins: str | None
    figures: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """A piece of the engine to show from its own source: "module:Qualified.name"."""

    object: str
    caption: str


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Scene:
    id: str
    kind: str
    core: bool
    view: str
    state: Mapping[str, StateValue]
    section: Section
    route: tuple[Stop, ...] = ()
    formulas: tuple[Formula, ...] = ()
    charts: tuple[Chart, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    tries: tuple[Try, ...] = ()
    goals: tuple[Goal, ...] = ()
    code: tuple[Code, ...] = ()
    misconceptions: tuple[Misconception, ...] = ()
    quiz: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Lesson:
    id: str
    number: int
    lang: str
    minutes: int
    core: bool
    title: str
    lede: str
    sentence: str
    scenes: tuple[Scene, ...]
    figures: Mapping[str, Figure]
    sources: Mapping[str, Source]

    def scene(self, scene_id: str) -> Scene:
        """The scene of that id; KeyError if there is none."""
        return {scene.id: scene for scene in self.scenes}[scene_id]
