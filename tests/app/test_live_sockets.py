"""The websockets: frames, answers, who may connect, what is left when they close."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.live.feed import PER_SECOND, Feed, Mailbox
from app.live.sockets import Live
from tests.app.live_models import Client, fake_models, ready, threads_named, until

ROOT = Path(__file__).parents[2]
RUN = "/live/run?lengths=own&own=9,3,5,7&B=2"


def alone(coroutine):
    """Run on an event loop of a thread of its own: this one may have another, of the browser tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.fixture
def live():
    made = Live(ready(fake_models(seconds=0.002)))
    until(lambda: made.shared._service is not None)
    yield made
    made.close()


@pytest.fixture
def browser(live):
    with TestClient(Starlette(routes=live.routes())) as client:
        yield client


def test_submit_and_read_it_in_the_frames(browser):
    with browser.websocket_connect("/live/engine") as socket:
        client = Client(socket)
        first = client.until(lambda told: True)
        assert (first["type"], first["step"]) == ("engine", 0)
        client.ask("pace", value=20)
        rid = client.ask(
            "submit", prompt="卻說", name="Ada", max_tokens=6, temperature=0, top_k=None, top_p=None, seed=1
        )
        told = client.until(lambda told: told["requests"] and told["requests"][0]["status"] == "finished")
        assert told["requests"][0]["id"] == rid
        assert told["requests"][0]["name"] == "Ada"
        assert len(told["requests"][0]["text"]) == 6


def test_everybody_sees_the_same(browser):
    with browser.websocket_connect("/live/engine") as one, browser.websocket_connect("/live/engine") as two:
        mine, theirs = Client(one), Client(two)
        mine.ask("pause")
        assert theirs.until(lambda told: told["paused"])
        theirs.ask("fill", count=3)
        assert len(mine.until(lambda told: told["requests"])["requests"]) == 3
        mine.ask("step")
        assert theirs.until(lambda told: told["step"] == 1)


def test_errors_are_answers(browser):
    with browser.websocket_connect("/live/engine") as socket:
        client = Client(socket)
        assert client.ask("cancel", id="99")["code"] == "engine"
        assert "99" in client.ask("cancel", id="99")["detail"]["message"]
        assert client.ask("fly") == {"code": "live_message", "detail": {}}
        assert client.ask("submit", prompt="x" * 2001)["detail"] == {"count": 2001, "max": 2000}
        for rubbish in (
            "",
            "no json",
            "[1]",
            '"x"',
            "{}",
            '{"do": "pause"}',
            "[" * 10_000,
            '{"n": 1' + " " * 30_000 + "}",
        ):
            socket.send_text(rubbish)
            while "re" not in (message := client.receive()):
                pass
            assert message == {"re": None, "error": {"code": "live_message", "detail": {}}}
        assert client.ask("pause") is None


def test_an_error_nobody_foresaw_is_an_answer_too(browser, live, monkeypatch, caplog):
    def broken(_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(live.shared, "act", broken)
    with browser.websocket_connect("/live/engine") as socket:
        assert Client(socket).ask("pause") == {"code": "broken", "detail": {}}


@pytest.mark.parametrize("path", ["/live/engine", RUN])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://testserver.evil.example", "null", "http://testserver:1"]
)
def test_a_foreign_page_is_refused(browser, path, origin):
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        browser.websocket_connect(path, headers={"origin": origin}) as socket,
    ):
        socket.receive_text()
    assert refused.value.code == 1008
    assert not threads_named("run")


@pytest.mark.parametrize("origin", ["http://testserver", "https://TESTSERVER"])
def test_our_own_page_may(browser, origin):
    with browser.websocket_connect("/live/engine", headers={"origin": origin}) as socket:
        assert Client(socket).until(lambda told: told["state"] == "ready")


def test_a_run_goes_from_frame_to_frame(browser):
    with browser.websocket_connect(RUN) as socket:
        client = Client(socket)
        told = client.until(lambda told: told["state"] == "done")
        assert told["lanes"]["static"]["useful_cells"] == told["lanes"]["continuous"]["useful_cells"] == 24
        assert told["measured"]["continuous"]["tokens_per_second"] > 0


