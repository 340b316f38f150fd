"""The first page."""

from app.components import course_component
from app.page import home_page
from app.visit import address

course_component()(key="home", data=home_page(address("home")), on_language_change=lambda: None)
