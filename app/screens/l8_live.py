"""Lesson 8: the live engine."""

from app.components import course_component
from app.page import lesson_page
from app.visit import address

course_component()(key="l8_live", data=lesson_page(8, address("l8_live")), on_language_change=lambda: None)
