"""What a visitor asks for: the query of the address, and the language chosen since the page was opened."""

from __future__ import annotations

import streamlit as st


def address(key: str) -> dict[str, str]:
    """The query of the address.

    The browser writes the address without a round trip, so the server sees it as it was when the page was opened; only
    the language, which needs other texts, is sent: as the component's state `language`.

    Args:
        key: the key of the page's component.
    """
    query = st.query_params.to_dict()
    chosen = getattr(st.session_state.get(key), "language", None)
    return {**query, "lang": chosen} if chosen else query
