"""Whether the kernels can run on this machine; asking loads neither of the kernels nor, without a GPU, Triton."""

from __future__ import annotations

import importlib.util
import os


def unavailable() -> str | None:
    """Why the kernels cannot run here; None if they can, compiled on a GPU or in Triton's interpreter."""
    import torch

    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return "there is no CUDA GPU"
