"""Looking for a GPU, on machines that are only pretended."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from engine.model.machine import Gpu, look


@pytest.fixture
def machine(monkeypatch):
    """machine(gpu, cuda_build, triton, interpreted) pretends to be one."""

    def pretend(gpu: bool, cuda_build: bool = True, triton: bool = True, interpreted: bool = False) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *a: find(name, *a) if triton or name != "triton" else None
        )
        monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreted else "")
        monkeypatch.setattr(torch.version, "cuda", "13.0" if cuda_build else None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3, 4))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Test 9000")

    return pretend


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"gpu": True}, Gpu("ready", "Test 9000", 3, 4)),
        ({"gpu": True, "triton": False}, Gpu("none", reason="no_triton")),
        ({"gpu": False}, Gpu("none", reason="no_gpu")),
        ({"gpu": False, "cuda_build": False}, Gpu("none", reason="cpu_build")),
        ({"gpu": False, "cuda_build": False, "interpreted": True}, Gpu("interpreter")),
    ],
)
def test_look(machine, given, seen):
    machine(**given)
    assert look() == seen
