"""Lesson 1, batching: the swimlane."""

import streamlit as st

from app.components import course_component
from app.page import lesson_page

course_component()(key="l1_batching", data=lesson_page(1, st.query_params.to_dict()), on_language_change=lambda: None)
