"""Lesson 3, paging: the two-allocator board."""

from app.components import course_component
from app.page import lesson_page
from app.visit import address

course_component()(key="l3_paging", data=lesson_page(3, address("l3_paging")), on_language_change=lambda: None)
