"""The two websocket routes: frames out, and every message of a client answered with `{"re": n, "ok" or "error": …}`.

Only pages of this very address may connect (and those listed in Streamlit's `server.corsAllowedOrigins`): a browser
sends the page's address along, and anybody's page could otherwise drive the engine through a visitor's browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.live.errors import LiveError, told
from app.live.feed import Feed, Mailbox
from app.live.models import Models
from app.live.run import Run, Seats
from app.live.shared import Shared
from engine.errors import EngineError

log = logging.getLogger(__name__)

LONGEST = 20_000
"""Characters of a message; the longest honest one is a prompt."""


class Live:
    """What is live in one app: the models, the shared engine, the runs.

    Args:
        models: by default those on this machine.
    """

    def __init__(self, models: Models | None = None) -> None:
        self.models = models or Models()
        self.shared = Shared(self.models)
        self.seats = Seats()

    def start(self) -> None:
        """Begin to load the small model; returns at once."""
        self.models.start()

    def close(self) -> None:
        """Stop the shared engine."""
        self.shared.close()

    def routes(self) -> list[WebSocketRoute]:
        return [WebSocketRoute("/live/run", self.run), WebSocketRoute("/live/engine", self.engine)]

    async def engine(self, websocket: WebSocket) -> None:
        """Lesson 8."""
        await serve(websocket, self.shared.feed, self.shared.act)

    async def run(self, websocket: WebSocket) -> None:
        """Lesson 1 on the model; ends with the socket."""
        run = Run(websocket.query_params, self.models, self.seats)
        if is_ours(websocket):
            run.start()
        try:
            await serve(websocket, run.feed, run.act)
        finally:
            await asyncio.shield(run_in_threadpool(run.close))


def is_ours(websocket: WebSocket) -> bool:
    """Whether the page that connects was served under this address; programs send no origin."""
    origin = websocket.headers.get("origin")
    if origin is None or urlsplit(origin).netloc.lower() == websocket.headers.get("host", "").lower():
        return True
    from streamlit import config

    return origin in (config.get_option("server.corsAllowedOrigins") or ())


async def serve(websocket: WebSocket, feed: Feed, act: Callable[[dict[str, Any]], Any]) -> None:
    """Frames out, messages in, until the socket closes."""
    if not is_ours(websocket):
        await websocket.close(1008)
        return
    await websocket.accept()
    mailbox, sending = Mailbox(), asyncio.Lock()

    async def send(text: str) -> None:
        async with sending:
            await websocket.send_text(text)

    async def frames() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            while True:
                await send(await mailbox.next())

    feed.join(mailbox)
    sender = asyncio.create_task(frames())
    try:
        while True:
            answer = await answer_to(await websocket.receive_text(), act)
            await send(json.dumps(answer, ensure_ascii=False))
    except (WebSocketDisconnect, RuntimeError, OSError, KeyError):  # KeyError: a binary message
        pass
    finally:
        feed.leave(mailbox)
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sender


async def answer_to(text: str, act: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Do what a message asks; every message has an answer."""
    number = None
    try:
        message = read(text)
        number = message.get("n")
        return {"re": number, "ok": await run_in_threadpool(act, message)}
    except (LiveError, EngineError) as error:
        return {"re": number, "error": told(error)}
    except Exception:
        log.exception("a live message could not be met")
        return {"re": number, "error": {"code": "broken", "detail": {}}}


def read(text: str) -> dict[str, Any]:
    """A client's message; LiveError if it is none."""
    if len(text) <= LONGEST:
        with contextlib.suppress(ValueError, RecursionError):
            message = json.loads(text)
            if isinstance(message, dict) and isinstance(message.get("n"), int):
                return message
    raise LiveError("live_message")
