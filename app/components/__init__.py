"""What the browser runs. The files of this folder are joined into one Components-v2 component, in a fixed order: tokens
and styles into one sheet; helpers before what uses them, the default export last.

A lesson page is the shell (shell, predict, scenes) around one figure module. `figures.js` lists the modules by the name
of a scene's `view`; a new lesson adds its module's files before it and a line in it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components import v2

HERE = Path(__file__).parent
STYLES = (
    *("tokens.css", "shell.css", "scenes.css", "swimlane.css", "board.css", "memory.css", "live.css", "home.css"),
    "present.css",
)
SCRIPTS = (
    "basics.js",  # escaping, numbers, words, icons
    "address.js",  # the state in the address bar
    "colours.js",  # the tokens, for canvases
    "shell.js",  # top bar, theme, popovers, notices
    "predict.js",  # the guess and the ruler
    "scenes.js",  # text, route, formulas, tries, goals, code, misconceptions, quiz
    "charts.js",  # charts beside the text, drawn by Plotly when they come into view
    "lanes_store.js",  # lanes by workload and B; fetches in the background
    "lanes_draw.js",  # lanes, axis, lens, lengths on canvases
    "live_socket.js",  # a websocket to an engine
    "live_run.js",  # the workload of lesson 1 on the model
    "swimlane.js",  # the player
    "swimlane_parts.js",  # its markup, workload controls, log, text twin
    "board_store.js",  # frames by opening and actions
    "board_parts.js",  # messages, cells, gauges, tables, log, the opening's editor
    "board.js",  # the two-allocator board of lesson 3
    "account.js",  # the KV calculator and the anchor's account, lesson 2
    "split_draw.js",  # the parts of a pool over time, in patterns
    "split.js",  # four ways of handing out the same memory, lesson 2
    "live_draw.js",  # lanes of the last steps, line of the throughput
    "live_parts.js",  # replies, memory map, queue
    "live.js",  # the live engine of lesson 8
    "figures.js",  # figure modules by name
    "home.js",
    "lesson.js",
    "main.js",  # the default export
)


def bundle(names: tuple[str, ...]) -> str:
    """The files, one after the other."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


@cache
def course_component() -> Any:
    """The component of every page; its data says which page it is."""
    return v2.component("course", html='\n<div class="course"></div>\n', css=bundle(STYLES), js=bundle(SCRIPTS))
