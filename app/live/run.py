"""`Run`: lesson 1's picture computed by a real model, for one visitor alone; it ends with the visitor's socket.

The requests are those of the counted picture: same lengths, same arrivals, prompts of one token; end-of-text tokens are
ignored. So the schedule is the counted one to the last block, and only tokens and times are the model's.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from app.lanes import POLICIES, Spec, SpecError, parse_slots
from app.live.errors import LiveError, pace_of, told
from app.live.feed import Feed
from app.live.models import Model, Models, ids_of_one_token
from app.live.stopwatch import Stopwatch
from engine.config import EngineConfig
from engine.engine import Engine, StepRecord
from engine.errors import EngineError
from engine.model.text import TextStream
from engine.request import Request, SamplingParams
from engine.service import EngineService
from engine.simulate import largest_demand
from engine.trace import Trace
from engine.workload import Workload

log = logging.getLogger(__name__)

OPENINGS = ("卻", "玄", "次", "且", "孔", "操", "言", "張", "關", "雲", "孫", "周", "忽", "呂", "魏", "趙")
"""First characters of many paragraphs of the novel the small model learnt."""
FINISHED = 3


class Seats:
    """At most so many runs at a time; the others wait in the order they came."""

    def __init__(self, count: int = 2) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._line: list[object] = []

    def take(self, who: object, gives_up: Callable[[], bool]) -> bool:
        """Wait for a seat; False if `gives_up()` came true before (`nudge` makes it look)."""
        with self._changed:
            self._line.append(who)
            self._changed.wait_for(lambda: gives_up() or self.has(who))
            return not gives_up()

    def has(self, who: object) -> bool:
        return who in self._line[: self._count]

    def leave(self, who: object) -> None:
        with self._changed:
            if who in self._line:
                self._line.remove(who)
            self._changed.notify_all()

    def nudge(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Part:
    """One policy of a run.

    Attributes:
        trace: of the engine.
        service: the engine's thread, None once it is over.
    """

    def __init__(self, policy: str, workload: Workload, slots: int, model: Model, changed: Callable[[], None]) -> None:
        requests = requests_of(workload, model)
        blocks = slots * largest_demand(requests, EngineConfig(1, max_num_seqs=slots, policy=policy))
        self.engine = Engine(EngineConfig(blocks, max_num_seqs=slots, policy=policy), model.runner())
        self.trace = self._trace()
        self.over = threading.Event()
        self.service: EngineService | None = None
        self._model = model
        self._changed = changed
        self._index = {self.engine.submit(request): i for i, request in enumerate(requests)}
        self._watch = Stopwatch({rid: self.engine.requests[rid].arrival for rid in self._index})
        self._streams: dict[str, TextStream] = {}
        self._read: dict[str, int] = {}
        self._finished: list[str] = []
        self._last: tuple[dict[str, Any], dict[str, Any], list[Any]] | None = None

    def start(self, *, pace: float | None, paused: bool) -> None:
        """Begin to step."""
        self._watch = Stopwatch({rid: self.engine.requests[rid].arrival for rid in self._index})
        self.service = EngineService(self.engine, is_open=False, keep=len(self._index), pace=pace, paused=True)
        self.service.subscribe(self._hear)
        if not paused:
            self.service.resume()

    def tell(self) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """(lanes so far, what was measured, the texts being written and the last finished ones)."""
        service = self.service
        if self._last is not None:
            return self._last
        if service is None:
            return self._tell()
        with service.read():
            return self._tell()

    def end(self) -> Exception | None:
        """Close the engine, keep what is to be shown; returns what the runner raised, if it did."""
        service = self.service
        if service is None:
            return None
        service.close()
        with service.read():
            self._last = self._tell()
        self.service = None
        del self.engine.runner  # and with it the pool of KV
        return service.last_error

    def _hear(self, record: StepRecord) -> None:
        if not record.plan.is_empty and self.service is not None:
            self._watch.step(record, self.service.step_seconds)
        self._finished.extend(event.request_id for event in record.after)
        if not self.engine.has_work or (self.service is not None and self.service.last_error is not None):
            self.over.set()
        self._changed()

    def _tell(self) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        running = sorted(self.engine.scheduler.running, key=lambda seq: seq.slot or 0)
        writing = [seq.request_id for seq in running] + self._finished[-FINISHED:]
        return self.trace.lanes(), self._watch.tell(), [[self._index[rid], self._text(rid)] for rid in writing]

    def _text(self, request_id: str) -> str:
        """A request's text so far, its first character being the prompt."""
        state = self.engine.requests[request_id]
        if request_id not in self._streams:
            self._streams[request_id], self._read[request_id] = self._model.text(), 0
        stream, tokens = self._streams[request_id], state.sequences[0].token_ids
        stream.add(tokens[self._read[request_id] :])
        self._read[request_id] = len(tokens)
        if state.finish_reason is not None:
            stream.end()
        return stream.text

    def _trace(self) -> Trace:
        if self.engine.trace is None:
            raise LiveError("broken")
        return self.engine.trace


