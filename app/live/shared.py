"""`Shared`: the one engine everybody looks at in lesson 8, and what anybody may ask of it.

Its pool is a teaching pool: small enough that memory runs out before a class has lost interest.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.live.board import Board
from app.live.errors import LiveError, pace_of
from app.live.feed import Feed
from app.live.machines import CPU, GPU, MACHINES
from app.live.models import Model, Models
from engine.config import EngineConfig
from engine.engine import Engine, StepRecord
from engine.errors import CapacityError, EngineError
from engine.request import MAX_TOKENS_LIMIT, Request, SamplingParams
from engine.service import EngineService

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "lessons" / "l8_live" / "prompts.toml"

BLOCKS, BLOCK_SIZE, SLOTS, PACE = 128, 16, 8, 8
MAX_OPEN = 120
"""Requests that may run and wait at once: more is a mistake, or mischief."""
MAX_PROMPT, MAX_NAME, MAX_FILL = 2000, 24, 24
FILL_TOKENS = (40, 90, 60, 150, 30, 110, 75, 200)
"""Longest replies of the example requests, in turn."""


@dataclass(frozen=True)
class Change:
    """What the engine shall run on next.

    Attributes:
        key: the model's.
        machine: `cpu` or `gpu`.
        drains: whether those who run and wait may finish first; else they are cancelled when the model is there.
    """

    key: str
    machine: str
    drains: bool


class Shared:
    """Made once for the whole app; every method may be called from any thread.

    Args:
        models: the models of the app; the engine starts as soon as the small one is ready.

    Attributes:
        feed: the frames.
    """

    def __init__(self, models: Models, *, pace: float | None = PACE) -> None:
        self.models = models
        self.feed = Feed(self.frame, self._again)
        self._first_pace = pace
        self._number = 0
        self._lock = threading.RLock()  # over which engine is the present one
        self._state, self._message = "loading", ""
        self._change: Change | None = None  # waits for its model, or for those inside
        self._model: Model | None = None
        self._service: EngineService | None = None
        self._board: Board | None = None
        models.watch(self._models_changed)
        self._models_changed()

    def act(self, message: dict[str, Any]) -> Any:
        """Do what a client asks.

        Raises:
            LiveError, EngineError: why it cannot be done.
        """
        action = message.get("do")
        if action == "fetch":
            return self._fetch(message.get("model"))
        if action == "switch":
            return self._switch(message)
        if action == "stay":
            return self._stay()
        with self._lock:
            service, board, model = self._service, self._board, self._model
            if service is None or board is None or model is None:
                raise LiveError("live_loading")
            try:
                if action in ("submit", "fill") and self._is_draining():
                    raise LiveError("live_draining")
                if action == "submit":
                    return self._submit(service, board, model, message)
                if action == "fill":
                    return self._fill(service, board, model, message.get("count"))
                if action == "cancel":
                    service.cancel(str(message.get("id")))
                elif action == "pause":
                    service.pause()
                elif action == "resume":
                    service.resume()
                elif action == "pace":
                    service.pace = pace_of(message.get("value"))
                elif action == "step":
                    if not service.paused:
                        raise LiveError("live_not_paused")
                    service.step()
                else:
                    raise LiveError("live_message")
            finally:
                self.feed.changed()
        return None

    def frame(self) -> str:
        """The state as one JSON message."""
        with self._lock:
            service, board, model = self._service, self._board, self._model
            told: dict[str, Any] = {
                "type": "engine",
                "model": model.describe() if model is not None else None,
                "models": self.models.status(model.machine if model is not None else CPU),
                "gpu": asdict(self.models.gpu()),
                "change": self._change_told(),
                "state": self._state,
                "message": self._message,
                "paused": service.paused if service is not None else False,
                "pace": service.pace if service is not None else self._first_pace,
            }
            if service is not None and board is not None:
                with service.read():
                    told.update(board.frame())
            else:
                told.update(EMPTY)
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))

    def close(self) -> None:
        """Stop the engine."""
        with self._lock:
            if self._service is not None:
                self._service.close()
            self._service = self._board = None

    def _again(self) -> float | None:
        board = self._board
        return board.rates.seconds_to_change(time.perf_counter()) if board is not None else None

    def _models_changed(self) -> None:
        with self._lock:
            if self._service is None:
                model, standing = self.models.get("tiny"), self.models.standing("tiny")
                if model is not None:
                    self._run_on(model)
                elif standing.state == "failed":
                    self._state, self._message = "failed", standing.message
        self._advance()

    def _advance(self) -> None:
        """Make the change that is wanted, if its model is there and nobody has to be waited for."""
        with self._lock:
            change, service = self._change, self._service
            if change is not None and service is not None:
                model = self.models.get(change.key, change.machine)
                with service.read() as engine:
                    is_empty = not engine.num_unfinished
                if model is None:
                    standing = self.models.standing(change.key, change.machine)
                    if standing.state == "failed":
                        self._change, self._message = None, standing.message
                elif is_empty or not change.drains:
                    self._run_on(model)
        self.feed.changed()

    def _run_on(self, model: Model) -> None:
        """A new engine on a model; what runs on the one before ends. It stays if the new one cannot be made."""
        self._change = None
        before, kept = self._service, []
        limits = [BLOCKS * BLOCK_SIZE, model.loaded.max_model_len or BLOCKS * BLOCK_SIZE]
        config = EngineConfig(BLOCKS, BLOCK_SIZE, SLOTS, max_model_len=min(limits))
        try:
            engine = Engine(config, model.runner(), keep_trace=False)
        except Exception as error:  # also what a GPU raises, such as that its memory is full
            log.exception("no engine on %s", model.describe())
            self._message = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
            self._state = "failed" if before is None else "ready"
            return
        pace, paused = (before.pace, before.paused) if before is not None else (self._first_pace, False)
        if before is not None and self._board is not None:
            before.pause()
            with before.read() as old:
                for entry in self._board.entries():
                    if not entry.is_over:
                        old.abort(entry.state.id)
                    entry.text()
                    kept.append(entry)
            before.close()
        board = Board(engine, model, kept)
        service = EngineService(engine, pace=pace, paused=paused)

        def hear(record: StepRecord) -> None:
            board.hear(record, service.step_seconds)
            if self._change is not None and not engine.num_unfinished:
                threading.Thread(target=self._advance, name="change", daemon=True).start()  # not on the engine's thread
            self.feed.changed()

        service.subscribe(hear)
        self._model, self._service, self._board = model, service, board
        self._state, self._message = "ready", ""

    def _fetch(self, key: object) -> None:
        if key != "smollm2":
            raise LiveError("live_value", name="model")
        self.models.ask_for("smollm2")

    def _switch(self, message: dict[str, Any]) -> None:
        """Change the model, the machine, or both; a second wish takes the place of the first."""
        with self._lock:
            present = self._model
            if present is None:
                raise LiveError("live_loading")
            key, machine = message.get("model", present.key), message.get("machine", present.machine)
            running = message.get("running", "finish")
            if machine not in MACHINES:
                raise LiveError("live_value", name="machine")
            if not isinstance(key, str) or key not in self.models.status():
                raise LiveError("live_value", name="model")
            if running not in ("finish", "cancel"):
                raise LiveError("live_value", name="running")
            if machine == GPU and not self.models.gpu().can_run:
                raise LiveError("live_no_gpu")
            if self.models.standing(key, machine).state in ("absent", "fetching"):
                raise LiveError("live_model")
            self._message = ""
            is_there = self.models.get(key, machine) is present
            self._change = None if is_there else Change(key, machine, drains=running == "finish")
        if not is_there:
            self.models.ask_for(key, machine)
        self._advance()

    def _stay(self) -> None:
        """Take back a change that was not made yet."""
        with self._lock:
            self._change = None
        self.feed.changed()

    def _is_draining(self) -> bool:
        """Whether the door is shut: the next model is there and only those inside are waited for."""
        change = self._change
        return change is not None and change.drains and self.models.get(change.key, change.machine) is not None

    def _change_told(self) -> dict[str, Any] | None:
        change, service = self._change, self._service
        if change is None or service is None:
            return None
        return {**asdict(change), "draining": self._is_draining(), "left": service.engine.num_unfinished}

    def _submit(self, service: EngineService, board: Board, model: Model, message: dict[str, Any]) -> str:
        prompt, name = clean(message.get("prompt"), "prompt"), clean(message.get("name") or "", "name")
        if len(prompt) > MAX_PROMPT:
            raise LiveError("live_prompt", count=len(prompt), max=MAX_PROMPT)
        tokens = model.encode(prompt) if prompt.strip() else []
        if not tokens:
            raise LiveError("live_empty")
        max_tokens = message.get("max_tokens", 60)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise LiveError("live_max_tokens")
        limit = service.engine.config.max_model_len
        too_big = LiveError("live_too_big", prompt=len(tokens), max_tokens=max_tokens, limit=limit)
        if max_tokens > MAX_TOKENS_LIMIT:
            raise too_big
        temperature, top_p = message.get("temperature"), message.get("top_p")
        if temperature is not None and not is_temperature(temperature):
            raise LiveError("live_temperature")
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0.8 if temperature is None else temperature,
            top_k=message.get("top_k"),
            top_p=1.0 if top_p is None else top_p,
            seed=message.get("seed"),
        )
        request = Request(tuple(tokens), params, name=name.strip()[:MAX_NAME])
        try:
            return self._hand_in(service, board, request, prompt)
        except CapacityError as refused:
            raise too_big from refused

    def _fill(self, service: EngineService, board: Board, model: Model, count: object) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_FILL:
            raise LiveError("live_value", name="count")
        prompts, names = examples(model.language)
        with service.read():  # all before the next step
            for _ in range(count):
                n = self._number
                prompt = prompts[n % len(prompts)]
                params = SamplingParams(FILL_TOKENS[n % len(FILL_TOKENS)], temperature=0.8, top_p=0.95, seed=n)
                request = Request(tuple(model.encode(prompt)), params, name=names[n % len(names)])
                self._hand_in(service, board, request, prompt)

    def _hand_in(self, service: EngineService, board: Board, request: Request, prompt: str) -> str:
        """Submit under the next running number, which is the id too."""
        with service.read() as engine:
            if engine.num_unfinished >= MAX_OPEN:
                raise LiveError("live_full", max=MAX_OPEN)
            number = self._number + 1
            try:
                request_id = service.submit(numbered(request, number))
            except CapacityError as refused:
                self._number = number
                board.add(number, engine.requests[refused.request_id], prompt)
                raise
            self._number = number
            board.add(number, engine.requests[request_id], prompt)
            return request_id


def numbered(request: Request, number: int) -> Request:
    """The request with its number as its id."""
    return Request(request.prompt_token_ids, request.params, name=request.name, request_id=str(number))


def clean(text: object, name: str) -> str:
    """What a person typed, as text that every browser can be sent again: no lone surrogates, no control characters."""
    if not isinstance(text, str):
        raise LiveError("live_value", name=name)
    text = text.encode("utf-8", "ignore").decode("utf-8")
    return "".join(c for c in text if c in "\n\t" or ord(c) >= 32)


def is_temperature(value: object) -> bool:
    """Whether it is a number from 0 to 2."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 2


@cache
def examples(language: str) -> tuple[list[str], list[str]]:
    """Openings and names for a model that writes this language."""
    found = tomllib.loads(PROMPTS.read_text(encoding="utf-8"))
    return found[language], found["names"][language]


EMPTY: dict[str, Any] = {
    "engine": {
        "slots": SLOTS,
        "num_blocks": BLOCKS,
        "block_size": BLOCK_SIZE,
        "policy": "continuous",
        "max_model_len": None,
    },
    "step": 0,
    "window": 240,
    "segs": [],
    "notches": [],
    "requests": [],
    "blocks": [-1, 0, 0] * BLOCKS,
    "usage": None,
    "queue": {"head": None, "behind": []},
    "log": [],
    "rates": {"tokens_per_second": None, "ttft_ms": None, "itl_ms": None, "step_ms": None, "history": []},
}
"""The engine's part of a frame while there is no engine."""
