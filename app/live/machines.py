"""The machines a model can run on: the processor through torch, or a GPU through the kernels in `kernels/`.

Looking for a GPU loads torch, which takes seconds; so nobody looks before a model has been loaded.
"""

from __future__ import annotations

import threading
import time

from engine.model.machine import Gpu, look

CPU, GPU = "cpu", "gpu"
MACHINES = (CPU, GPU)

LOOK_EVERY = 1.0
"""Seconds after which the free memory of a GPU is read again."""


class Watch:
    """Looks, and remembers for a moment what it saw; may be called from any thread.

    Args:
        seconds: after which it looks again at a GPU that is there.
    """

    def __init__(self, seconds: float = LOOK_EVERY) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._seen: Gpu | None = None
        self._at = 0.0

    def __call__(self) -> Gpu:
        with self._lock:
            now = time.monotonic()
            if self._seen is None or (self._seen.state == "ready" and now - self._at > self._seconds):
                self._seen, self._at = look(), now
            return self._seen
