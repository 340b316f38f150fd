"""The course as data: text in Chinese and English, scenes, predictions, quizzes, misconceptions and UI words.

Knows nothing of the engine or the app. The app loads a lesson, draws its views and fills in every number.

    from lessons import lesson_ids, load, words
    lesson = load("l1_batching", "zh")
    words("zh")["player.static"]
"""

from lessons.errors import LessonError
from lessons.figures import LABELS, show
from lessons.loader import LANGUAGES, lesson_ids, load
from lessons.marks import Cite, Fig, Req, split
from lessons.model import Lesson, Scene
from lessons.paths import Atom, evaluate, parse
from lessons.words import Words, words

__all__ = [
    "LABELS", "LANGUAGES", "Atom", "Cite", "Fig", "Lesson", "LessonError", "Req", "Scene", "Words",
    "evaluate", "lesson_ids", "load", "parse", "show", "split", "words",
]  # fmt: skip
