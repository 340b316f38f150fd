"""A visitor's own run of lesson 1 on a model."""

from __future__ import annotations

import json
import threading
import time

import pytest

from app.lanes import Spec
from app.live.errors import LiveError
from app.live.run import Part, Run, Seats, requests_of
from app.live.stopwatch import Stopwatch
from engine import FakeRunner
from engine.simulate import simulate
from lessons.words import words
from tests.app.live_models import fake_model, fake_models, ready, threads_named, until

OWN = {"lengths": "own", "own": "12 3 7 5 9 2 8", "B": "3"}


@pytest.fixture
def begin():
    """begin(query, models) starts a run that is closed at the end."""
    made, seats = [], Seats(2)

    def start(query=None, models=None, seats=seats):
        run = Run(OWN if query is None else query, models or ready(fake_models()), seats)
        made.append(run)
        run.start()
        return run

    yield start
    for run in made:
        run.close()


def frame(run):
    return json.loads(run.frame())


def state(run):
    return frame(run)["state"]


@pytest.mark.parametrize("arrivals", ["all", "poisson:0.2", "bursts:4:50"])
def test_the_schedule_is_the_counted_one(begin, arrivals):
    run = begin({**OWN, "arrivals": arrivals})
    until(lambda: state(run) == "done")
    spec = Spec.parse({**OWN, "arrivals": arrivals})
    told = frame(run)
    assert list(told["lanes"]) == ["static", "continuous"]
    for policy, part in run.parts.items():
        counted = simulate(spec.workload(), policy=policy, slots=3).trace
        assert part.trace.same_schedule(counted)
        assert told["lanes"][policy] == json.loads(json.dumps(counted.lanes()))
        assert told["measured"][policy]["tokens"] == 46
        assert told["measured"][policy]["seconds"] > 0


def test_what_a_frame_holds_on_the_way(begin):
    run = begin({**OWN, "policies": "continuous"}, ready(fake_models(seconds=0.03)))
    until(lambda: (frame(run)["lanes"].get("continuous") or {"steps": 0})["steps"] >= 8)
    run.act({"do": "pause"})
    told = frame(run)
    assert (told["type"], told["state"], told["policy"], told["pace"]) == ("run", "paused", "continuous", None)
    assert told["model"]["name"] == "tiny-fake"
    lanes, measured = told["lanes"]["continuous"], told["measured"]["continuous"]
    steps = lanes["steps"]
    assert lanes["useful_cells"] == measured["tokens"] == 3 * steps
    running = run.parts["continuous"].engine.scheduler.running
    finished = [line[1] for line in lanes["log"] if line[2] == "FINISHED"]
    by_slot = [int(seq.request_id) for seq in sorted(running, key=lambda seq: seq.slot)]
    assert [index for index, _ in told["texts"]] == by_slot + finished[-3:]
    assert [len(text) for _, text in told["texts"]][: len(running)] == [
        seq.num_output_tokens + 1 for seq in sorted(running, key=lambda seq: seq.slot)
    ]
    assert measured["step_ms"] >= 30
    assert measured["itl_ms"] >= 30
    assert measured["ttft_ms"] >= 30
    assert measured["tokens_per_second"] <= 100
    for count in (1, 2):
        run.act({"do": "step"})
        assert frame(run)["lanes"]["continuous"]["steps"] == steps + count
    time.sleep(0.1)
    assert frame(run)["lanes"]["continuous"]["steps"] == steps + 2
    run.act({"do": "resume"})
    until(lambda: state(run) == "done")
    assert frame(run)["lanes"]["continuous"]["useful_cells"] == 46


def test_policies_in_the_order_asked_for(begin):
    run = begin({**OWN, "policies": "continuous,static"})
    until(lambda: state(run) == "done")
    assert list(frame(run)["lanes"]) == ["continuous", "static"]
    assert frame(run)["policy"] == "static"


def test_paused_before_it_began(begin):
    gate = threading.Event()
    models = fake_models()
    models._load = lambda key, machine: gate.wait(20) and fake_model(key)
    models.start()
    run = begin(models=models)
    until(lambda: state(run) == "loading")
    run.act({"do": "pause"})
    run.act({"do": "pace", "value": 20})
    gate.set()
    until(lambda: state(run) == "paused")
    assert frame(run)["lanes"]["static"]["steps"] == 0
    assert run.parts["static"].service.pace == 20
    run.act({"do": "step"})
    assert frame(run)["lanes"]["static"]["steps"] == 1
    run.act({"do": "pace", "value": None})
    run.act({"do": "resume"})
    until(lambda: state(run) == "done")


