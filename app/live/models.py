"""The models the app can run: the small one that lies in data, and SmolLM2, fetched only when somebody asks for it.

Loading imports torch, which takes seconds; it happens in a background thread, never while the app starts. A model that
was fetched before is on offer from the start, and takes memory only once somebody asks for it. On a GPU a model is a
second copy, in that machine's memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from app.live.machines import CPU, GPU, MACHINES, Watch
from engine.errors import EngineError, ModelError
from engine.model.machine import Gpu, load_for
from engine.model.text import TextStream
from engine.runner import Runner

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
THREADS = 1
"""Of torch, inside the app: two on a busy machine with two cores make a step many times slower."""

LANGUAGE = {"tiny": "zh", "smollm2": "en"}
"""What each model writes."""


class Loaded(Protocol):
    """What is asked of a loaded model (`engine.model.loading.LoadedModel`)."""

    @property
    def name(self) -> str: ...
    @property
    def num_parameters(self) -> int: ...
    @property
    def max_model_len(self) -> int | None: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


@dataclass(frozen=True)
class Model:
    """A model that is ready.

    Attributes:
        key: its name in the app.
        loaded: weights and tokenizer, shared by all engines.
        make_runner: makes a runner with a KV pool of its own.
        machine: `cpu` or `gpu`.
        gpu: name of the GPU it runs on; empty in Triton's interpreter.
    """

    key: str
    loaded: Loaded
    make_runner: Callable[[Any], Runner]
    machine: str = CPU
    gpu: str = ""

    @property
    def language(self) -> str:
        return LANGUAGE[self.key]

    def runner(self) -> Runner:
        return self.make_runner(self.loaded)

    def encode(self, text: str) -> list[int]:
        return list(self.loaded.tokenizer.encode(text, add_special_tokens=False))

    def text(self) -> TextStream:
        return TextStream(self.loaded.tokenizer)

    def describe(self) -> dict[str, Any]:
        """What a page says under every picture of it."""
        on_gpu = bool(self.gpu)
        return {
            "key": self.key,
            "name": self.loaded.name,
            "machine": self.machine,
            "device": f"GPU {self.gpu}" if on_gpu else "CPU",
            "backend": "torch" if self.machine == CPU else "Triton" if on_gpu else "Triton, TRITON_INTERPRET=1",
            "threads": None if on_gpu else THREADS,
            "dtype": str(self.loaded.dtype).removeprefix("torch."),
            "parameters": self.loaded.num_parameters,
            "language": self.language,
        }


@dataclass(frozen=True)
class Standing:
    """How far a model is.

    Attributes:
        state: `absent`, `fetching` (done of total bytes), `fetched` (on this machine), `loading`, `ready` or `failed`
            (message).
    """

    state: str
    done: int = 0
    total: int = 0
    message: str = ""


Progress = Callable[[int, int], None]


@dataclass
class _Slot:
    standing: Standing
    model: Model | None = None
    thread: threading.Thread | None = field(default=None, repr=False)


class Models:
    """All of them, on every machine.

    Args:
        load: from a model's name in the app and a machine to the model; slow.
        fetch: brings what `load` needs onto this computer, telling (done, total) as it goes; quick if it is there.
        is_fetched: whether it is there already.
        gpu: looks for a GPU; asked only once a model is loaded.
    """

    def __init__(
        self,
        load: Callable[[str, str], Model] | None = None,
        fetch: Callable[[str, Progress], None] | None = None,
        is_fetched: Callable[[str], bool] | None = None,
        gpu: Callable[[], Gpu] | None = None,
    ) -> None:
        self._load = load or load_from_disk
        self._fetch = fetch or fetch_to_disk
        self._look = gpu or Watch()
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        there = {"tiny": True, "smollm2": (is_fetched or is_on_disk)("smollm2")}
        self._slots = {
            (key, machine): _Slot(Standing("fetched" if there[key] else "absent"))
            for key in LANGUAGE
            for machine in MACHINES
        }
        self._slots["tiny", CPU].standing = Standing("loading")

    def start(self) -> None:
        """Load the small model in the background."""
        self.ask_for("tiny")

    def ask_for(self, key: str, machine: str = CPU) -> None:
        """Fetch and load a model in the background; nothing if that is under way or done."""
        slot = self._slots[key, machine]
        with self._lock:
            if slot.model is None and (slot.thread is None or not slot.thread.is_alive()):
                slot.thread = threading.Thread(
                    target=self._bring, args=(key, machine), name=f"load {key} on {machine}", daemon=True
                )
                slot.thread.start()

    def get(self, key: str, machine: str = CPU) -> Model | None:
        """The model if it is ready."""
        return self._slots[key, machine].model

    def standing(self, key: str, machine: str = CPU) -> Standing:
        """How far it is."""
        return self._slots[key, machine].standing

    def status(self, machine: str = CPU) -> dict[str, dict[str, Any]]:
        """How far each is on a machine, as it goes over the wire."""
        return {key: asdict(self.standing(key, machine)) for key in LANGUAGE}

    def gpu(self) -> Gpu:
        """The GPU, or why there is none; `unknown` before the first model is loaded."""
        return self._look() if any(slot.model is not None for slot in self._slots.values()) else Gpu("unknown")

    def watch(self, fn: Callable[[], None]) -> Callable[[], None]:
        """Call `fn` after every change, on the thread that made it; returns a function that ends this."""
        self._watchers.append(fn)
        return lambda: self._watchers.remove(fn) if fn in self._watchers else None

    def _bring(self, key: str, machine: str) -> None:
        try:
            if key != "tiny":
                self._fetch_for(key, machine)
            self._stand(key, machine, Standing("loading"))
            model = self._load(key, machine)
            self._slots[key, machine].model = replace(model, machine=machine, gpu=self._gpu_name(machine))
            self._stand(key, machine, Standing("ready"))
        except EngineError as error:
            self._stand(key, machine, Standing("failed", message=str(error)))
        except Exception as error:
            log.exception("model %s could not be brought", key)
            self._stand(key, machine, Standing("failed", message=f"{type(error).__name__}: {error}"))

    def _fetch_for(self, key: str, machine: str) -> None:
        self._stand(key, machine, Standing("fetching"))
        self._fetch(key, lambda done, total: self._stand(key, machine, Standing("fetching", done, total)))
        for other in MACHINES:
            if self.standing(key, other).state == "absent":
                self._stand(key, other, Standing("fetched"))

    def _gpu_name(self, machine: str) -> str:
        return self._look().name if machine == GPU else ""

    def _stand(self, key: str, machine: str, standing: Standing) -> None:
        self._slots[key, machine].standing = standing
        for fn in list(self._watchers):
            try:
                fn()
            except Exception:
                log.exception("a watcher of the models failed")


def load_from_disk(key: str, machine: str) -> Model:
    """Load a model for running inside the app; ModelError if it cannot be."""
    from engine.model.fetch import models_folder
    from engine.model.runner import ModelRunner
    from engine.model.threads import use_threads

    use_threads(THREADS)
    folder = ROOT / "data" / "tiny-model" if key == "tiny" else models_folder() / key
    loaded, backend, reason = load_for(folder, "torch" if machine == CPU else "triton")
    if reason is not None:
        raise ModelError(f"{key} cannot run on the Triton kernels: {reason}")
    return Model(key, loaded, partial(ModelRunner, backend=backend))


def is_on_disk(key: str) -> bool:
    """Whether a model that can be fetched lies here with all its files."""
    from engine.model.fetch import available

    return available(key) is not None


def fetch_to_disk(key: str, progress: Progress) -> None:
    """Fetch a model; EngineError says what to do where no route works."""
    from engine.model.fetch import fetch

    fetch(key, progress=lambda done, total, _: progress(done, total))


def ids_of_one_token(model: Model, words: Sequence[str]) -> list[int]:
    """Those of the words that are one token in the model's vocabulary, as token ids."""
    ids = [model.encode(word) for word in words]
    return [found[0] for found in ids if len(found) == 1]
