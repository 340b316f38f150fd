"""What the browser runs. `bundle` joins the files of this folder into one Components-v2 component, in a fixed order:
tokens and styles into one sheet, helpers before the modules that use them, the default export last."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components import v2

HERE = Path(__file__).parent
STYLES = ("tokens.css", "shell.css", "swimlane.css")
SCRIPTS = ("shell.js", "swimlane.js", "home.js", "lesson.js")


def bundle(names: tuple[str, ...]) -> str:
    """The files, one after the other."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


@cache
def course_component() -> Any:
    """The component of every page; its data says which page it is."""
    return v2.component("course", html='\n<div class="course"></div>\n', css=bundle(STYLES), js=bundle(SCRIPTS))