def test_a_run_ends_with_its_socket(browser, live):
    with browser.websocket_connect("/live/run?B=8") as socket:
        client = Client(socket)
        assert client.ask("pace", value=20) is None
        assert client.ask("pause") is None
        client.until(lambda told: told["state"] == "paused")
        assert threads_named("run")
    until(lambda: not threads_named("run"))
    assert not live.seats._line


def test_a_run_that_cannot_be_made_says_why(browser):
    with browser.websocket_connect("/live/run?lengths=own&own=1,x") as socket:
        told = Client(socket).until(lambda told: told["state"] == "failed")
        assert told["error"] == {"code": "own_words", "detail": {"i": 2, "word": "x"}}


def test_nothing_happens_while_nobody_looks(browser, live):
    with browser.websocket_connect("/live/engine") as socket:
        Client(socket).until(lambda told: True)
        assert threads_named("feed")
    until(lambda: not threads_named("feed"))
    made = []
    live.shared.feed._make = lambda: made.append(1) or ""
    turns = []
    service = live.shared._service
    service._delay = lambda inner=service._delay: turns.append(1) or inner()
    time.sleep(0.4)
    assert not made
    assert not turns
    live.shared.act({"do": "submit", "prompt": "卻說", "max_tokens": 3})
    until(lambda: not service.engine.has_work)
    assert not made


def test_an_idle_engine_sends_nothing(browser):
    with browser.websocket_connect("/live/engine") as socket:
        client = Client(socket)
        client.ask("pause")
        client.until(lambda told: told["paused"])
        count = len(client.frames)
        time.sleep(0.5)
        client.ask("fly")
        client.ask("fly")
        assert len(client.frames) <= count + 1


def feed_of(texts, **options):
    """A feed of made texts, and how often one was made."""
    made = []

    def make():
        made.append(time.monotonic())
        return texts()

    return Feed(make, **options), made


def test_frames_are_made_once_for_all_and_not_too_often():
    count = iter(range(10**6))
    feed, made = feed_of(lambda: str(next(count)))

    async def listen():
        boxes = [Mailbox() for _ in range(20)]
        for box in boxes:
            feed.join(box)
        got = [[] for _ in boxes]

        async def read(box, into):
            while True:
                into.append(await box.next())

        readers = [asyncio.create_task(read(box, into)) for box, into in zip(boxes, got, strict=True)]
        begin = time.monotonic()
        while (seconds := time.monotonic() - begin) < 1.0:
            feed.changed()
            await asyncio.sleep(0.002)
        for _ in range(500):  # the last frame reaches everybody, however busy the machine is
            if all(into and into[-1] == str(len(made) - 1) for into in got):
                break
            await asyncio.sleep(0.02)
        for reader in readers:
            reader.cancel()
        for box in boxes:
            feed.leave(box)
        return got, seconds

    got, seconds = alone(listen())
    assert 2 <= len(made) <= PER_SECOND * (seconds + 1)
    assert all(into[-1] == got[0][-1] for into in got[1:])


def test_a_slow_client_gets_the_newest_frame():
    count = iter(range(10**6))
    feed, made = feed_of(lambda: str(next(count)))

    async def listen():
        box = Mailbox()
        feed.join(box)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            feed.changed()
            await asyncio.sleep(0.01)
        first = await box.next()
        feed.leave(box)
        return int(first)

    assert alone(listen()) >= len(made) - 2 > 1


def test_a_dear_frame_is_made_less_often():
    feed, made = feed_of(lambda: time.sleep(0.1) or str(time.monotonic()))

    async def listen():
        box = Mailbox()
        feed.join(box)
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            feed.changed()
            await asyncio.sleep(0.01)
        feed.leave(box)

    alone(listen())
    assert len(made) <= 4


