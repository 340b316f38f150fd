"""Read a GGUF file (version 2 or 3): its metadata, and its tensors as float32 arrays.

Only what the small model's file needs: four storage formats, little-endian, one file. Block formats keep 32 values in
a row of memory and give each block a scale of its own, `Q4_1` an offset too:

    Q8_0   float16 scale, 32 × int8                            value = scale × q
    Q4_1   float16 scale, float16 minimum, 16 bytes of nibbles value = scale × q + minimum; low nibbles come first

Shapes are given as numpy writes them; the file lists dimensions the other way round. Source of the layout: the GGUF
specification of the ggml project.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import EngineError

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Metadata type number → struct code."""
STRING, ARRAY = 8, 9
BLOCK = 32
"""Values that share a scale."""


def _f32(data: np.ndarray) -> np.ndarray:
    return data.view("<f4")


def _f16(data: np.ndarray) -> np.ndarray:
    return data.view("<f2").astype(np.float32)


def _q4_1(data: np.ndarray) -> np.ndarray:
    blocks = data.reshape(-1, 4 + BLOCK // 2)
    scale, minimum = blocks[:, :4].copy().view("<f2").astype(np.float32).T
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return nibbles * scale[:, None] + minimum[:, None]


def _q8_0(data: np.ndarray) -> np.ndarray:
    blocks = data.reshape(-1, 2 + BLOCK)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return blocks[:, 2:].view(np.int8) * scale


@dataclass(frozen=True)
class Format:
    """How tensors are stored: `size` bytes hold `values` values; `decode` turns bytes (uint8) into float32."""

    name: str
    values: int
    size: int
    decode: Callable[[np.ndarray], np.ndarray]


FORMATS = {
    0: Format("F32", 1, 4, _f32),
    1: Format("F16", 1, 2, _f16),
    3: Format("Q4_1", BLOCK, 4 + BLOCK // 2, _q4_1),
    8: Format("Q8_0", BLOCK, 2 + BLOCK, _q8_0),
}


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies: numpy `shape`, its format, and its first byte in the file."""

    shape: tuple[int, ...]
    format: Format
    start: int


class GGUF:
    """One file, mapped into memory.

    Attributes:
        metadata: name → number, string, bool or list.
        entries: tensor name → `Entry`.

    Raises:
        EngineError: not a GGUF file, cut short, or with a tensor format that is not read here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data = np.memmap(path, dtype=np.uint8, mode="r")
        except ValueError:
            raise EngineError(f"{path.name} is empty") from None
        self._at = 0
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError):
            raise EngineError(f"{path.name} is cut short or damaged") from None

    def tensor(self, name: str) -> np.ndarray:
        """The tensor as float32 in its numpy shape."""
        entry = self.entries[name]
        stored = math.prod(entry.shape) // entry.format.values * entry.format.size
        return entry.format.decode(np.asarray(self._data[entry.start : entry.start + stored])).reshape(entry.shape)

    def _read_header(self) -> None:
        if bytes(self._data[:4]) != b"GGUF":
            raise EngineError(f"{self.path.name} is not a GGUF file")
        self._at = 4
        version, tensors, pairs = self._take("I"), self._take("Q"), self._take("Q")
        if version not in (2, 3):
            raise EngineError(f"{self.path.name} is GGUF version {version}; versions 2 and 3 are read")
        self.metadata = {self._string(): self._value(self._take("I")) for _ in range(pairs)}
        listed = [self._tensor_info() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        base = -(-self._at // alignment) * alignment
        self.entries: dict[str, Entry] = {}
        for name, shape, code, offset in listed:
            if code not in FORMATS:
                known = ", ".join(known.name for known in FORMATS.values())
                raise EngineError(f"{name} in {self.path.name} has storage format {code}; {known} are read")
            entry = self.entries[name] = Entry(shape, FORMATS[code], base + offset)
            if entry.start + math.prod(shape) // entry.format.values * entry.format.size > self._data.size:
                raise EngineError(f"{self.path.name} is cut short: {name} lies beyond its end")

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = [self._take("Q") for _ in range(self._take("I"))]
        return name, tuple(reversed(dimensions)), self._take("I"), self._take("Q")

    def _take(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack("<" + code, self._data[self._at : self._at + size].tobytes())
        self._at += size
        return value

    def _string(self) -> str:
        size = self._take("Q")
        text = self._data[self._at : self._at + size].tobytes()
        if len(text) < size:
            raise struct.error
        self._at += size
        return text.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element, count = self._take("I"), self._take("Q")
            return [self._value(element) for _ in range(count)]
        if kind not in SCALARS:
            raise EngineError(f"{self.path.name} has metadata of an unknown type {kind}")
        return self._take(SCALARS[kind])
