"""The first page."""

import streamlit as st

from app.components import course_component
from app.page import home_page

course_component()(key="home", data=home_page(st.query_params.to_dict()), on_language_change=lambda: None)
