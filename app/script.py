"""What runs for every visitor: page settings, navigation, and the page that was asked for.

An error in a page becomes one friendly sentence; the traceback goes to the server's log.
"""

from __future__ import annotations

import logging
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app.page import PAGES, language  # noqa: E402
from lessons.words import words  # noqa: E402

table = words(language(st.query_params.get("lang")))
st.set_page_config(page_title=table["ui.course"], layout="wide", initial_sidebar_state="collapsed")
st.html(Path(__file__).parent / "components" / "chrome.css")

screens = Path(__file__).parent / "screens"
pages = [st.Page(screens / "home.py", title=table["ui.course"], default=True)]
for number, (slug, lesson_id) in PAGES.items():
    title = f"{table[f'lesson_names.n{number}']} · {table['ui.course']}"
    pages.append(st.Page(screens / f"{lesson_id}.py", title=title, url_path=slug))
try:
    st.navigation(pages, position="hidden").run()
except Exception:
    logging.getLogger(__name__).exception("a page failed")
    message, home = escape(table["ui.error"]), escape(table["ui.home"])
    st.html(f'<div style="max-width:36em;margin:18vh auto"><p>{message}</p><p><a href="./">{home}</a></p></div>')
