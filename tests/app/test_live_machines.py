"""Which machines there are, and moving the shared engine from one to another."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from app.live import machines
from app.live import models as live_models
from app.live.errors import LiveError
from app.live.machines import Watch
from app.live.models import Model
from app.live.shared import Shared
from engine import ModelError
from engine.model.machine import Gpu
from lessons.words import words
from tests.app.live_models import A_GPU, NO_GPU, SlowRunner, fake_model, fake_models, ready, until

# ---- looking --------------------------------------------------------------------------------------------------------


def test_free_memory_is_read_again_and_an_absent_gpu_is_not_looked_for_again(monkeypatch):
    here = A_GPU
    monkeypatch.setattr(machines, "look", lambda: here)
    watch, patient = Watch(seconds=0), Watch(seconds=1000)
    assert watch() == patient() == A_GPU
    here = replace(A_GPU, free=1)
    assert watch().free == 1
    assert patient() == A_GPU
    here = NO_GPU
    none = Watch(seconds=0)
    assert none() == NO_GPU
    here = A_GPU
    assert none() == NO_GPU


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_answer_has_words(lang):
    for answer in ("unknown", "interpreter", "no_triton", "no_gpu", "cpu_build"):
        assert words(lang)[f"live.gpu_{answer}"]


def test_a_model_the_kernels_cannot_run_is_not_run_by_torch_instead(monkeypatch):
    monkeypatch.setattr(live_models, "load_for", lambda source, wanted: (None, "torch", "head_dim 24"))
    with pytest.raises(ModelError, match="tiny cannot run on the Triton kernels: head_dim 24"):
        live_models.load_from_disk("tiny", "gpu")


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
