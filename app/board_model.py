"""The board on the small model: the same list of actions, the same two allocators, and a model that really writes.

Prompts are real token ids, replies are drawn with a seed of each request's own and do not stop before their limit, so
the schedule is the counted one. Whether it is, block by block, is not assumed but compared, every time.
"""

from __future__ import annotations

import itertools
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from app.board import SIDES, Action, Board, Size, Spec
from app.lanes import SpecError
from app.live.errors import LiveError
from app.live.models import Model, Models
from engine.request import Request, SamplingParams
from engine.runner import Runner

PROMPTS = Path(__file__).resolve().parent.parent / "lessons" / "l8_live" / "prompts.toml"
MAX_ACTIONS = 120
"""More than anybody presses in a lesson: every press runs the whole list again."""

_turn = threading.Lock()
"""One list at a time: the model has one thread."""


class Writing:
    """The small model as the board's mind."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def runner(self) -> Runner:
        return self.model.runner()

    def request(self, number: int, size: Size) -> Request:
        """A prompt of exactly that many tokens: an opening of the novel, and on from there."""
        tokens = self.model.encode(_opening(number))
        prompt = tuple(itertools.islice(itertools.cycle(tokens), size.length))
        params = SamplingParams(size.limit - size.length, temperature=0.8, top_p=0.95, seed=number, ignore_eos=True)
        return Request(prompt, params, request_id=str(number))


class BoardModel:
    """Runs lists of actions on the model.

    Args:
        models: those of the app.
    """

    def __init__(self, models: Models) -> None:
        self._models = models

    def frames(self, params: Mapping[str, str]) -> dict[str, Any]:
        """What came of the actions: `texts` per side and request, `ms` per side and step (null: nothing ran), `same`,
        and the `model`.

        Raises:
            SpecError: the query is not usable.
            LiveError: the model is not ready yet, or never will be.
        """
        spec = Spec.parse(params)
        if len(spec.actions) > MAX_ACTIONS:
            raise SpecError("board_actions", max=MAX_ACTIONS)
        model = self._models.get("tiny")
        if model is None:
            raise LiveError("live_model" if self._models.standing("tiny").state == "failed" else "live_loading")
        counted = Board(spec)
        with _turn:
            written = Board(replace(spec, actions=()), Writing(model))
            ms = [_timed(written, action) for action in spec.actions]
        return {
            "acts": [str(action) for action in spec.actions],
            "same": written.frames == counted.frames,
            "texts": {name: _texts(written, name, model) for name in SIDES},
            "ms": {name: [step[name] for step in ms] for name in SIDES},
            "model": model.describe(),
        }


def _timed(board: Board, action: Action) -> dict[str, float | None]:
    """Do one thing on both sides; milliseconds of the step on each."""
    if action.kind != "s":
        board.act(action)
        return dict.fromkeys(SIDES)
    took: dict[str, float | None] = {}
    for name, side in board.sides.items():
        start = time.perf_counter()
        ran = side.step()
        took[name] = (time.perf_counter() - start) * 1000 if ran else None
    board.keep(action)
    return took


def _texts(board: Board, side: str, model: Model) -> dict[str, list[str]]:
    """[prompt, reply so far] of every request."""
    found = {}
    for rid, state in board.sides[side].engine.requests.items():
        stream = model.text()
        for token in state.request.prompt_token_ids:
            stream.add([token])
        prompt = stream.text
        for token in state.outputs[0]:
            stream.add([token])
        found[rid] = [prompt, stream.text[len(prompt) :]]
    return found


@cache
def _openings() -> tuple[list[str], str]:
    given = tomllib.loads(PROMPTS.read_text(encoding="utf-8"))
    return given["zh"], given["long_zh"]


def _opening(number: int) -> str:
    """An opening, and sentences of the long one, another first for everybody."""
    short, long = _openings()
    sentences = [sentence + "。" for sentence in long.split("。") if sentence]
    turn = number % len(sentences)
    return short[(number - 1) % len(short)] + "".join([*sentences[turn:], *sentences[:turn]])
