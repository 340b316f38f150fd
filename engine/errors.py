"""The exceptions of the engine: bad input and missing capacity, each with a reason a caller can act on.

Nothing in the engine uses `assert` for what a user can cause; an `InvariantError` means the engine itself is wrong.
"""


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class ValidationError(EngineError, ValueError):
    """A parameter is outside its range; the message says which one and what would be accepted."""


class CapacityError(EngineError):
    """A request can never fit, however long it waits.

    Attributes:
        reason: the reason code, `"TOO_BIG"`.
        request_id: the refused request, still found in `engine.requests`.
    """

    def __init__(self, message: str, *, reason: str, request_id: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.request_id = request_id


class ModelError(EngineError):
    """A model cannot be loaded or run here; the message says why and what to do."""


class InvariantError(EngineError):
    """`Engine.check()` found the engine's books inconsistent."""
