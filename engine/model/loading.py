"""`load_model`: a decoder-only model of transformers, by folder or hub name, ready to run on a paged pool."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from engine.errors import ModelError
from engine.model import attention
from engine.model.decoder import LeanDecoder, lean
from engine.model.memory import give_back_freed, require_memory
from engine.model.packing import pack as pack_layers


@dataclass(frozen=True)
class LoadedModel:
    """Weights and tokenizer; immutable, so any number of engines may share it.

    Attributes:
        name: the folder's or the hub's name, last part.
        model: the module of transformers, its attention replaced.
        tokenizer: of transformers, None if the folder has none.
        layers: KV shape of each layer.
        num_parameters: of the module, shared ones once.
        vocab_size: token ids run from 0 to vocab_size − 1.
        max_model_len: positions the model was made for, None if it names no limit.
        eos_token_ids: tokens that end a text.
        packed_layers: linear layers whose weights are packed for this CPU; 0 where that is not possible.
        decoder: the same forward without modules, where the layout is known; else None.
    """

    name: str
    model: Any
    tokenizer: Any
    layers: list[attention.LayerShape]
    num_parameters: int
    vocab_size: int
    max_model_len: int | None
    eos_token_ids: frozenset[int]
    packed_layers: int
    decoder: LeanDecoder | None

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.model.dtype


def load_model(
    source: str | Path, *, pack: bool = True, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> LoadedModel:
    """Load a model, in float32 on the CPU unless told otherwise.

    Args:
        source: a folder with config.json and safetensors, or a name on the model hub.
        pack: keep the weight matrices in the CPU's own layout, where that works (`engine.model.packing`).
        device, dtype: where the weights go and of which type they are.

    Raises:
        ModelError: nothing there, broken, not a decoder-only model, or too large for the memory that is free.
    """
    attention.register()
    place = _place(source)
    with _quiet():
        config = _config(place, source)
        _require_decoder(config, source)
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
        parameters = sum(p.numel() for p in empty.parameters())
        require_memory(
            parameters * dtype.itemsize * 5 // 4,
            f"{source} with {parameters:,} parameters in {str(dtype).removeprefix('torch.')}",
            "choose a smaller model",
        )
        model = _weights(place, source, dtype).to(device)
        tokenizer = _tokenizer(place)
    layers = _probe(model, source)
    text_config = model.config.get_text_config()
    ends = model.generation_config.eos_token_id if model.generation_config is not None else None
    ends = text_config.eos_token_id if ends is None else ends
    packed_layers = pack_layers(model) if pack and (device, dtype) == ("cpu", torch.float32) else 0
    give_back_freed()
    return LoadedModel(
        name=Path(str(source).rstrip("/")).name,
        model=model,
        tokenizer=tokenizer,
        layers=layers,
        num_parameters=parameters,
        vocab_size=text_config.vocab_size,
        max_model_len=getattr(text_config, "max_position_embeddings", None),
        eos_token_ids=frozenset([ends] if isinstance(ends, int) else ends or ()),
        packed_layers=packed_layers,
        decoder=lean(model) if packed_layers else None,
    )


def _place(source: str | Path) -> str:
    """What transformers is given: the folder as it is, or the hub name."""
    text = str(source)
    looks_like_path = isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{text} is not a model folder: config.json is missing")
        return str(folder)
    if looks_like_path or folder.exists():
        raise ModelError(f"there is no model folder {text}")
    return text


def _config(place: str, source: str | Path) -> Any:
    try:
        return AutoConfig.from_pretrained(place)
    except Exception as error:
        raise ModelError(_failure(place, source, error)) from None


def _weights(place: str, source: str | Path, dtype: torch.dtype) -> Any:
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place, dtype=dtype, attn_implementation=attention.NAME, output_loading_info=True
        )
    except Exception as error:
        raise ModelError(_failure(place, source, error)) from None
    model, info = loaded
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        raise ModelError(f"{source} is incomplete: {len(missing)} weights are missing, the first is {missing[0]}")
    return model.eval().requires_grad_(False)


def _tokenizer(place: str) -> Any:
    """The tokenizer, None if there is none: token ids can be run without."""
    try:
        return AutoTokenizer.from_pretrained(place)
    except Exception:
        return None


def _failure(place: str, source: str | Path, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if os.path.isdir(place):
        return f"the model in {source} cannot be read, it may be damaged: {reason}"
    return (
        f"no model {source!r}: it is no folder here and the model hub gave nothing ({reason}). "
        "Give a folder, or a hub name where there is a network"
    )


def _require_decoder(config: Any, source: str | Path) -> None:
    """Refuse what does not write from left to right by attention alone."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    known = NAMES.get(config.model_type)
    names = {known} if isinstance(known, str) else set(known or ())
    built = set(getattr(config, "architectures", None) or ())
    encoder = getattr(config, "is_encoder_decoder", False) or (built and not built & names)
    if not names or encoder:
        what = ", ".join(sorted(built)) or config.model_type
        raise ModelError(
            f"{source} is a {what}, not a decoder-only model: only models that write from left to right can run"
        )


@torch.inference_mode()
def _probe(model: Any, source: str | Path) -> list[attention.LayerShape]:
    """Run one token through the model and note which layers ask for KV, and of what shape."""
    probe = attention.Probe()
    ids = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        model(input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=torch.tensor([0]), paged=probe)
    except TypeError as error:
        raise ModelError(f"{source} cannot run on a paged pool: {error}") from None
    expected = model.config.get_text_config().num_hidden_layers
    if sorted(probe.layers) != list(range(expected)):
        raise ModelError(
            f"{source} keeps KV in {len(probe.layers)} of its {expected} layers through transformers' attention "
            "interface: models with other kinds of layers cannot run on a paged pool here"
        )
    return [probe.layers[i] for i in range(expected)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and warnings: what matters becomes an error here."""
    level, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        if bars:
            transformers.logging.enable_progress_bar()