def test_stop(begin):
    run = begin(models=ready(fake_models(seconds=0.02)))
    until(lambda: state(run) == "running")
    run.act({"do": "stop"})
    until(lambda: state(run) == "stopped")
    assert list(frame(run)["lanes"]) == ["static"]
    steps = frame(run)["lanes"]["static"]["steps"]
    time.sleep(0.1)
    assert frame(run)["lanes"]["static"]["steps"] == steps
    run.act({"do": "pause"})
    run.act({"do": "step"})
    assert state(run) == "stopped"


def test_two_at_a_time_and_the_others_wait(begin):
    models = ready(fake_models(seconds=0.02))
    first, second, third, fourth = (begin(models=models) for _ in range(4))
    until(lambda: (state(first), state(second)) == ("running", "running"))
    assert (state(third), state(fourth)) == ("busy", "busy")
    third.close()
    assert state(third) == "stopped"
    first.close()
    until(lambda: state(fourth) == "running")


def test_close_leaves_no_thread(begin):
    run = begin(models=ready(fake_models(seconds=0.02)))
    until(lambda: state(run) == "running")
    service = run.parts["static"].service
    run.close()
    assert not run._thread.is_alive()
    assert not service._thread.is_alive()
    assert not threads_named("run")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"lengths": "?"}, "query"),
        ({"B": "9000"}, "query"),
        ({"policies": "static,static"}, "query"),
        ({"policies": ""}, "query"),
        ({"policies": "random"}, "query"),
        ({"lengths": "own", "own": "3 x"}, "own_words"),
        ({"lengths": "own", "own": "3 1024"}, "own_context"),
    ],
)
def test_a_run_nobody_can_make_says_why(begin, query, code):
    run = begin(query)
    until(lambda: state(run) == "failed")
    told = frame(run)
    assert told["error"]["code"] == code
    assert told["message"]
    for lang in ("zh", "en"):
        assert words(lang).fill(f"errors.{code}", **told["error"]["detail"])
    until(lambda: not run.seats.has(run))


def test_a_list_too_long_for_the_model_names_the_item_and_takes_no_seat(begin):
    seats = Seats(0)
    run = begin({"lengths": "own", "own": "1023 2000 3000"}, seats=seats)
    until(lambda: state(run) == "failed")
    assert frame(run)["error"]["detail"] == {"i": 2, "word": 2000, "positions": 1024, "max": 1023}
    assert frame(run)["lanes"] == {}
    assert state(begin({"lengths": "own", "own": "1023"}, seats=seats)) != "failed"


def test_a_model_that_fails_on_the_way(begin):
    class Failing(FakeRunner):
        def run(self, plan):
            if plan.step == 4:
                raise RuntimeError("out of order")
            return super().run(plan)

    models = fake_models()
    models._load = lambda key, machine: fake_model(key, runner=Failing())
    run = begin(models=ready(models))
    until(lambda: state(run) == "failed")
    assert frame(run)["message"] == "out of order"
    assert frame(run)["lanes"]["static"]["steps"] == 4


@pytest.mark.parametrize("message", [{"do": "fly"}, {}, {"do": "pace", "value": 0}, {"do": "pace", "value": True}])
def test_rubbish(begin, message):
    run = begin()
    with pytest.raises(LiveError):
        run.act(message)


def test_one_step_only_while_paused(begin):
    run = begin(models=ready(fake_models(seconds=0.02)))
    until(lambda: state(run) == "running")
    with pytest.raises(LiveError) as refused:
        run.act({"do": "step"})
    assert refused.value.code == "live_not_paused"


def test_requests_are_the_counted_ones_with_real_prompts():
    spec = Spec.parse(OWN)
    made, counted = requests_of(spec.workload(), fake_model()), spec.workload().requests(1)
    assert [(r.prompt_len, r.reply_len, r.arrival) for r in made] == [
        (r.prompt_len, r.reply_len, r.arrival) for r in counted
    ]
    assert [r.params.seed for r in made] == list(range(7))
    assert all(r.params.ignore_eos and r.params.temperature == 0.8 and r.params.top_p == 0.95 for r in made)


def test_the_stopwatch_counts_from_the_arrival():
    part = Part("continuous", Spec.parse({**OWN, "arrivals": "bursts:4:50"}).workload(), 3, fake_model(), lambda: None)
    watch = part._watch
    assert isinstance(watch, Stopwatch)
    time.sleep(0.05)
    while (record := part.engine.step()) is not None:
        time.sleep(0.002)
        watch.step(record, 0.002)
    told = watch.tell()
    assert told["tokens"] == 46
    assert sorted(watch._ttft)[:3] == pytest.approx([0.002] * 3, abs=0.02), "a later burst was not waiting before"
    assert max(watch._ttft) >= 0.05
    assert 1 < told["itl_ms"] < 30


def test_a_run_frees_the_pool_when_it_is_over(begin):
    run = begin()
    until(lambda: state(run) == "done")
    assert not any(hasattr(part.engine, "runner") for part in run.parts.values())
