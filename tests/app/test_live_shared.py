"""The shared engine and its frames."""

from __future__ import annotations

import json
import threading
import time

import pytest

from app.live.errors import LiveError
from app.live.shared import FILL_TOKENS, MAX_OPEN, Shared
from engine import EngineError, FakeRunner, ModelError, ValidationError
from engine.lanes import GENERATING, RECOMPUTE, lanes
from lessons.words import words
from tests.app.live_models import fake_model, fake_models, ready, until


@pytest.fixture
def shared():
    made = Shared(ready(fake_models()), pace=None)
    until(lambda: frame(made)["state"] == "ready")
    made.act({"do": "pause"})
    yield made
    made.close()


def frame(shared):
    return json.loads(shared.frame())


def submit(shared, prompt="卻說天下", max_tokens=5, **more):
    return shared.act({"do": "submit", "prompt": prompt, "name": "阿", "max_tokens": max_tokens, **more})


def by_number(told):
    return {r["number"]: r for r in told["requests"]}


def triples(flat, size=3):
    return [tuple(flat[i : i + size]) for i in range(0, len(flat), size)]


def test_a_frame_before_anything_happened(shared):
    told = frame(shared)
    assert (told["type"], told["state"], told["step"], told["window"]) == ("engine", "ready", 0, 240)
    assert told["engine"] == {
        "slots": 8,
        "num_blocks": 128,
        "block_size": 16,
        "policy": "continuous",
        "max_model_len": 1024,
    }
    assert told["model"]["language"] == "zh"
    assert told["model"]["threads"] == 1
    assert told["blocks"] == [-1, 0, 0] * 128
    assert told["usage"] == {"live": 0, "tail_waste": 0, "reserved": 0, "hole": 0, "free": 2048, "pool_slots": 2048}
    assert told["rates"] == {**dict.fromkeys(told["rates"]), "history": []}


def test_the_life_of_a_request(shared):
    rid = submit(shared)
    told = frame(shared)
    assert told["queue"] == {"head": {"number": 1, "code": None, "detail": {}}, "behind": []}
    assert by_number(told)[1]["status"] == "waiting"
    for _ in range(3):
        shared.act({"do": "step"})
    told = frame(shared)
    one = by_number(told)[1]
    assert (one["id"], one["status"], one["slot"], one["output_tokens"], one["computed"]) == (rid, "running", 0, 3, 6)
    assert len(one["text"]) == 3
    assert one["ttft_ms"] > 0
    assert one["itl_ms"] > 0
    assert told["segs"] == [0, 0, 3, 1, GENERATING]
    assert triples(told["blocks"])[one["table"][0]] == (1, 6, 1)
    assert sum(told["usage"][part] for part in ("live", "tail_waste", "reserved", "hole", "free")) == 128 * 16
    assert told["usage"]["live"] == 6
    assert told["queue"] == {"head": None, "behind": []}
    assert told["log"] == [[0, 1, "ADMITTED", {"slot": 0, "tokens": 4, "blocks": 1}]]
    assert told["rates"]["tokens_per_second"] > 0
    assert told["rates"]["step_ms"] > 0
    for _ in range(2):
        shared.act({"do": "step"})
    told = frame(shared)
    one = by_number(told)[1]
    assert (one["status"], one["reason"], one["slot"], one["table"]) == ("finished", "length", None, [])
    assert told["usage"]["free"] == 128 * 16
    assert told["log"][-1][1:3] == [1, "FINISHED"]
    assert told["step"] == 5


def test_the_strip_tells_what_the_lanes_of_a_trace_tell():
    """Same segments, notches where somebody was preempted, on a pool that is too small."""
    from app.live.board import Board
    from tests.factories import make_engine, make_request

    engine = make_engine(num_blocks=9, block_size=2, max_num_seqs=3, max_num_batched_tokens=7)
    board = Board(engine, fake_model())
    for n in range(1, 7):
        request = make_request(3 + n % 3, 9, request_id=str(n))
        board.add(n, engine.requests[engine.submit(request)], "x")
    preempted = []
    while (record := engine.step()) is not None:
        slots = dict(board.strip._slots)
        preempted += [[slots[d.seq_id], d.step] for d in record.plan.decisions.spelled if d.code == "PREEMPTED_BY"]
        board.hear(record, 0.0)
    whole = lanes(engine.trace)
    shifted = [(s, a, n, r + 1, k) for s, a, n, r, k in triples(whole["segs"], 5)]
    assert [tuple(s) for s in board.strip.segments] == shifted
    assert any(s[4] == RECOMPUTE for s in shifted)
    assert [list(n) for n in board.strip.notches] == preempted != []
    ends = {(s, a + n) for s, a, n, _, _ in shifted}
    assert all(tuple(notch) in ends for notch in preempted)
    assert [line[1:3] for line in board.frame()["log"]] == [[r + 1, c] for _, r, c, _ in whole["log"][-12:]]


