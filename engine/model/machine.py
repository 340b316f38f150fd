"""Where a model can run: `look` for a GPU, and `load_for` a backend. Importing this loads no torch, calling it does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.model.loading import LoadedModel


@dataclass(frozen=True)
class Gpu:
    """A GPU, or why there is none.

    Attributes:
        state: `ready`, `interpreter` (no GPU: Triton's interpreter runs the kernels on the processor), `none`, or
            `unknown` while nobody has looked.
        name: of the device.
        free, total: bytes of its memory, free now and in all.
        reason: if there is none: `no_triton`, `cpu_build` (this torch knows no CUDA) or `no_gpu`.
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


def load_for(source: str | Path, wanted: str) -> tuple[LoadedModel, str, str | None]:
    """Load a model for a backend: "triton" on a GPU in bfloat16, "torch" on the CPU in float32.

    Args:
        wanted: "triton", "torch", or "auto" for triton where there is a GPU.

    Returns:
        the model, the backend, and why it is not triton (None if it is, or nobody asked for it).

    Raises:
        ModelError: the model does not load.
    """
    import torch

    from engine.model.loading import load_model
    from kernels.machine import unavailable

    if wanted == "torch":
        return load_model(source), "torch", None
    on_gpu = torch.cuda.is_available()
    reason = unavailable() if on_gpu or wanted == "triton" else "there is no CUDA GPU"
    if reason is None:
        from engine.model.triton_backend import unsupported

        loaded = load_model(source, device="cuda", dtype=torch.bfloat16) if on_gpu else load_model(source)
        reason = unsupported(loaded)
        if reason is None:
            return loaded, "triton", None
    return load_model(source), "torch", reason
