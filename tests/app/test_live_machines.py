"""Which machines there are, and moving the shared engine from one to another."""

from __future__ import annotations

import importlib.util
import json
import threading

import pytest
import torch

from app.live.errors import LiveError
from app.live.machines import Gpu, Watch, look
from app.live.models import Model
from app.live.shared import Shared
from engine import ModelError
from lessons.words import words
from tests.app.live_models import A_GPU, NO_GPU, SlowRunner, fake_model, fake_models, ready, until

# ---- looking --------------------------------------------------------------------------------------------------------


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
    for lang in ("zh", "en"):
        table = words(lang)
        if seen.state != "ready":
            assert table["live.gpu_" + (seen.reason or seen.state)]


def test_free_memory_is_read_again_and_an_absent_gpu_is_not_looked_for_again(machine, monkeypatch):
    machine(gpu=True)
    watch = Watch(seconds=0)
    assert watch().free == 3
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 4))
    assert watch().free == 1
    patient = Watch(seconds=1000)
    assert patient().free == 1
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2, 4))
    assert patient().free == 1
    machine(gpu=False)
    none = Watch(seconds=0)
    none()
    machine(gpu=True)
    assert none().state == "none"


def test_nobody_looks_before_a_model_is_loaded():
    models = fake_models(gpu=A_GPU)
    assert models.gpu().state == "unknown"
    assert ready(models).gpu() is A_GPU


# ---- moving ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def made():
    """made(gpu) → a paused shared engine on a small model."""
    all_of_them = []

    def make(gpu=A_GPU, load=None):
        models = fake_models(gpu=gpu)
        models._load = load or models._load
        shared = Shared(ready(models), pace=None)
        all_of_them.append(shared)
        until(lambda: frame(shared)["state"] == "ready")
        shared.act({"do": "pause"})
        return shared

    yield make
    for shared in all_of_them:
        shared.close()


def frame(shared):
    return json.loads(shared.frame())


def submit(shared, max_tokens=5):
    return shared.act({"do": "submit", "prompt": "卻說天下", "name": "阿", "max_tokens": max_tokens})


def reasons(shared):
    return [r["reason"] for r in frame(shared)["requests"]]


def to_gpu(shared, running="finish"):
    shared.act({"do": "switch", "machine": "gpu", "running": running})


def on_gpu(shared):
    told = frame(shared)
    return told["change"] is None and told["model"]["machine"] == "gpu"


def test_a_frame_tells_the_machines(made):
    told = frame(made())
    assert told["gpu"] == {"state": "ready", "name": "Test 9000", "free": 3 * 10**9, "total": 4 * 10**9, "reason": ""}
    assert (told["model"]["machine"], told["model"]["device"], told["model"]["backend"]) == ("cpu", "CPU", "torch")
    assert told["change"] is None


def test_without_a_gpu_the_switch_says_why(made):
    shared = made(NO_GPU)
    assert frame(shared)["gpu"] == {"state": "none", "name": "", "free": 0, "total": 0, "reason": "cpu_build"}
    with pytest.raises(LiveError) as refused:
        to_gpu(shared)
    assert refused.value.code == "live_no_gpu"
    for lang in ("zh", "en"):
        assert words(lang).fill("errors.live_no_gpu")
    assert submit(shared) == "1"


def test_an_empty_engine_moves_as_soon_as_the_model_is_there(made):
    shared = made()
    to_gpu(shared)
    until(lambda: on_gpu(shared))
    told = frame(shared)["model"]
    assert (told["device"], told["backend"], told["threads"]) == ("GPU Test 9000", "Triton", None)
    assert frame(shared)["paused"]
    shared.act({"do": "switch", "machine": "cpu"})
    assert frame(shared)["model"]["machine"] == "cpu"


def test_the_interpreter_is_named(made):
    shared = made(Gpu("interpreter"))
    to_gpu(shared)
    until(lambda: on_gpu(shared))
    told = frame(shared)["model"]
    assert (told["device"], told["backend"], told["threads"]) == ("CPU", "Triton, TRITON_INTERPRET=1", 1)


