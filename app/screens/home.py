"""The first page."""

import streamlit as st

from app.components import course_component
from app.page import home_page, language

course_component()(key="home", data=home_page(language(st.query_params.get("lang"))))