class Run:
    """All policies a visitor asked for, one after the other.

    Args:
        params: the query of the address: `lengths`, `own`, `arrivals`, `B`, `policies`.
        models: the models of the app; the small one runs.
        seats: shared by all runs.

    Attributes:
        feed: the frames.
        parts: the policies begun, by name.
    """

    def __init__(self, params: Mapping[str, str], models: Models, seats: Seats) -> None:
        self.models = models
        self.seats = seats
        self.feed = Feed(self.frame)
        self.parts: dict[str, Part] = {}
        self._params = dict(params)
        self._lock = threading.RLock()
        self._state, self._message, self._error = "busy", "", None
        self._model: Model | None = None
        self._pace: float | None = None
        self._paused = False
        self._stopped = threading.Event()
        self._policy: str | None = None
        self._model_came = threading.Event()
        self._thread = threading.Thread(target=self._drive, name="run", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def act(self, message: dict[str, Any]) -> None:
        """Do what the client asks.

        Raises:
            LiveError, EngineError: why it cannot be done.
        """
        action = message.get("do")
        with self._lock:
            part = self.parts.get(self._policy or "")
            service = part.service if part is not None else None
            if action in ("pause", "resume"):
                self._paused = action == "pause"
                if service is not None:
                    service.pause() if self._paused else service.resume()
            elif action == "pace":
                self._pace = pace_of(message.get("value"))
                if service is not None:
                    service.pace = self._pace
            elif action == "stop":
                self._stop()
            elif action != "step":
                raise LiveError("live_message")
            elif not self._paused:
                raise LiveError("live_not_paused")
        if action == "step" and service is not None:
            service.step()
        self.feed.changed()

    def close(self) -> None:
        """End it and wait until nothing of it runs any more."""
        self._stop()
        if self._thread.is_alive():
            self._thread.join()

    def frame(self) -> str:
        """The state as one JSON message."""
        with self._lock:
            parts, state, model = list(self.parts.items()), self._state, self._model
            if state == "running" and self._paused:
                state = "paused"
            frame: dict[str, Any] = {
                "type": "run",
                "model": model.describe() if model is not None else None,
                "state": state,
                "message": self._message,
                "error": self._error,
                "pace": self._pace,
                "policy": self._policy,
                "lanes": {},
                "measured": {},
                "texts": [],
            }
        for policy, part in parts:
            frame["lanes"][policy], frame["measured"][policy], frame["texts"] = part.tell()
        return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))

    def _stop(self) -> None:
        self._stopped.set()
        self._model_came.set()
        part = self.parts.get(self._policy or "")
        if part is not None:
            part.over.set()
        self.seats.nudge()

    def _drive(self) -> None:
        """The run's own thread: model, seat, each policy."""
        try:
            spec, slots, policies = parse(self._params)
            model = self._wait_for_model()
            if model is not None:
                fits(spec, model)
            if self.seats.take(self, self._stopped.is_set):
                for policy in policies:
                    if model is not None and not self._stopped.is_set():
                        self._run(policy, spec.workload(), slots, model)
            self._stand("stopped" if self._stopped.is_set() else "done")
        except (LiveError, EngineError) as error:
            self._fail(told(error), str(error))
        except SpecError as error:
            self._fail({"code": error.code, "detail": error.detail}, str(error))
        except Exception as error:
            log.exception("a run failed")
            self._fail({"code": "broken", "detail": {}}, f"{type(error).__name__}: {error}")
        finally:
            self.seats.leave(self)

    def _wait_for_model(self) -> Model | None:
        if self.models.get("tiny") is None:
            self._stand("loading")
        unwatch = self.models.watch(self._model_came.set)
        try:
            while (model := self.models.get("tiny")) is None and not self._stopped.is_set():
                standing = self.models.standing("tiny")
                if standing.state == "failed":
                    raise EngineError(standing.message)
                self._model_came.wait()
                self._model_came.clear()
        finally:
            unwatch()
        self._model = model
        self._stand("busy")
        return model

    def _run(self, policy: str, workload: Workload, slots: int, model: Model) -> None:
        part = Part(policy, workload, slots, model, self.feed.changed)
        with self._lock:
            self.parts[policy], self._policy = part, policy
            part.start(pace=self._pace, paused=self._paused)
            if self._stopped.is_set():
                part.over.set()
        self._stand("running")
        part.over.wait()
        with self._lock:
            error = part.end()
        if error is not None:
            raise EngineError(str(error)) from error

    def _stand(self, state: str) -> None:
        with self._lock:
            self._state = state
        self.feed.changed()

    def _fail(self, error: dict[str, Any], message: str) -> None:
        with self._lock:
            self._state, self._error, self._message = "failed", error, message
        self.feed.changed()


def parse(params: Mapping[str, str]) -> tuple[Spec, int, tuple[str, ...]]:
    """Workload, B and policies of an address; SpecError if it cannot be understood."""
    policies = tuple(params.get("policies", ",".join(POLICIES)).split(","))
    if not set(policies) <= set(POLICIES) or len(set(policies)) < len(policies):
        raise SpecError("query", name="policies")
    return Spec.parse(params), parse_slots(params.get("B", "8")), policies


def fits(spec: Spec, model: Model) -> None:
    """LiveError names the first length of a person's own list that the model has no room for."""
    positions = model.loaded.max_model_len
    if spec.lengths != "own" or positions is None:
        return
    for i, length in enumerate(spec.own, 1):
        if length > positions - 1:  # the prompt takes one
            raise LiveError("own_context", i=i, word=length, positions=positions, max=positions - 1)


def requests_of(workload: Workload, model: Model) -> list[Request]:
    """The workload's requests with prompts of one real token, drawn with a seed of their own."""
    openings = ids_of_one_token(model, OPENINGS)
    if not openings:
        raise LiveError("broken")
    return [
        Request(
            prompt_token_ids=(openings[i % len(openings)],),
            params=SamplingParams(r.params.max_tokens, temperature=0.8, top_p=0.95, seed=i, ignore_eos=True),
            arrival=r.arrival,
            priority=r.priority,
            name=r.name,
            output_len=r.output_len,
        )
        for i, r in enumerate(workload.requests(1))
    ]
