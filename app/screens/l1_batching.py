"""Lesson 1, batching: the swimlane."""

import streamlit as st

from app.components import course_component
from app.page import language, lesson_page

course_component()(key="l1_batching", data=lesson_page(1, language(st.query_params.get("lang"))))