def test_draining_lets_those_inside_finish_and_nobody_in(made):
    shared = made()
    ready(shared.models, "tiny", "gpu")
    submit(shared), submit(shared)
    to_gpu(shared)
    told = frame(shared)
    assert told["change"] == {"key": "tiny", "machine": "gpu", "drains": True, "draining": True, "left": 2}
    for message in ({"do": "submit", "prompt": "x"}, {"do": "fill", "count": 3}):
        with pytest.raises(LiveError) as refused:
            shared.act(message)
        assert refused.value.code == "live_draining"
    shared.act({"do": "resume"})
    until(lambda: on_gpu(shared))
    assert reasons(shared) == ["length", "length"]
    assert all(len(r["text"]) == 5 for r in frame(shared)["requests"])
    assert submit(shared) == "3"


def test_a_drain_ends_when_the_last_one_is_cancelled(made):
    shared = made()
    ready(shared.models, "tiny", "gpu")
    submit(shared)
    to_gpu(shared)
    shared.act({"do": "cancel", "id": "1"})
    until(lambda: on_gpu(shared))


def test_cancelling_ends_what_runs(made):
    shared = made()
    ready(shared.models, "tiny", "gpu")
    submit(shared)
    shared.act({"do": "step"})
    to_gpu(shared, "cancel")
    assert on_gpu(shared)
    assert reasons(shared) == ["abort"]
    assert len(frame(shared)["requests"][0]["text"]) == 1


def test_patience_may_end(made):
    shared = made()
    ready(shared.models, "tiny", "gpu")
    submit(shared)
    to_gpu(shared)
    to_gpu(shared, "cancel")
    assert on_gpu(shared)
    assert reasons(shared) == ["abort"]


def test_a_change_can_be_taken_back(made):
    shared = made()
    ready(shared.models, "tiny", "gpu")
    submit(shared)
    to_gpu(shared)
    shared.act({"do": "stay"})
    assert frame(shared)["change"] is None
    assert submit(shared) == "2"
    shared.act({"do": "resume"})
    until(lambda: reasons(shared) == ["length", "length"])
    assert frame(shared)["model"]["machine"] == "cpu"


def test_the_door_is_open_while_the_model_loads(made):
    gate = threading.Event()

    def load(key, machine):
        assert machine == "cpu" or gate.wait(20)
        return fake_model(key)

    shared = made(load=load)
    to_gpu(shared)
    told = frame(shared)["change"]
    assert (told["draining"], told["left"]) == (False, 0)
    assert submit(shared) == "1"
    gate.set()
    until(lambda: frame(shared)["change"]["draining"])
    shared.act({"do": "resume"})
    until(lambda: on_gpu(shared))
    assert reasons(shared) == ["length"]


def test_what_fails_leaves_the_old_engine_running(made):
    def load(key, machine):
        if machine == "gpu":
            raise ModelError("the GPU's memory is full")
        return fake_model(key)

    shared = made(load=load)
    submit(shared)
    to_gpu(shared)
    until(lambda: frame(shared)["change"] is None)
    told = frame(shared)
    assert (told["state"], told["message"], told["model"]["machine"]) == ("ready", "the GPU's memory is full", "cpu")
    assert submit(shared) == "2"
    shared.act({"do": "resume"})
    until(lambda: reasons(shared) == ["length", "length"])


def test_a_runner_that_cannot_be_made_leaves_the_old_engine_running(made):
    def load(key, machine):
        model = fake_model(key)

        def none(_):
            raise RuntimeError("CUDA error")

        return Model(key, model.loaded, none if machine == "gpu" else lambda _: SlowRunner())

    shared = made(load=load)
    submit(shared)
    to_gpu(shared, "cancel")
    until(lambda: frame(shared)["message"])
    told = frame(shared)
    assert told["message"] == "RuntimeError: CUDA error"
    assert (told["state"], told["change"], told["model"]["machine"]) == ("ready", None, "cpu")
    shared.act({"do": "resume"})
    until(lambda: reasons(shared) == ["length"])


@pytest.mark.parametrize("more", [{"machine": "tpu"}, {"machine": ["gpu"]}, {"running": "burn"}, {"model": {}}])
def test_rubbish(made, more):
    shared = made()
    with pytest.raises(LiveError) as refused:
        shared.act({"do": "switch", **more})
    assert refused.value.code == "live_value"
