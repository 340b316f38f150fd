"""The one error of this package: a lesson file that breaks its own rules."""


class LessonError(ValueError):
    """A lesson, a figure's path or a UI word is missing or malformed; the message names the file and the cure."""
