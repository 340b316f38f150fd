"""Loads a lesson: `<id>/lesson.toml` (structure, and short texts in both languages) and `<id>/<lang>.md` (the prose).

The Markdown file: `# Title`, a lede paragraph, then sections `## {#id} Title` in the order of the scenes. Inline marks
are in lessons/marks.py, source paths of figures in lessons/paths.py, formats in lessons/figures.py.

lesson.toml (every `zh`/`en` pair must have both):

    id, number, minutes, core, sentence.zh/en
    [[scenes]]          id, kind, view, state = {…}, core = true; section = its id unless given.
                        kind: text | route | predict | try | explore | code | misconception | quiz.
                        state of view "swimlane": mode (static | continuous | both), B, step (from 1 as shown; 0 before
                        the first, -1 the end), optional window (steps in view; the whole run without it),
                        lengths (real64 | uniform | one_long | own), arrivals (all | poisson | bursts, or poisson:0.03)
                        state of view "board": acts (the actions, app/board.py), at (how many of them are done; all
                        without it), open, pool, b, seats, watermark, budget
    [[figures]]         key, label, format, note; source = "path" — or, quoted: value, cite
    [[predictions]]     id, scene, kind, question; answer = "path", start, tolerance, feedback.close/high/low,
                        or, of kind "choice": [[predictions.choices]] like those of a quiz
    [[route]]           id, scene, name, text, figures = [keys]; by_way, leaves, joins; loop
    [[formulas]]        id, scene, expression, text, [[formulas.terms]] id, name, text
    [[charts]]          id, scene, name, caption
    [[tries]]           id, scene, state, text, answer
    [[goals]]           id, scene, quantity, at_least and/or at_most, text, done
    [[code]]            scene, object = "module:Qualified.name", caption
    [[misconceptions]]  id, scene, claim, truth, experiment, state
    [[quiz]]            id, scene, text, [[quiz.choices]] text, right = true on exactly one, feedback

Sources that are quoted stand in common/sources.toml, for all lessons.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from lessons import model
from lessons.errors import LessonError
from lessons.figures import LABELS, check_format
from lessons.marks import Cite, Fig, marks
from lessons.paths import parse
from lessons.words import COMMON, LANGUAGES

ROOT = Path(__file__).parent
KINDS = ("text", "route", "predict", "try", "explore", "code", "misconception", "quiz")
PREDICTIONS = ("percent", "number", "choice")

_SECTION = re.compile(r"^## \{#([a-z0-9_-]+)\} +(.+?) *$", re.MULTILINE)
_TITLE = re.compile(r"\A# +(.+?) *\n")

Part = TypeVar("Part")


def lesson_ids() -> list[str]:
    """Ids of the lessons that are there, in order: folders with a lesson.toml."""
    return sorted(
        (p.parent.name for p in ROOT.glob("*/lesson.toml")), key=lambda name: int(re.sub(r"\D.*", "", name[1:]))
    )


@cache
def load(lesson_id: str, lang: str) -> model.Lesson:
    """One lesson in one language; LessonError, naming the file and the entry, if anything is missing or unknown."""
    if lang not in LANGUAGES:
        raise LessonError(f"no language '{lang}': there are {', '.join(LANGUAGES)}")
    if lesson_id not in lesson_ids():
        raise LessonError(f"no lesson '{lesson_id}': there are {', '.join(lesson_ids())}")
    folder = ROOT / lesson_id
    entries = _read_toml(folder / "lesson.toml")
    title, lede, sections = read_markdown((folder / f"{lang}.md").read_text(encoding="utf-8"), f"{lesson_id}/{lang}.md")
    return build(entries, lang, title, lede, sections)


def read_markdown(text: str, where: str) -> tuple[str, str, dict[str, model.Section]]:
    """Title, lede and the sections by id."""
    title = _TITLE.match(text)
    if title is None:
        raise LessonError(f"{where}: the first line must be '# Title'")
    heads = list(_SECTION.finditer(text))
    if len(heads) != len(re.findall(r"^## ", text, re.MULTILINE)):
        raise LessonError(f"{where}: every section begins with '## {{#id}} Title'")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    sections: dict[str, model.Section] = {}
    for head, end in zip(heads, ends, strict=True):
        if head[1] in sections:
            raise LessonError(f"{where}: section '{head[1]}' is there twice")
        sections[head[1]] = model.Section(head[1], head[2], text[head.end() : end].strip())
    return title[1], text[title.end() : heads[0].start() if heads else len(text)].strip(), sections


def build(
    entries: dict[str, Any], lang: str, title: str, lede: str, sections: dict[str, model.Section]
) -> model.Lesson:
    """A lesson from its parsed files."""
    reader = _Reader(entries, lang)
    sources = {key: reader.source(key, entry) for key, entry in _read_toml(COMMON / "sources.toml").items()}
    figures: dict[str, model.Figure] = {}
    for entry in entries.get("figures", []):
        figure = reader.figure(entry, sources)
        if figure.key in figures:
            raise LessonError(f"{reader.name}: figure '{figure.key}' is there twice")
        figures[figure.key] = figure
    attached = {
        "route": reader.attached("route", reader.stop),
        "formulas": reader.attached("formulas", reader.formula),
        "charts": reader.attached("charts", reader.chart),
        "predictions": reader.attached("predictions", reader.prediction),
        "tries": reader.attached("tries", reader.a_try),
        "goals": reader.attached("goals", reader.goal),
        "code": reader.attached("code", reader.code),
        "misconceptions": reader.attached("misconceptions", reader.misconception),
        "quiz": reader.attached("quiz", reader.question),
    }
    scenes = tuple(reader.scene(entry, sections, attached) for entry in entries.get("scenes", []))
    _check_scenes(reader.name, scenes, sections, attached)
    sentence = reader.text(entries, "sentence")
    lesson = model.Lesson(
        id=reader.name,
        number=reader.need(entries, "number", int),
        lang=lang,
        minutes=reader.need(entries, "minutes", int),
        core=reader.need(entries, "core", bool),
        title=title,
        lede=lede,
        sentence=sentence,
        scenes=scenes,
        figures=MappingProxyType(figures),
        sources=MappingProxyType(sources),
    )
    for where, text in texts(lesson):
        _check_marks(f"{reader.name}, {lang}, {where}", text, figures, sources)
    return lesson


def texts(lesson: model.Lesson) -> list[tuple[str, str]]:
    """Every text of a lesson that a reader may see, with the place where it stands."""
    found = [("title", lesson.title), ("lede", lesson.lede), ("sentence", lesson.sentence)]
    found += [(f"figure {figure.key}", figure.note) for figure in lesson.figures.values()]
    for scene in lesson.scenes:
        found += [(f"{scene.id} title", scene.section.title), (scene.id, scene.section.text)]
        found += [(f"stop {stop.id}", text) for stop in scene.route for text in (stop.name, stop.text)]
        for formula in scene.formulas:
            found.append((f"formula {formula.id}", formula.text))
            found += [(f"term {term.id}", term.text) for term in formula.terms]
        found += [(f"chart {chart.id}", chart.caption) for chart in scene.charts]
        for guess in scene.predictions:
            parts = [guess.question, *(text for c in guess.choices for text in (c.text, c.feedback))]
            if guess.feedback is not None:
                parts += [guess.feedback.close, guess.feedback.high, guess.feedback.low]
            found += [(f"prediction {guess.id}", text) for text in parts]
        found += [(f"try {item.id}", text) for item in scene.tries for text in (item.text, item.answer)]
        found += [(f"goal {goal.id}", text) for goal in scene.goals for text in (goal.text, goal.done)]
        found += [(f"code {code.object}", code.caption) for code in scene.code]
        for myth in scene.misconceptions:
            found += [(f"misconception {myth.id}", text) for text in (myth.claim, myth.truth, myth.experiment)]
        for question in scene.quiz:
            found.append((f"question {question.id}", question.text))
            found += [(f"question {question.id}", text) for c in question.choices for text in (c.text, c.feedback)]
    return found


class _Reader:
    """Reads the entries of one lesson.toml in one language, and says which entry is wrong."""

    def __init__(self, entries: dict[str, Any], lang: str) -> None:
        self.entries = entries
        self.lang = lang
        self.name: str = self.need(entries, "id", str)

    def need(self, entry: dict[str, Any], key: str, kind: type[Part]) -> Part:
        value: Any = entry.get(key)
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise LessonError(f"{self._where(entry)}: '{key}' must be given, as {kind.__name__}")
        return value

    def text(self, entry: dict[str, Any], key: str) -> str:
        pair = entry.get(key)
        if not isinstance(pair, dict) or not all(isinstance(pair.get(lang), str) and pair[lang] for lang in LANGUAGES):
            raise LessonError(f"{self._where(entry)}: '{key}' needs a text in both zh and en")
        return pair[self.lang].strip()

    def state(self, entry: dict[str, Any]) -> MappingProxyType[str, model.StateValue]:
        return MappingProxyType(dict(self.need(entry, "state", dict)))

    def attached(self, group: str, read: Callable[[dict[str, Any]], Part]) -> dict[str, tuple[Part, ...]]:
        """The parts of a group by the scene that they hang on."""
        parts: dict[str, tuple[Part, ...]] = {}
        for entry in self.entries.get(group, []):
            scene = self.need(entry, "scene", str)
            parts[scene] = (*parts.get(scene, ()), read(entry))
        return parts

    def source(self, key: str, entry: dict[str, Any]) -> model.Source:
        return model.Source(key, self.text(entry, "text"), self.need(entry, "url", str))

    def figure(self, entry: dict[str, Any], sources: dict[str, model.Source]) -> model.Figure:
        key, label, form = (self.need(entry, name, str) for name in ("key", "label", "format"))
        if label not in LABELS:
            raise LessonError(f"{self._where(entry)}: label '{label}' is none of {', '.join(LABELS)}")
        check_format(form)
        note = self.text(entry, "note")
        if label == "quoted":
            if "source" in entry or entry.get("cite") not in sources:
                raise LessonError(f"{self._where(entry)}: a quoted figure has a value and a cite from sources.toml")
            value, cite = self.need(entry, "value", float), sources[entry["cite"]]
            return model.Figure(key, label, form, note, value=value, cite=cite)
        if "value" in entry:
            raise LessonError(f"{self._where(entry)}: only a quoted figure may be typed in; give a source path")
        source = self.need(entry, "source", str)
        parse(source)
        return model.Figure(key, label, form, note, source=source)

    def stop(self, entry: dict[str, Any]) -> model.Stop:
        keys = tuple(entry.get("figures", ()))
        unknown = set(keys) - {figure.get("key") for figure in self.entries.get("figures", [])}
        if unknown:
            raise LessonError(f"{self._where(entry)}: no figure '{unknown.pop()}'")
        return model.Stop(
            id=self.need(entry, "id", str),
            name=self.text(entry, "name"),
            text=self.text(entry, "text"),
            by_way=bool(entry.get("by_way", False)),
            loop=bool(entry.get("loop", False)),
            leaves=entry.get("leaves"),
            joins=entry.get("joins"),
            figures=keys,
        )

    def prediction(self, entry: dict[str, Any]) -> model.Prediction:
        identity, kind = self.need(entry, "id", str), self.need(entry, "kind", str)
        question = self.text(entry, "question")
        if kind not in PREDICTIONS:
            raise LessonError(f"{self._where(entry)}: kind '{kind}' is none of {', '.join(PREDICTIONS)}")
        if kind == "choice":
            return model.Prediction(identity, kind, question, choices=self.choices(entry))
        answer = self.need(entry, "answer", str)
        parse(answer)
        feedback = self.need(entry, "feedback", dict)
        return model.Prediction(
            id=identity,
            kind=kind,
            question=question,
            answer=answer,
            start=self.need(entry, "start", float),
            tolerance=self.need(entry, "tolerance", float),
            feedback=model.Feedback(*(self.text(feedback, way) for way in ("close", "high", "low"))),
        )

    def formula(self, entry: dict[str, Any]) -> model.Formula:
        expression = self.need(entry, "expression", str)
        terms = tuple(
            model.Term(self.need(term, "id", str), self.text(term, "name"), self.text(term, "text"))
            for term in self.need(entry, "terms", list)
        )
        if set(re.findall(r"{(\w+)}", expression)) != {term.id for term in terms}:
            raise LessonError(f"{self._where(entry)}: the terms and the {{…}} of the expression must be the same")
        return model.Formula(self.need(entry, "id", str), expression, self.text(entry, "text"), terms)

    def chart(self, entry: dict[str, Any]) -> model.Chart:
        return model.Chart(self.need(entry, "id", str), self.need(entry, "name", str), self.text(entry, "caption"))

    def a_try(self, entry: dict[str, Any]) -> model.Try:
        identity = self.need(entry, "id", str)
        return model.Try(identity, self.state(entry), self.text(entry, "text"), self.text(entry, "answer"))

    def goal(self, entry: dict[str, Any]) -> model.Goal:
        if "at_least" not in entry and "at_most" not in entry:
            raise LessonError(f"{self._where(entry)}: a goal has at_least or at_most")
        return model.Goal(
            id=self.need(entry, "id", str),
            quantity=self.need(entry, "quantity", str),
            at_least=entry.get("at_least"),
            at_most=entry.get("at_most"),
            text=self.text(entry, "text"),
            done=self.text(entry, "done"),
        )

    def code(self, entry: dict[str, Any]) -> model.Code:
        name = self.need(entry, "object", str)
        if not re.fullmatch(r"[a-z_.0-9]+:[A-Za-z_.0-9]+", name):
            raise LessonError(f"{self._where(entry)}: object is 'module:Qualified.name', not '{name}'")
        return model.Code(name, self.text(entry, "caption"))

    def misconception(self, entry: dict[str, Any]) -> model.Misconception:
        return model.Misconception(
            self.need(entry, "id", str),
            *(self.text(entry, part) for part in ("claim", "truth", "experiment")),
            state=self.state(entry),
        )

    def question(self, entry: dict[str, Any]) -> model.Question:
        return model.Question(self.need(entry, "id", str), self.text(entry, "text"), self.choices(entry))

    def choices(self, entry: dict[str, Any]) -> tuple[model.Choice, ...]:
        choices = tuple(
            model.Choice(self.text(choice, "text"), bool(choice.get("right", False)), self.text(choice, "feedback"))
            for choice in self.need(entry, "choices", list)
        )
        if len(choices) < 2 or sum(choice.right for choice in choices) != 1:
            raise LessonError(f"{self._where(entry)}: there are two choices or more, and exactly one is right")
        return choices

    def scene(self, entry: dict[str, Any], sections: dict[str, model.Section], attached: dict[str, Any]) -> model.Scene:
        identity, kind = self.need(entry, "id", str), self.need(entry, "kind", str)
        if kind not in KINDS:
            raise LessonError(f"{self._where(entry)}: kind '{kind}' is none of {', '.join(KINDS)}")
        section = entry.get("section", identity)
        if section not in sections:
            raise LessonError(f"{self._where(entry)}: no section '{section}' in {self.lang}.md")
        return model.Scene(
            id=identity,
            kind=kind,
            core=bool(entry.get("core", False)),
            view=self.need(entry, "view", str),
            state=self.state(entry),
            section=sections[section],
            **{group: parts.get(identity, ()) for group, parts in attached.items()},
        )

    def _where(self, entry: dict[str, Any]) -> str:
        name = entry.get("id") or entry.get("key") or entry.get("object") or entry.get("scene") or "an entry"
        return f"{self.entries.get('id', 'lesson.toml')}: {name}"


def _check_scenes(
    name: str, scenes: tuple[model.Scene, ...], sections: dict[str, Any], attached: dict[str, Any]
) -> None:
    ids = [scene.id for scene in scenes]
    if not ids or len(set(ids)) != len(ids):
        raise LessonError(f"{name}: scenes need ids, each one once")
    if [scene.section.id for scene in scenes] != list(sections):
        raise LessonError(f"{name}: sections and scenes must be the same, in the same order")
    for group, parts in attached.items():
        for scene in parts:
            if scene not in ids:
                raise LessonError(f"{name}: {group} names scene '{scene}', which is not there")
    for scene in scenes:
        stops = {stop.id for stop in scene.route}
        for stop in scene.route:
            for end in (stop.leaves, stop.joins):
                if (end is not None and end not in stops) or (stop.by_way and stop.leaves is None):
                    raise LessonError(f"{name}: by-way '{stop.id}' leaves and joins stops of its own scene")


def _check_marks(where: str, text: str, figures: dict[str, model.Figure], sources: dict[str, model.Source]) -> None:
    for mark in marks(text):
        if isinstance(mark, Fig) and mark.key not in figures:
            raise LessonError(f"{where}: no figure '{mark.key}'")
        if isinstance(mark, Cite) and mark.key not in sources:
            raise LessonError(f"{where}: no source '{mark.key}' in common/sources.toml")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LessonError(f"{path.parent.name}/{path.name}: {error}") from error
