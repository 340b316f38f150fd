"""What each view gets from Python besides the lesson's text: what it offers, and the first picture of an address.

A view is named by the scenes that show it. `common` is the same for every visitor; `first` is computed for the address,
so that the picture is there at once. What an address gets wrong falls back to the scene; the browser reads the same
address, and says there what it could not use.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app import board, calculator, lanes, split
from lessons.model import StateValue

PROMPTS = Path(__file__).parent.parent / "lessons" / "l8_live" / "prompts.toml"
"""What the live page offers to send."""
FIRST_SLOTS = 8


def common(views: set[str], lang: str) -> dict[str, Any]:
    """What the views of a lesson offer, in one table, and the version of the engine behind every picture."""
    made: dict[str, Any] = {"views": sorted(views), "version": lanes.engine_hash()}
    for view in sorted(views):
        made |= COMMON.get(view, lambda _: {})(lang)
    return made


def first(view: str, state: Mapping[str, StateValue], params: Mapping[str, str]) -> dict[str, Any]:
    """{"first": the first picture of a view}, for a scene's state and an address; empty if the view needs none."""
    return {"first": FIRST[view](state, params)} if view in FIRST else {}


def _swimlane(_: str) -> dict[str, Any]:
    return {
        "slots": list(lanes.SLOTS),
        "lengths": list(lanes.LENGTHS),
        "arrivals": {"kinds": lanes.DEFAULT_ARRIVALS, "rates": lanes.RATES, "sizes": lanes.BURSTS, "gaps": lanes.GAPS},
    }


def _first_lanes(_: Mapping[str, StateValue], params: Mapping[str, str]) -> dict[str, Any]:
    try:
        spec = lanes.Spec.parse(params)
    except lanes.SpecError:
        spec = lanes.Spec()
    try:
        slots = lanes.parse_slots(params.get("B", ""))
    except lanes.SpecError:
        slots = FIRST_SLOTS
    return {
        "lengths": spec.lengths,
        "own": params.get("own", "") if spec.lengths == "own" else "",
        "arrivals": spec.arrivals,
        "B": slots,
        "lanes": lanes.lanes(spec, slots),
    }


def _prompts(lang: str) -> dict[str, Any]:
    """Openings by the language of a model, and names in the language of the page."""
    given = tomllib.loads(PROMPTS.read_text(encoding="utf-8"))
    return {"prompts": {key: given[key] for key in ("zh", "en", "long_zh", "long_en")}, "names": given["names"][lang]}


def _board(_: str) -> dict[str, Any]:
    return {
        "board": {
            "defaults": board.DEFAULTS,
            "pool": list(map(str, board.POOLS)),
            "b": list(map(str, board.BLOCK_SIZES)),
            "seats": list(map(str, board.SEATS)),
            "watermark": list(board.WATERMARKS),
            "budget": list(board.BUDGETS),
            "requests": board.MAX_REQUESTS,
        }
    }


def _first_board(state: Mapping[str, StateValue], params: Mapping[str, str]) -> dict[str, Any]:
    names = (*board.DEFAULTS, "acts")
    of_scene = {name: str(state[name]) for name in names if name in state}
    asked = {**of_scene, **{name: params[name] for name in names if name in params}}
    for query in (asked, of_scene):
        try:
            return {"query": {**board.DEFAULTS, **query}, **board.frames(query)}
        except lanes.SpecError:
            continue
    raise ValueError(f"the board cannot show the scene's own state: {of_scene}")


def _account(_: str) -> dict[str, Any]:
    made = {
        name: calculator.calculate({field: str(value) for field, value in values.items()})
        for name, values in calculator.presets().items()
    }
    return {"account": {"presets": made, "fields": calculator.FIELDS, "anchor": calculator.account()}}


def _split(_: str) -> dict[str, Any]:
    return {"split": {"rules": list(split.RULES), "offered": split.OFFERED, "defaults": split.DEFAULTS}}


COMMON: dict[str, Callable[[str], dict[str, Any]]] = {
    "swimlane": _swimlane,
    "live": _prompts,
    "board": _board,
    "account": _account,
    "split": _split,
}
FIRST: dict[str, Callable[[Mapping[str, StateValue], Mapping[str, str]], dict[str, Any]]] = {
    "swimlane": _first_lanes,
    "board": _first_board,
}
