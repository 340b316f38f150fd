"""How much memory is free, so that what does not fit is refused with numbers; and giving back what was freed."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from engine.errors import ModelError

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Bytes that can still be taken: the machine's, or what the container's limit leaves; None if unknown."""
    found = [n for n in (_machine(), _container()) if n is not None]
    return min(found, default=None)


def require_memory(needed: int, what: str, advice: str, free: int | None = None) -> None:
    """Raise `ModelError`, with both numbers, if `needed` bytes are not there; `free` is known for a GPU's memory."""
    free = available_bytes() if free is None else free
    if free is not None and needed > free:
        raise ModelError(f"{what} needs {needed / 1e9:,.1f} GB of memory and {free / 1e9:,.1f} GB are free: {advice}")


def give_back_freed() -> None:
    """Let the C library hand memory it keeps for later to the system: after loading, as much as the weights' size.

    glibc only; elsewhere nothing happens.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        reclaimable = sum(
            int(line.split()[1])
            for line in (_CGROUP / "memory.stat").read_text().splitlines()
            if line.split()[0] == "inactive_file"
        )
        return None if limit == "max" else max(0, int(limit) - used + reclaimable)
    except (OSError, ValueError, IndexError):
        return None
