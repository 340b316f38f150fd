"""Lesson 2, reservation: the KV calculator, and four ways of handing out the same memory."""

from app.components import course_component
from app.page import lesson_page
from app.visit import address

course_component()(
    key="l2_reservation", data=lesson_page(2, address("l2_reservation")), on_language_change=lambda: None
)
