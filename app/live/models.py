"""The models the app can run: the small one that lies in data, and SmolLM2, fetched only when somebody asks for it.

Loading imports torch, which takes seconds; it happens in a background thread, never while the app starts. A model that
was fetched before is on offer from the start, and takes memory only once somebody asks for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.errors import EngineError
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
    """

    key: str
    loaded: Loaded
    make_runner: Callable[[Any], Runner]

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
        return {
            "name": self.loaded.name,
            "device": str(self.loaded.device).partition(":")[0].upper(),
            "backend": "torch",
            "threads": THREADS,
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
    """All of them.

    Args:
        load: from a model's name in the app to the model; slow.
        fetch: brings what `load` needs onto this machine, telling (done, total) as it goes; quick if it is there.
        is_fetched: whether it is there already.
    """

    def __init__(
        self,
        load: Callable[[str], Model] | None = None,
        fetch: Callable[[str, Progress], None] | None = None,
        is_fetched: Callable[[str], bool] | None = None,
    ) -> None:
        self._load = load or load_from_disk
        self._fetch = fetch or fetch_to_disk
        self._lock = threading.Lock()
        there = (is_fetched or is_on_disk)("smollm2")
        self._slots = {"tiny": _Slot(Standing("loading")), "smollm2": _Slot(Standing("fetched" if there else "absent"))}
        self._watchers: list[Callable[[], None]] = []

    def start(self) -> None:
        """Load the small model in the background."""
        with self._lock:
            self._begin("tiny")

    def ask_for(self, key: str) -> None:
        """Fetch and load a model in the background; nothing if that is under way or done."""
        if key not in self._slots:
            raise KeyError(key)
        with self._lock:
            self._begin(key)

    def get(self, key: str) -> Model | None:
        """The model if it is ready."""
        slot = self._slots.get(key)
        return slot.model if slot is not None else None

    def standing(self, key: str) -> Standing:
        """How far it is."""
        return self._slots[key].standing

    def status(self) -> dict[str, dict[str, Any]]:
        """How far each is, as it goes over the wire."""
        return {key: asdict(slot.standing) for key, slot in self._slots.items()}

    def watch(self, fn: Callable[[], None]) -> Callable[[], None]:
        """Call `fn` after every change, on the thread that made it; returns a function that ends this."""
        self._watchers.append(fn)
        return lambda: self._watchers.remove(fn) if fn in self._watchers else None

    def _begin(self, key: str) -> None:
        slot = self._slots[key]
        if slot.model is None and (slot.thread is None or not slot.thread.is_alive()):
            slot.thread = threading.Thread(target=self._bring, args=(key,), name=f"load {key}", daemon=True)
            slot.thread.start()

    def _bring(self, key: str) -> None:
        try:
            if key != "tiny":
                self._stand(key, Standing("fetching"))
                self._fetch(key, lambda done, total: self._stand(key, Standing("fetching", done, total)))
            self._stand(key, Standing("loading"))
            self._slots[key].model = self._load(key)
            self._stand(key, Standing("ready"))
        except EngineError as error:
            self._stand(key, Standing("failed", message=str(error)))
        except Exception as error:
            log.exception("model %s could not be brought", key)
            self._stand(key, Standing("failed", message=f"{type(error).__name__}: {error}"))

    def _stand(self, key: str, standing: Standing) -> None:
        self._slots[key].standing = standing
        for fn in list(self._watchers):
            try:
                fn()
            except Exception:
                log.exception("a watcher of the models failed")


def load_from_disk(key: str) -> Model:
    """Load a model for running inside the app; ModelError if it cannot be."""
    from engine.model.fetch import models_folder
    from engine.model.runner import ModelRunner, load_model
    from engine.model.threads import use_threads

    use_threads(THREADS)
    folder = ROOT / "data" / "tiny-model" if key == "tiny" else models_folder() / key
    return Model(key, load_model(folder), ModelRunner)


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