def test_the_window_moves_on(shared):
    submit(shared, max_tokens=400)
    shared.act({"do": "resume"})
    until(lambda: frame(shared)["step"] >= 300)
    until(lambda: by_number(frame(shared))[1]["status"] == "finished")
    submit(shared, max_tokens=300)
    until(lambda: by_number(frame(shared))[2]["status"] == "finished")
    told = frame(shared)
    assert {segment[3] for segment in triples(told["segs"], 5)} == {2}
    assert told["step"] == 700


def test_waiting_has_a_reason(shared):
    for _ in range(10):
        submit(shared, max_tokens=30)
    shared.act({"do": "step"})
    told = frame(shared)
    assert told["queue"] == {"head": {"number": 9, "code": "SLOTS", "detail": {"slots": 8}}, "behind": [10]}
    for lang in ("zh", "en"):
        assert words(lang).fill("codes.SLOTS", **told["queue"]["head"]["detail"])
    submit(shared)
    assert frame(shared)["queue"]["behind"] == [10, 11]


def test_memory_runs_out_before_the_slots_do(shared):
    for _ in range(4):
        submit(shared, prompt="卻" * 600, max_tokens=100)
    shared.act({"do": "step"})
    head = frame(shared)["queue"]["head"]
    assert (head["number"], head["code"]) == (4, "NO_BLOCKS")


def test_cancel_waiting_and_running(shared):
    first, second = submit(shared, max_tokens=50), submit(shared, max_tokens=50)
    shared.act({"do": "cancel", "id": second})
    until(lambda: by_number(frame(shared))[2]["reason"] == "abort")
    shared.act({"do": "step"})
    shared.act({"do": "cancel", "id": first})
    until(lambda: by_number(frame(shared))[1]["status"] == "aborted")
    until(lambda: [line[2] for line in frame(shared)["log"]] == ["ABORTED", "ADMITTED", "ABORTED"])
    with pytest.raises(ValidationError):
        shared.act({"do": "cancel", "id": "nobody"})


def test_what_can_never_fit_is_refused_and_shown(shared):
    for number, (prompt, max_tokens) in enumerate([("卻說天下", 1021), ("卻", 10**6), ("說" * 1200, 5)], 1):
        with pytest.raises(LiveError) as refused:
            submit(shared, prompt, max_tokens)
        assert refused.value.code == "live_too_big"
        assert refused.value.detail == {"prompt": len(prompt), "max_tokens": max_tokens, "limit": 1024}
        one = by_number(frame(shared))[number]
        assert (one["status"], one["reason"]) == ("refused", "refused")
    assert submit(shared, max_tokens=1020) == "4"
    with pytest.raises(LiveError) as refused:
        submit(shared, "卻", 10**9)
    assert refused.value.detail == {"prompt": 1, "max_tokens": 10**9, "limit": 1024}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"do": "submit", "prompt": ""}, "live_empty"),
        ({"do": "submit", "prompt": " \n\u3000"}, "live_empty"),
        ({"do": "submit", "prompt": "x", "max_tokens": 0}, "live_max_tokens"),
        ({"do": "submit", "prompt": "x", "max_tokens": -3}, "live_max_tokens"),
        ({"do": "submit", "prompt": "x", "max_tokens": 2.5}, "live_max_tokens"),
        ({"do": "submit", "prompt": "x", "max_tokens": "9"}, "live_max_tokens"),
        ({"do": "submit", "prompt": "x", "max_tokens": None}, "live_max_tokens"),
        ({"do": "submit", "prompt": "x", "temperature": -1}, "live_temperature"),
        ({"do": "submit", "prompt": "x", "temperature": 2.5}, "live_temperature"),
        ({"do": "submit", "prompt": "x", "temperature": float("nan")}, "live_temperature"),
        ({"do": "submit", "prompt": "x", "temperature": "hot"}, "live_temperature"),
        ({"do": "submit"}, "live_value"),
        ({"do": "submit", "prompt": 7}, "live_value"),
        ({"do": "submit", "prompt": "x" * 2001}, "live_prompt"),
        ({"do": "fill", "count": 25}, "live_value"),
        ({"do": "fill", "count": True}, "live_value"),
        ({"do": "pace", "value": 21}, "live_value"),
        ({"do": "pace", "value": "fast"}, "live_value"),
        ({"do": "pace", "value": float("nan")}, "live_value"),
        ({"do": "switch", "model": "gpt"}, "live_value"),
        ({"do": "switch", "model": "smollm2"}, "live_model"),
        ({"do": "fetch", "model": "tiny"}, "live_value"),
        ({"do": "rm"}, "live_message"),
        ({}, "live_message"),
    ],
)
def test_rubbish_is_refused_in_both_languages(shared, message, code):
    with pytest.raises(LiveError) as refused:
        shared.act(message)
    assert refused.value.code == code
    for lang in ("zh", "en"):
        assert words(lang).fill(f"errors.{code}", **refused.value.detail)
    assert frame(shared)["requests"] == []


