"""The board on a model: the same frames under both managers, texts in whole characters, times of steps only."""

from __future__ import annotations

import json

import pytest

from app import board_model
from app.board import SCENE, SIDES, Board, Spec
from app.board_model import MAX_ACTIONS, BoardModel
from app.lanes import SpecError
from app.live.errors import LiveError
from app.live.models import Models, load_from_disk
from engine import FakeRunner
from tests.app.live_models import fake_model, fake_models, ready


@pytest.fixture(scope="module")
def fake() -> BoardModel:
    return BoardModel(ready(fake_models()))


@pytest.mark.parametrize("acts", [SCENE, "s2,f1,a5:9,s3", "-", "s20"])
@pytest.mark.parametrize("rules", [{}, {"pool": "32", "b": "8"}, {"budget": "4", "seats": "2"}])
def test_the_model_writes_on_the_counted_board(fake, acts, rules):
    made = fake.frames({"acts": acts, **rules})
    assert made["same"] is True
    spec = Spec.parse({"acts": acts, **rules})
    counted = Board(spec)
    for name in SIDES:
        assert len(made["ms"][name]) == len(spec.actions)
        for took, action in zip(made["ms"][name], spec.actions, strict=True):
            assert took is None or action.kind == "s"
        states = counted.sides[name].engine.requests
        assert set(made["texts"][name]) == set(states)
        for rid, (prompt, reply) in made["texts"][name].items():
            told = len(prompt) + len(reply)  # the stand-in's tokens are characters, but for two halves of one
            tokens = states[rid].request.prompt_len + len(states[rid].outputs[0])
            assert tokens - 2 <= told <= tokens


def test_a_difference_is_seen_not_assumed(monkeypatch):
    class Stopper(FakeRunner):
        """Ends every text at once, which nobody ordered."""

        def run(self, plan):
            return {seq: one._replace(is_eos=True) for seq, one in super().run(plan).items()}

    models = ready(Models(lambda key, machine: fake_model(key, runner=Stopper()), lambda *_: None, lambda _: False))
    assert BoardModel(models).frames({"acts": "s3"})["same"] is True  # ends of text are ignored

    def impatient(number, size, made=board_model.Writing.request):
        request = made(board_model.Writing(fake_model()), number, size)
        return board_model.Request(request.prompt_token_ids, board_model.SamplingParams(2), request_id=str(number))

    monkeypatch.setattr(board_model.Writing, "request", lambda self, number, size: impatient(number, size))
    assert BoardModel(models).frames({"acts": "s3"})["same"] is False


def test_it_says_when_the_model_is_not_there():
    with pytest.raises(LiveError) as error:
        BoardModel(fake_models()).frames({"acts": "s"})
    assert error.value.code == "live_loading"

    def broken(key, machine):
        raise RuntimeError("no weights")

    models = Models(broken, lambda *_: None, lambda _: False)
    models.start()
    models._slots["tiny", "cpu"].thread.join()
    with pytest.raises(LiveError) as error:
        BoardModel(models).frames({"acts": "s"})
    assert error.value.code == "live_model"


def test_bad_input(fake):
    for params in ({"acts": f"s{MAX_ACTIONS + 1}"}, {"acts": "a9:99"}, {"open": "9:9"}):
        with pytest.raises(SpecError):
            fake.frames(params)


def test_the_small_model_writes_the_scene_under_both_managers():
    models = ready(Models(load_from_disk, lambda *_: None, lambda _: False))
    made = BoardModel(models).frames({"acts": SCENE})
    assert made["same"] is True
    assert made["model"]["device"] == "CPU"
    left, right = made["texts"]["contiguous"], made["texts"]["paged"]
    for rid in ("1", "2", "3"):
        assert left[rid] == right[rid]  # where KV lies does not change what is written
        assert right[rid][1]
    assert left["4"][1] == ""
    assert "\ufffd" not in json.dumps(made, ensure_ascii=False)
