"""Kernel tests have a process of their own: interpreted where there is no GPU, as a read out of bounds ends it."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if DEVICE == "cpu":
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise pytest.UsageError("set TRITON_INTERPRET=1: without a GPU the kernels are interpreted (make test does it)")
    torch.set_num_threads(1)


@pytest.fixture
def device() -> str:
    return DEVICE
