"""Stand-ins for the models of the app: one token a character, and the tests' runner instead of a model."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace

from app.live.models import Model, Models
from engine import FakeRunner, Limits
from engine.model.machine import Gpu

PATIENCE = 20
NO_GPU = Gpu("none", reason="cpu_build")
A_GPU = Gpu("ready", "Test 9000", 3_000_000_000, 4_000_000_000)


class Letters:
    """One token for every character; ids 500 and 501 are the two halves of one."""

    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return [ord(c) % 997 for c in text]

    def decode(self, ids, skip_special_tokens=False, clean_up_tokenization_spaces=True):
        text, rest = "", list(ids)
        while rest:
            first = rest.pop(0)
            if first == 500 and rest[:1] == [501]:
                rest.pop(0)
                text += "字"
            else:
                text += "\ufffd" if first in (500, 501) else chr(0x4E00 + first)
        return text


class SlowRunner(FakeRunner):
    """Takes a moment for each step; knows a context limit."""

    limits = Limits(1000, 1024)

    def __init__(self, seconds=0.0):
        super().__init__()
        self.seconds = seconds

    def run(self, plan):
        time.sleep(self.seconds)
        return super().run(plan)


def fake_model(key="tiny", seconds=0.0, runner=None):
    loaded = SimpleNamespace(
        name=f"{key}-fake",
        num_parameters=1000,
        max_model_len=1024,
        tokenizer=Letters(),
        device="cpu",
        dtype="torch.float32",
    )
    return Model(key, loaded, lambda _: runner if runner is not None else SlowRunner(seconds))


def fake_models(seconds=0.0, fetched=False, gpu=NO_GPU):
    return Models(
        lambda key, machine: fake_model(key, seconds), lambda key, told: None, lambda key: fetched, lambda: gpu
    )


def ready(models, key="tiny", machine="cpu"):
    """Started, and waited for."""
    models.ask_for(key, machine)
    until(lambda: models.standing(key, machine).state == "ready")
    return models


def until(condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


class Client:
    """The browser's side of a socket: answers by number, the last frame."""

    def __init__(self, socket):
        self.socket, self.count, self.frames = socket, 0, []

    def ask(self, do, **more):
        self.count += 1
        self.socket.send_text(json.dumps({"do": do, "n": self.count, **more}))
        while True:
            message = self.receive()
            if message.get("re") == self.count:
                return message.get("ok") if "ok" in message else message["error"]

    def receive(self):
        message = json.loads(self.socket.receive_text())
        if "re" not in message:
            self.frames.append(message)
        return message

    def until(self, condition, most=2000):
        """Receive frames until one fits; returns it."""
        for _ in range(most):
            if self.frames and condition(self.frames[-1]):
                return self.frames[-1]
            self.receive()
        raise AssertionError("no frame fits")


def threads_named(name):
    return [thread for thread in threading.enumerate() if thread.name == name]
