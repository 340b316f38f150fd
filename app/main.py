"""The entry: `streamlit run app/main.py` (or `make app`): the app object, its routes, what is warmed up at start."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app.lanes import warm_up  # noqa: E402
from app.live.sockets import Live  # noqa: E402
from app.routes import routes  # noqa: E402


@contextlib.asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    """Swimlanes for every number of slots, and the model, come in the background while the first page is served."""
    threading.Thread(target=warm_up, name="warm-up", daemon=True).start()
    live.start()
    yield
    live.close()


live = Live()

app = st.App(Path(__file__).parent / "script.py", routes=[*routes(live.models), *live.routes()], lifespan=lifespan)