@pytest.mark.parametrize("more", [{"top_p": 2}, {"top_k": 0}, {"seed": "x"}])
def test_what_the_engine_refuses_leaves_no_trace(shared, more):
    with pytest.raises(ValidationError):
        submit(shared, **more)
    assert frame(shared)["requests"] == []
    assert submit(shared) == "1"


def test_typed_text_is_sendable(shared):
    submit(shared, prompt="a\ud800b\x00\x1b<script>", name="\udfff<b>" + "n" * 50)
    one = by_number(frame(shared))[1]
    assert one["prompt"] == "ab<script>"
    assert one["name"] == "<b>" + "n" * 21
    shared.frame().encode("utf-8")


def test_text_never_holds_half_a_character(shared):
    class Halves(FakeRunner):
        def run(self, plan):
            sampled = super().run(plan)
            return {k: v._replace(token_id=500 + plan.step % 2) for k, v in sampled.items()}

    from app.live.board import Board
    from tests.factories import make_engine, make_request

    engine = make_engine(runner=Halves())
    board = Board(engine, fake_model())
    board.add(1, engine.requests[engine.submit(make_request(3, 3, request_id="1"))], "x")
    seen = []
    while (record := engine.step()) is not None:
        board.hear(record, 0.0)
        seen.append(board.frame()["requests"][0]["text"])
    assert seen == ["", "字", "字"]


def test_fill_uses_the_examples(shared):
    shared.act({"do": "fill", "count": 12})
    told = frame(shared)
    assert len(told["requests"]) == 12
    assert [r["max_tokens"] for r in told["requests"][:8]] == list(FILL_TOKENS)
    assert all(r["prompt"] and r["name"] for r in told["requests"])


