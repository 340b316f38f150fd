"""`Feed`: one state, many sockets. Each change is put into words once, at most so often, and handed to everybody.

A thread of its own makes the messages while anybody listens, and only then. A listener keeps the newest message alone:
a slow client gets fewer, and neither the engine nor other clients wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

PER_SECOND = 12
SHARE = 0.25
"""Most of the time that making messages may take: a state that is dear to tell is told less often."""


class Mailbox:
    """What one socket has not sent yet: the newest message or nothing. Made on the socket's event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._full = asyncio.Event()
        self._text = ""

    def put(self, text: str) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the socket with it
            self._loop.call_soon_threadsafe(self._put, text)

    async def next(self) -> str:
        """Wait for a message that was not taken yet."""
        await self._full.wait()
        self._full.clear()
        return self._text

    def _put(self, text: str) -> None:
        self._text = text
        self._full.set()


class Feed:
    """Hands a changing message to mailboxes.

    Args:
        make: the message as it is now; called on the feed's thread.
        again: seconds after which the message changes by time alone, None if it does not.
    """

    def __init__(self, make: Callable[[], str], again: Callable[[], float | None] = lambda: None) -> None:
        self._make = make
        self._again = again
        self._wake = threading.Condition()
        self._mailboxes: dict[Mailbox, str | None] = {}
        self._changed = False
        self._thread: threading.Thread | None = None

    def changed(self) -> None:
        """There is news; from any thread, and cheap."""
        if self._mailboxes:
            with self._wake:
                self._changed = True
                self._wake.notify_all()

    def join(self, mailbox: Mailbox) -> None:
        """From now on the mailbox gets every message, the present one first."""
        with self._wake:
            self._mailboxes[mailbox] = None
            self._changed = True
            self._wake.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
                self._thread.start()

    def leave(self, mailbox: Mailbox) -> None:
        """The mailbox gets nothing more."""
        with self._wake:
            self._mailboxes.pop(mailbox, None)
            self._wake.notify_all()

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: not self._mailboxes, pause)
                self._wake.wait_for(lambda: self._changed or not self._mailboxes, self._again())
                if not self._mailboxes:
                    self._thread = None
                    return
                self._changed = False
            start = time.monotonic()
            try:
                text = self._make()
            except Exception:
                log.exception("a frame could not be made")
                pause = 1.0
                continue
            with self._wake:
                for mailbox, seen in self._mailboxes.items():
                    if seen != text:
                        self._mailboxes[mailbox] = text
                        mailbox.put(text)
            spent = time.monotonic() - start
            pause = max(1 / PER_SECOND - spent, spent / SHARE - spent)
