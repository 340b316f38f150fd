"""What runs for every visitor: page settings, navigation, and the page that was asked for."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app.page import PAGES, language  # noqa: E402
from lessons.words import words  # noqa: E402

lang = language(st.query_params.get("lang"))
table = words(lang)
st.set_page_config(page_title=table["ui.course"], layout="wide", initial_sidebar_state="collapsed")
st.html(Path(__file__).parent / "components" / "chrome.css")

screens = Path(__file__).parent / "screens"
pages = [st.Page(screens / "home.py", title=table["ui.course"], default=True)]
for number, (slug, lesson_id) in PAGES.items():
    pages.append(st.Page(screens / f"{lesson_id}.py", title=table[f"lesson_names.n{number}"], url_path=slug))
st.navigation(pages, position="hidden").run()