def test_a_crowd_is_held_off(shared):
    for _ in range(MAX_OPEN // 24):
        shared.act({"do": "fill", "count": 24})
    with pytest.raises(LiveError) as full:
        submit(shared)
    assert full.value.code == "live_full"
    assert len(shared.frame()) < 200_000


def test_only_the_last_finished_stay(shared):
    shared.act({"do": "resume"})
    for n in range(1, 31):
        submit(shared, max_tokens=1)
        until(lambda n=n: by_number(frame(shared))[n]["status"] == "finished")
    assert list(by_number(frame(shared))) == list(range(19, 31))


def test_the_pace_and_pausing(shared):
    assert frame(shared)["paused"]
    shared.act({"do": "resume"})
    with pytest.raises(LiveError) as refused:
        shared.act({"do": "step"})
    assert refused.value.code == "live_not_paused"
    shared.act({"do": "pace", "value": 20})
    told = frame(shared)
    assert (told["paused"], told["pace"]) == (False, 20)
    start = time.monotonic()
    submit(shared, max_tokens=10)
    until(lambda: by_number(frame(shared))[1]["status"] == "finished")
    assert time.monotonic() - start > 0.4


def test_switching_models(shared):
    ready(shared.models, "smollm2")
    submit(shared, max_tokens=100)
    shared.act({"do": "step"})
    assert by_number(frame(shared))[1]["output_tokens"] == 1
    shared.act({"do": "switch", "model": "smollm2", "running": "cancel"})
    told = frame(shared)
    assert told["model"]["name"] == "smollm2-fake"
    assert told["model"]["language"] == "en"
    assert told["state"] == "ready"
    assert told["paused"], "a paused page stays paused"
    assert by_number(told)[1]["reason"] == "abort"
    assert len(by_number(told)[1]["text"]) == 1
    assert told["step"] == 0
    assert submit(shared) == "2"
    shared.act({"do": "step"})
    assert by_number(frame(shared))[2]["status"] == "running"
    shared.act({"do": "fill", "count": 1})
    assert frame(shared)["requests"][-1]["prompt"].isascii()


def test_a_fetched_model_is_on_offer_and_loaded_when_asked_for():
    loaded = []
    models = fake_models(fetched=True)
    models._load = lambda key, machine: loaded.append(key) or fake_model(key)
    shared = Shared(ready(models), pace=None)
    try:
        assert frame(shared)["models"]["smollm2"]["state"] == "fetched"
        assert loaded == ["tiny"]
        shared.act({"do": "switch", "model": "smollm2"})
        until(lambda: frame(shared)["model"]["language"] == "en")
        assert loaded == ["tiny", "smollm2"]
        shared.act({"do": "switch", "model": "tiny"})
        assert frame(shared)["model"]["language"] == "zh"
    finally:
        shared.close()


def test_the_last_wish_for_a_model_holds():
    gate = threading.Event()
    models = fake_models(fetched=True)
    models._load = lambda key, machine: (key == "tiny" or gate.wait(20)) and fake_model(key)
    shared = Shared(ready(models), pace=None)
    try:
        shared.act({"do": "switch", "model": "smollm2"})
        assert frame(shared)["model"]["language"] == "zh", "the old one goes on meanwhile"
        assert submit(shared) == "1"
        shared.act({"do": "switch", "model": "tiny"})
        gate.set()
        until(lambda: models.standing("smollm2").state == "ready")
        assert frame(shared)["model"]["language"] == "zh"
    finally:
        gate.set()
        shared.close()


def test_a_fetched_model_that_is_broken_leaves_the_old_one_running():
    models = fake_models(fetched=True)
    shared = Shared(ready(models), pace=None)

    def broken(key, machine):
        raise ModelError("weights are missing")

    models._load = broken
    try:
        shared.act({"do": "switch", "model": "smollm2"})
        until(lambda: frame(shared)["models"]["smollm2"]["state"] == "failed")
        assert frame(shared)["models"]["smollm2"]["message"] == "weights are missing"
        assert frame(shared)["state"] == "ready"
        assert submit(shared) == "1"
    finally:
        shared.close()


def test_a_failing_engine_ends_its_requests_and_goes_on():
    class Failing(FakeRunner):
        fail = True

        def run(self, plan):
            if self.fail:
                self.fail = False
                raise RuntimeError("out of order")
            return super().run(plan)

    runner = Failing()
    models = fake_models()
    models._load = lambda key, machine: fake_model(key, runner=runner)
    shared = Shared(ready(models), pace=None)
    try:
        submit(shared)
        until(lambda: by_number(frame(shared))[1]["reason"] == "error")
        submit(shared)
        until(lambda: by_number(frame(shared))[2]["reason"] == "length")
    finally:
        shared.close()


def test_before_the_model_is_there():
    gate = threading.Event()
    models = fake_models()
    models._load = lambda key, machine: gate.wait(20) and fake_model(key)
    shared = Shared(models)
    models.start()
    try:
        told = frame(shared)
        assert (told["state"], told["model"], told["requests"]) == ("loading", None, [])
        with pytest.raises(LiveError) as refused:
            submit(shared)
        assert refused.value.code == "live_loading"
        gate.set()
        until(lambda: frame(shared)["state"] == "ready")
        assert frame(shared)["pace"] == 8
    finally:
        gate.set()
        shared.close()


def test_a_model_that_cannot_be_loaded_says_why():
    def broken(key, machine):
        raise ModelError("config.json is missing")

    models = fake_models()
    models._load = broken
    shared = Shared(models)
    models.start()
    until(lambda: frame(shared)["state"] == "failed")
    assert frame(shared)["message"] == "config.json is missing"
    assert frame(shared)["models"]["tiny"]["state"] == "failed"


def test_fetching_tells_how_far_it_is(shared):
    seen, gate = [], threading.Event()

    def fetch(key, told):
        told(50, 200)
        seen.append(frame(shared)["models"][key])
        assert gate.wait(20)

    shared.models._fetch = fetch
    shared.act({"do": "fetch", "model": "smollm2"})
    shared.act({"do": "fetch", "model": "smollm2"})
    gate.set()
    until(lambda: frame(shared)["models"]["smollm2"]["state"] == "ready")
    assert seen == [{"state": "fetching", "done": 50, "total": 200, "message": ""}]


def test_a_fetch_that_failed_can_be_tried_again(shared):
    def broken(key, told):
        raise EngineError("no route worked")

    shared.models._fetch = broken
    shared.act({"do": "fetch", "model": "smollm2"})
    until(lambda: frame(shared)["models"]["smollm2"]["state"] == "failed")
    assert frame(shared)["models"]["smollm2"]["message"] == "no route worked"
    assert frame(shared)["state"] == "ready"
    shared.models._fetch = lambda key, told: None
    until(lambda: not shared.models._slots["smollm2", "cpu"].thread.is_alive())
    shared.act({"do": "fetch", "model": "smollm2"})
    until(lambda: frame(shared)["models"]["smollm2"]["state"] == "ready")