def test_a_message_that_fails_does_not_end_the_feed(caplog):
    texts = iter([None, "fine"])

    def make():
        text = next(texts)
        if text is None:
            raise RuntimeError("out of order")
        return text

    feed = Feed(make)

    async def listen():
        box = Mailbox()
        feed.join(box)
        await asyncio.sleep(0.2)
        feed.changed()
        text = await asyncio.wait_for(box.next(), 5)
        feed.leave(box)
        return text

    assert alone(listen()) == "fine"


def test_time_alone_changes_a_frame():
    feed, _ = feed_of(lambda: str(time.monotonic()), again=lambda: 0.1)

    async def listen():
        box = Mailbox()
        feed.join(box)
        texts = [await asyncio.wait_for(box.next(), 5) for _ in range(3)]
        feed.leave(box)
        return texts

    assert len(set(alone(listen()))) == 3


def test_the_app_starts_without_the_model_libraries():
    code = (
        "import sys, app.main; heavy = {n.split('.')[0] for n in sys.modules} & {'torch', 'transformers', 'triton'};"
        "import threading; print(sorted(heavy), [t.name for t in threading.enumerate() if t.name != 'MainThread']);"
        "print([getattr(r, 'path', '') for r in app.main.live.routes()])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[] []", "['/live/run', '/live/engine']"]


@pytest.fixture(scope="module")
def real():
    """The app's live part on the small model itself."""
    made = Live()
    made.start()
    until(lambda: made.shared._state != "loading", 120)
    assert made.shared._state == "ready", made.shared._message
    with TestClient(Starlette(routes=made.routes())) as client:
        yield client, made
    made.close()


def test_the_small_model_writes_for_everybody(real):
    browser, live = real
    with browser.websocket_connect("/live/engine") as socket:
        client = Client(socket)
        told = client.until(lambda told: told["state"] == "ready")
        assert told["model"] == {
            "key": "tiny",
            "name": "tiny-model",
            "machine": "cpu",
            "device": "CPU",
            "backend": "torch",
            "threads": 1,
            "dtype": "float32",
            "parameters": 3_344_640,
            "language": "zh",
        }
        client.ask("pace", value=None)
        replies = [client.ask("submit", prompt="卻說曹操", max_tokens=40, temperature=0, name="") for _ in range(2)]
        client.ask("fill", count=10)
        told = client.until(lambda told: told["step"] and all(r["status"] == "finished" for r in told["requests"]))
        texts = {r["id"]: r["text"] for r in told["requests"] if r["id"] in replies}
        assert len(texts) == 2
        assert len(set(texts.values())) == 1, "greedy replies differ with their neighbours"
        assert all("\ufffd" not in r["text"] for r in told["requests"])
        assert all(r["text"] for r in told["requests"] if r["output_tokens"] > 4)
        assert told["rates"]["tokens_per_second"] > 0
    with live.shared._service.read() as engine:
        engine.check()
        assert engine.pool.num_free == engine.pool.num_blocks


def test_torch_takes_one_thread_on_the_engine(real):
    import torch

    _, live = real
    seen = []
    unsubscribe = live.shared._service.subscribe(lambda _: seen.append(torch.get_num_threads()))
    live.shared.act({"do": "submit", "prompt": "次日", "max_tokens": 2, "temperature": 0.8})
    until(lambda: seen)
    unsubscribe()
    assert set(seen) == {1}


def test_a_run_on_the_small_model_has_the_counted_schedule(real):
    from app.lanes import Spec
    from app.live.run import Run
    from engine.simulate import simulate

    _, live = real
    params = {"lengths": "own", "own": " ".join(str(5 + 7 * n % 40) for n in range(24)), "B": "4"}
    run = Run(params, live.models, live.seats)
    run.start()
    try:
        until(lambda: json.loads(run.frame())["state"] in ("done", "failed"), 120)
        told = json.loads(run.frame())
        assert told["state"] == "done", told["message"]
        for policy, part in run.parts.items():
            counted = simulate(Spec.parse(params).workload(), policy=policy, slots=4).trace
            assert part.trace.same_schedule(counted)
        assert len({text for _, text in told["texts"]}) == 3
        assert all(len(text) > 1 for _, text in told["texts"])
    finally:
        run.close()
