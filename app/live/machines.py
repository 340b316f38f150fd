"""The machines a model can run on: the processor through torch, or a GPU through the kernels in `kernels/`.

Looking needs torch, whose import takes seconds; so nobody looks before a model has been loaded.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

CPU, GPU = "cpu", "gpu"
MACHINES = (CPU, GPU)

LOOK_EVERY = 1.0
"""Seconds after which the free memory of a GPU is read again."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or why there is none.

    Attributes:
        state: `ready`, `interpreter` (no GPU: Triton's interpreter runs the kernels on the processor), `none`, or
            `unknown` while nobody has looked.
        name: of the device.
        free, total: bytes of its memory, free now and in all.
        reason: if there is none: `no_triton`, `cpu_build` (this torch knows no CUDA) or `no_gpu`; the page puts it into
            words.
    """

    state: str
    name: str = ""
    free: int = 0
    total: int = 0
    reason: str = ""

    @property
    def can_run(self) -> bool:
        return self.state in ("ready", "interpreter")


def look() -> Gpu:
    """Look for a GPU that the kernels can run on."""
    import torch

    from kernels.machine import unavailable

    if unavailable() is None:
        if not torch.cuda.is_available():
            return Gpu("interpreter")
        free, total = torch.cuda.mem_get_info()
        return Gpu("ready", torch.cuda.get_device_name(), free, total)
    if torch.cuda.is_available():
        return Gpu("none", reason="no_triton")
    return Gpu("none", reason="no_gpu" if torch.version.cuda else "cpu_build")


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
