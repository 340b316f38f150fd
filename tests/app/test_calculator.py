"""The KV calculator: published sums, presets, and what it says to bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app.calculator import FIELDS, account, binary, calculate, presets
from app.lanes import SpecError
from app.routes import answer
from lessons.words import words


def text(values: dict[str, int], **changes: str) -> dict[str, str]:
    return {**{name: str(value) for name, value in values.items()}, **changes}


def test_the_llama_layout_needs_256_gib():
    made = calculate(text(presets()["llama"]))
    assert made["values"] == {
        "layers": 32,
        "kv_heads": 32,
        "head_dim": 128,
        "bytes": 2,
        "tokens": 4096,
        "requests": 128,
    }
    assert made["bytes"]["all"] == 256 * 2**30
    assert made["shown"] == {"token": "512\u00a0KiB", "request": "2.0\u00a0GiB", "all": "256.0\u00a0GiB"}


def test_the_anchor():
    assert calculate(text(presets()["anchor"]))["bytes"]["token"] == 65_536
    values = account()["values"]
    assert [values[key] for key in ("blocks", "requests_by_blocks_alone", "requests")] == [23_305, 91, 58]
    assert values["requests_eaten_by_state"] == 91 - 58
    assert account()["shown"]["left_bytes"] == "24.44\u00a0GB"


def test_the_small_model_is_the_one_in_data():
    config = json.loads((Path(__file__).parents[2] / "data" / "tiny-model" / "config.json").read_text(encoding="utf-8"))
    tiny = presets()["tiny"]
    assert tiny["layers"] == config["num_hidden_layers"]
    assert calculate(text(tiny))["bytes"]["token"] == 2 * 4 * 2 * 32 * 4


@pytest.mark.parametrize(
    ("size", "shown"),
    [(100, "100\u00a0B"), (1024, "1\u00a0KiB"), (1536, "1.5\u00a0KiB"), (2**20, "1\u00a0MiB"), (2**30, "1.0\u00a0GiB"),
     (3 * 2**40, "3.0\u00a0TiB")],
)  # fmt: skip
def test_sizes_are_written_in_powers_of_1024(size, shown):
    assert binary(size) == shown


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("word", ["", "0", "-3", "1.5", "x", "99999999999", "<b>"])
def test_a_bad_value_names_its_field(field, word):
    params = text(presets()["llama"], **{field: word})
    with pytest.raises(SpecError) as error:
        calculate(params)
    low, high = FIELDS[field]
    assert (error.value.code, error.value.detail["field"]) == ("account_field", field)
    status, body = answer(params, "/account")
    assert status == 400
    detail = json.loads(gzip.decompress(body))["error"]["detail"]
    assert detail == {"field": field, "word": word[:20], "min": low, "max": high}
    for lang in ("zh", "en"):
        assert field in words(lang).group("account")
        words(lang).fill("errors.account_field", **detail)
