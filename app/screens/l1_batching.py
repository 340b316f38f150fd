"""Lesson 1, batching: the swimlane."""

from app.components import course_component
from app.page import lesson_page
from app.visit import address

course_component()(key="l1_batching", data=lesson_page(1, address("l1_batching")), on_language_change=lambda: None)
