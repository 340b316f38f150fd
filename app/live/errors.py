"""What a client is told when something cannot be done: a code, put into words by the page, and the values in it."""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError


class LiveError(Exception):
    """A request that cannot be met.

    Attributes:
        code: the word `errors.<code>` of lessons/common.
        detail: the values in that sentence.
    """

    def __init__(self, code: str, **detail: Any) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail


def told(error: LiveError | EngineError) -> dict[str, Any]:
    """The error as it goes over the wire; what the engine refuses keeps the engine's own words."""
    if isinstance(error, LiveError):
        return {"code": error.code, "detail": error.detail}
    return {"code": "engine", "detail": {"message": str(error)}}


def pace_of(value: object) -> float | None:
    """A pace as a client may set it: 1 to 20 steps a second, or None for as fast as it goes."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 20:
        raise LiveError("live_value", name="pace")
    return value
