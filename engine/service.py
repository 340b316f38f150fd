"""`EngineService`: one engine on a thread of its own, for many callers at once: submit, stream, cancel, watch.

    service = EngineService(engine)
    for token in service.stream(service.submit(request)): ...

Every method may be called from any thread; what a caller does falls between two steps. The thread sleeps while there is
nothing to run, and steps no faster than `pace`. Between two steps everybody who stands at the door is let in first,
or a fast engine would never let go of its lock.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.clock import WallClock
from engine.engine import Engine, StepRecord
from engine.errors import EngineError, ValidationError
from engine.request import Request, RequestState

log = logging.getLogger(__name__)

DOOR = 0.1
"""Seconds that the next step waits at most for callers; a step is not put off for ever by a crowd."""


class EngineService:
    """Runs an engine as requests come in.

    Args:
        engine: nobody else may touch it from now on, but through `read`.
        release_after: seconds after the last arrival at which a static batch starts though it is not full; None: never.
        is_open: more requests may come; without it a static batch takes what is there as the whole workload.
        keep: finished requests that stay in `engine.requests`; the oldest beyond them are forgotten.
        pace: most steps per second, None for as fast as it goes.
        paused: begin paused.

    Attributes:
        last_error: what a runner raised last, None if nothing did. The engine has ended the requests of that plan.
        step_seconds: how long the last step took.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        release_after: float | None = None,
        is_open: bool = True,
        keep: int = 200,
        pace: float | None = None,
        paused: bool = False,
    ) -> None:
        self.engine = engine
        self.release_after = release_after
        self.keep = keep
        self.last_error: Exception | None = None
        self.step_seconds = 0.0
        engine.is_open = is_open
        self._pace = _checked_pace(pace)
        self._paused = paused
        self._lock = threading.Condition()  # held by every step and every caller; re-entrant
        self._door = threading.Lock()  # over _callers alone
        self._callers = 0
        self._news = threading.Condition()  # over _version alone: streams sleep here
        self._version = 0
        self._subscribers: list[Callable[[StepRecord], None]] = []
        self._asked = 0  # steps asked for while paused
        self._answers: dict[int, StepRecord | None] = {}
        self._taken = 0  # steps given on asking
        self._due = -math.inf  # when the pace allows the next step
        self._last_arrival = time.monotonic()
        self._stuck = False  # work is left, nothing can run, and nothing has changed since
        self._touched = False  # somebody acted since the last record
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> str:
        """Hand in a request; returns its id. Raises what `Engine.submit` raises."""
        with self._acting() as engine:
            try:
                request_id = engine.submit(request)
            finally:
                self._forget_old()
            self._last_arrival = time.monotonic()
            return request_id

    def cancel(self, some_id: str) -> None:
        """End a request, or one branch, before the next step; ValidationError if nobody has this id."""
        with self._acting() as engine:
            engine.abort(some_id)

    def finish(self, request_id: str) -> None:
        """End a request before the next step as if its reply were complete; ValidationError for an unknown id."""
        with self._acting() as engine:
            engine.finish(request_id)

    def release(self) -> None:
        """Static batching: let those who wait start as soon as nothing runs, without waiting for a full batch."""
        with self._acting() as engine:
            engine.release()

    def stream(self, request_id: str) -> Iterator[int]:
        """Token ids of the reply (of branch 0) as they come; ends with the request, or with the service.

        Nothing is queued for a reader: it looks into the reply when it gets to it, so one that never reads is no load.

        Raises:
            ValidationError: nobody has this id, or the request is over and forgotten.
        """
        with self.read() as engine:
            if request_id not in engine.requests:
                raise ValidationError(f"no request has the id {request_id!r}")
            state = engine.requests[request_id]
        return self._tokens(state)

    def subscribe(self, fn: Callable[[StepRecord], None]) -> Callable[[], None]:
        """Have `fn(record)` called after every step, and when something happened though no step is due.

        It is called on the engine's thread with the engine at rest, so it should be quick; in a record of no step the
        plan is empty. What it raises is logged.

        Returns:
            a function that ends it.
        """
        with self.read():
            self._subscribers.append(fn)

        def unsubscribe() -> None:
            with self.read():
                if fn in self._subscribers:
                    self._subscribers.remove(fn)

        return unsubscribe

    def pause(self) -> None:
        """No step starts any more; when this returns, none is under way."""
        with self.read():
            self._paused = True

    def resume(self) -> None:
        """Go on."""
        with self.read():
            self._paused = False

    def step(self) -> StepRecord | None:
        """Run exactly one step while paused; returns its record, None if nothing is left to run.

        Raises:
            EngineError: the service is not paused, or closed.
        """
        with self._acting():
            if not self._paused:
                raise EngineError("pause the engine before you step it by hand")
            self._asked += 1
            number = self._asked
        while True:
            with self._news:
                version = self._version
            with self.read():
                if number in self._answers:
                    return self._answers.pop(number)
                if self._closing:
                    raise EngineError("the engine was closed before it could step")
            with self._news:
                self._news.wait_for(lambda seen=version: self._version != seen)

    @property
    def paused(self) -> bool:
        """True while nothing but `step` moves the engine."""
        return self._paused

    @property
    def pace(self) -> float | None:
        """Most steps per second, evenly spaced; None for as fast as it goes. May be set at any time."""
        return self._pace

    @pace.setter
    def pace(self, value: float | None) -> None:
        with self.read():
            self._pace = _checked_pace(value)
            self._due = -math.inf

    @contextmanager
    def read(self) -> Iterator[Engine]:
        """The engine at rest: no step runs inside the block."""
        with self._door:
            self._callers += 1
        with self._lock:
            try:
                yield self.engine
            finally:
                with self._door:
                    self._callers -= 1
                self._lock.notify_all()

    def close(self) -> None:
        """Stop after the step under way and wait for the thread; streams end, requests stay as they are."""
        with self.read():
            self._closing = True
        self._tell()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @contextmanager
    def _acting(self) -> Iterator[Engine]:
        """A block that changes something: what could not run may run now, and subscribers hear of it."""
        with self.read() as engine:
            if self._closing:
                raise EngineError("the engine is closed")
            self._stuck, self._touched = False, True
            yield engine

    def _tokens(self, state: RequestState) -> Iterator[int]:
        seq, given = state.sequences[0], state.request.prompt_len
        while True:
            with self._news:
                version = self._version
            with self.read():
                fresh, over = seq.token_ids[given:], seq.status.is_final or self._closing
            given += len(fresh)
            yield from fresh
            if over:
                return
            with self._news:
                self._news.wait_for(lambda seen=version: self._version != seen)

    def _loop(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(self._door_is_clear, DOOR)
                if self._closing:
                    break
                delay = self._delay()
                if delay > 0:
                    if self._touched:
                        self._publish(self.engine.between_steps())
                    self._lock.wait(None if delay == math.inf else delay)
                else:
                    self._turn()
        self._tell()

    def _door_is_clear(self) -> bool:
        return self._callers == 0

    def _delay(self) -> float:
        """Seconds until the next step is due; infinite if only a caller can change anything."""
        engine = self.engine
        if self._asked > self._taken:
            return 0
        if self._paused or not engine.has_work:
            return math.inf
        now = time.monotonic()
        if self._stuck:
            if self.release_after is None:
                return math.inf
            left = self._last_arrival + self.release_after - now
            if left > 0:
                return left
            engine.release()
            self._stuck = False
        if isinstance(engine.clock, WallClock) and not engine.scheduler.running and not engine.scheduler.waiting:
            early = engine.next_arrival - engine.clock.now  # the engine would sleep through it and hold the lock
            if early > 0:
                return early
        return max(0.0, self._due - now) if self._pace is not None else 0

    def _turn(self) -> None:
        """One step, its record to everybody."""
        engine = self.engine
        if self._pace is not None:
            now, gap = time.monotonic(), 1 / self._pace
            self._due = self._due + gap if now - self._due < gap else now + gap
        unfinished, record, start = engine.num_unfinished, None, time.perf_counter()
        try:
            record = engine.step()
        except Exception as error:
            log.exception("a step failed")
            self.last_error = error
            if engine.num_unfinished >= unfinished:  # nobody was ended: the same would happen again for ever
                self._paused = True
        self.step_seconds = time.perf_counter() - start
        self._stuck = record is not None and record.plan.is_empty
        if self._asked > self._taken:
            self._taken += 1
            self._answers[self._taken] = record
        self._publish(record if record is not None else engine.between_steps())

    def _publish(self, record: StepRecord) -> None:
        self._touched = False
        for fn in list(self._subscribers):
            try:
                fn(record)
            except Exception:
                log.exception("a subscriber of the engine failed")
        self._forget_old()
        self._tell()

    def _tell(self) -> None:
        with self._news:
            self._version += 1
            self._news.notify_all()

    def _forget_old(self) -> None:
        """Drop the oldest finished requests beyond `keep`."""
        engine = self.engine
        surplus = len(engine.requests) - engine.num_unfinished - self.keep
        if surplus > 0:
            over = [state.id for state in engine.requests.values() if state.finish_reason is not None]
            for request_id in over[:surplus]:
                engine.forget(request_id)


def _checked_pace(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValidationError(f"pace must be a number of steps per second above 0, or None; got {value!r}")
    return value
