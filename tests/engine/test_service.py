"""An engine on its own thread: what many callers at once may rely on."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import tracemalloc

import pytest

from engine import CapacityError, Engine, EngineConfig, EngineError, FakeRunner, Status, Trace, ValidationError
from engine.service import EngineService
from tests.factories import make_engine, make_request, undisturbed

PATIENCE = 20  # seconds until a test gives up waiting


def until(condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


class Slow(FakeRunner):
    """Takes a while for each step, and notes when each began."""

    def __init__(self, seconds=0.01):
        super().__init__()
        self.seconds, self.starts = seconds, []

    def run(self, plan):
        self.starts.append(time.perf_counter())
        time.sleep(self.seconds)
        return super().run(plan)


class Gate(FakeRunner):
    """Stands still inside a step until it is let go."""

    def __init__(self):
        super().__init__()
        self.inside, self.go = threading.Event(), threading.Event()

    def run(self, plan):
        self.inside.set()
        assert self.go.wait(PATIENCE)
        return super().run(plan)


@pytest.fixture
def serve():
    """serve(engine, …) makes a service that is closed at the end."""
    made = []

    def start(engine=None, **options):
        service = EngineService(engine if engine is not None else make_engine(num_blocks=40), **options)
        made.append(service)
        return service

    yield start
    for service in made:
        if isinstance(service.engine.runner, Gate):
            service.engine.runner.go.set()
        service.close()
        assert not service._thread.is_alive()


def over(service, *ids):
    with service.read() as engine:
        return all(engine.requests[rid].finish_reason is not None for rid in ids)


def test_a_stream_gives_the_reply_and_ends(serve):
    service = serve()
    prompt = tuple(range(5, 11))
    assert list(service.stream(service.submit(make_request(prompt, 12)))) == undisturbed(prompt, 12)


def test_many_callers_at_once_get_their_own_reply(serve):
    service = serve()
    prompts = [tuple(range(n, n + 3 + n % 4)) for n in range(1, 25)]
    found = {}

    def ask(prompt):
        found[prompt] = list(service.stream(service.submit(make_request(prompt, 9))))

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == {prompt: undisturbed(prompt, 9) for prompt in prompts}
    with service.read() as engine:
        engine.check()
        assert engine.pool.num_free == engine.pool.num_blocks


def test_submit_raises_what_the_engine_raises(serve):
    service = serve(make_engine(num_blocks=2, block_size=4))
    with pytest.raises(CapacityError) as refused:
        service.submit(make_request(8, 4))
    assert refused.value.reason == "TOO_BIG"
    service.submit(make_request(3, 2, request_id="mine"))
    with pytest.raises(ValidationError, match="taken"):
        service.submit(make_request(3, 2, request_id="mine"))
    for act in (service.cancel, service.finish, service.stream):
        with pytest.raises(ValidationError):
            act("nobody")


def test_a_fast_engine_lets_callers_in(serve):
    """A lock that is taken again at once starves everybody else."""
    service = serve(Engine(EngineConfig(num_blocks=10_000), keep_trace=False))
    rid = service.submit(make_request(1, 30_000))
    waits = []
    for _ in range(40):
        start = time.perf_counter()
        with service.read():
            pass
        waits.append(time.perf_counter() - start)
    assert not over(service, rid), "the engine was idle: nothing was shown"
    assert sorted(waits)[30] < 0.1


def test_a_crowd_at_the_door_does_not_stop_the_engine(serve):
    service = serve()
    rid = service.submit(make_request(3, 30))
    stop = threading.Event()

    def look():
        while not stop.is_set():
            with service.read():
                pass

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for thread in lookers:
        thread.start()
    try:
        until(lambda: over(service, rid))
    finally:
        stop.set()
        for thread in lookers:
            thread.join(PATIENCE)


def test_an_idle_or_paused_service_does_nothing(serve):
    service = serve()
    list(service.stream(service.submit(make_request(3, 5))))
    paused = serve(paused=True)
    paused.submit(make_request(3, 5))
    stuck = serve(make_engine(policy="static", max_num_seqs=4))
    stuck.submit(make_request(3, 5))
    time.sleep(0.1)
    turns = []
    for quiet in (service, paused, stuck):
        quiet._delay = lambda inner=quiet._delay: turns.append(1) or inner()
    before = time.process_time()
    time.sleep(0.5)
    assert not turns
    assert time.process_time() - before < 0.1


def test_pause_comes_before_the_next_step(serve):
    runner = Slow(0.005)
    service = serve(make_engine(num_blocks=100, runner=runner))
    rid = service.submit(make_request(3, 300))
    until(lambda: len(runner.starts) > 3)
    service.pause()
    stopped = len(runner.starts)
    with service.read() as engine:
        written = engine.requests[rid].sequences[0].num_output_tokens
    assert written == stopped, "a step was under way when pause returned"
    time.sleep(0.1)
    assert len(runner.starts) == stopped
    service.resume()
    until(lambda: len(runner.starts) > stopped + 3)


def test_a_step_while_paused_is_exactly_one(serve):
    service = serve(paused=True)
    rid = service.submit(make_request(3, 3))
    records = []
    service.subscribe(records.append)
    for count in (1, 2, 3):
        record = service.step()
        assert record is not None
        assert record.step == count - 1
        with service.read() as engine:
            assert len(engine.requests[rid].outputs[0]) == count
    assert service.step() is None
    assert [r.step for r in records if not r.plan.is_empty] == [0, 1, 2]
    service.resume()
    with pytest.raises(EngineError, match="pause"):
        service.step()


def test_steps_asked_for_at_once_all_happen(serve):
    service = serve(paused=True)
    service.submit(make_request(3, 30))
    threads = [threading.Thread(target=service.step) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    with service.read() as engine:
        assert engine.clock.step == 6


def test_the_pace_is_even(serve):
    runner = Slow(0.004)
    service = serve(make_engine(runner=runner), pace=20)
    list(service.stream(service.submit(make_request(3, 21))))
    gaps = [b - a for a, b in itertools.pairwise(runner.starts)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.05, rel=0.1), "late steps add up"
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(0.05, abs=0.02)
    service.pace = None
    runner.starts.clear()
    list(service.stream(service.submit(make_request(3, 11))))
    assert runner.starts[-1] - runner.starts[0] < 10 * 0.05


@pytest.mark.parametrize("pace", [0, -1, float("nan"), float("inf"), True, "8"])
def test_a_pace_is_a_number_above_zero(serve, pace):
    service = serve()
    with pytest.raises(ValidationError, match="pace"):
        service.pace = pace
    assert service.pace is None


def test_a_new_pace_is_taken_at_once(serve):
    service = serve(pace=0.01)
    first = service.submit(make_request(3, 1))
    until(lambda: over(service, first))
    second = service.submit(make_request(3, 5))
    time.sleep(0.05)
    assert not over(service, second)
    service.pace = None
    until(lambda: over(service, second))


@pytest.mark.parametrize("where", ["waiting", "running", "mid-prefill", "preempted"])
def test_cancel(serve, where):
    engine = make_engine(
        num_blocks=5 if where == "preempted" else 10,
        block_size=4,
        max_num_seqs=1 if where == "waiting" else 2,
        max_num_batched_tokens=4,
    )
    service = serve(engine, paused=True)
    if where == "preempted":
        first, rid = service.submit(make_request(4, 16)), service.submit(make_request(4, 16))
        until(lambda: service.step() and engine.requests[rid].status is Status.PREEMPTED)
    elif where == "waiting":
        first, rid = service.submit(make_request(4, 6)), service.submit(make_request(4, 6))
        service.step()
        assert engine.requests[rid].status is Status.WAITING
    else:
        rid, first = service.submit(make_request(10 if where == "mid-prefill" else 4, 6)), None
        service.step()
        assert engine.requests[rid].sequences[0].num_output_tokens == (where == "running")
    before = engine.requests[rid].outputs[0]
    stream = service.stream(rid)
    service.cancel(rid)
    assert list(stream) == before
    assert engine.requests[rid].finish_reason == "abort"
    service.resume()
    if first is not None:
        until(lambda: over(service, first))
        assert engine.requests[first].finish_reason == "length"
    with service.read():
        engine.check()
        assert engine.requests[rid].outputs[0] == before
        assert engine.pool.num_free == engine.pool.num_blocks


def test_finish_ends_a_request_as_complete(serve):
    service = serve(paused=True)
    rid = service.submit(make_request(3, 50))
    service.step()
    service.finish(rid)
    assert service.engine.requests[rid].finish_reason == "stop"


def test_subscribers_hear_of_an_abort_while_nothing_runs(serve):
    service = serve(paused=True)
    heard = []
    unsubscribe = service.subscribe(heard.append)
    rid = service.submit(make_request(3, 5))
    service.cancel(rid)
    until(lambda: any(e.code == "ABORTED" for r in heard for e in r.before))
    unsubscribe()
    count = len(heard)
    service.submit(make_request(3, 5))
    service.step()
    assert len(heard) == count
    assert [e[2] for e in service.engine.trace.events].count("ABORTED") == 1, "the trace keeps what was told"


def test_a_subscriber_that_fails_harms_nobody(serve, caplog):
    service = serve()
    heard = []

    def broken(_):
        raise RuntimeError("out of order")

    service.subscribe(broken)
    service.subscribe(heard.append)
    assert len(list(service.stream(service.submit(make_request(3, 4))))) == 4
    assert len(heard) >= 4
    assert "subscriber" in caplog.text


def test_a_stream_nobody_reads_blocks_nothing(serve):
    service = serve()
    unread = service.stream(service.submit(make_request(3, 60)))
    rid = service.submit(make_request(3, 60))
    until(lambda: over(service, rid))
    assert len(list(unread)) == 60


def test_a_failing_runner_ends_its_plan_and_the_service_goes_on(serve, caplog):
    class Failing(FakeRunner):
        fail = False

        def run(self, plan):
            if self.fail:
                self.fail = False
                raise MemoryError("no room")
            return super().run(plan)

    runner = Failing()
    service = serve(make_engine(num_blocks=40, max_num_seqs=2, runner=runner), paused=True)
    running, waiting = [service.submit(make_request(3, 8)) for _ in range(2)], service.submit(make_request(3, 8))
    service.step()
    runner.fail = True
    heard = []
    service.subscribe(heard.append)
    assert service.step() is None
    assert isinstance(service.last_error, MemoryError)
    assert {service.engine.requests[rid].finish_reason for rid in running} == {"error"}
    assert {e.request_id for r in heard for e in r.before} == set(running)
    service.resume()
    until(lambda: over(service, waiting))
    assert service.engine.requests[waiting].finish_reason == "length"
    with service.read() as engine:
        engine.check()


def test_an_engine_that_fails_without_end_is_paused(serve, monkeypatch, caplog):
    service = serve()
    calls = []

    def broken():
        calls.append(1)
        raise RuntimeError("wrong books")

    monkeypatch.setattr(service.engine, "step", broken)
    service.submit(make_request(3, 5))
    until(lambda: service.paused)
    time.sleep(0.05)
    assert len(calls) == 1


def test_static_waits_for_a_full_batch(serve):
    service = serve(make_engine(num_blocks=100, policy="static", max_num_seqs=3))
    heard = []
    service.subscribe(heard.append)
    ids = [service.submit(make_request(3, 4)) for _ in range(2)]
    until(lambda: any(d.code == "WAIT_BATCH" for r in heard for d in r.plan.decisions))
    time.sleep(0.05)
    assert not any(service.engine.requests[rid].outputs[0] for rid in ids)
    ids.append(service.submit(make_request(3, 4)))
    until(lambda: over(service, *ids))


def test_release_starts_the_batch(serve):
    service = serve(make_engine(num_blocks=100, policy="static", max_num_seqs=3))
    service.release()  # for nobody: it must not let a later one through
    first = service.submit(make_request(3, 4))
    time.sleep(0.05)
    assert not over(service, first)
    service.release()
    until(lambda: over(service, first))
    second = service.submit(make_request(3, 4))
    time.sleep(0.05)
    assert not over(service, second), "a release holds for one batch"
    with service.read() as engine:
        assert [action[1] for action in engine.trace.actions] == ["submit", "release", "submit"]
        assert [action[0] for action in engine.trace.actions] == [0, 0, 4]
        assert Trace.from_json(engine.trace.to_json()).actions == engine.trace.actions


def test_release_after_a_while_without_arrivals(serve):
    service = serve(make_engine(num_blocks=100, policy="static", max_num_seqs=3), release_after=0.15)
    start = time.monotonic()
    first = service.submit(make_request(3, 4))
    time.sleep(0.1)
    second = service.submit(make_request(3, 4))
    until(lambda: over(service, first, second))
    assert time.monotonic() - start >= 0.25, "an arrival starts the wait anew"
    assert service.engine.requests[first].sequences[0].output_times == [1, 2, 3, 4]


def test_a_workload_that_is_complete_does_not_wait(serve):
    engine = make_engine(num_blocks=100, policy="static", max_num_seqs=3)
    ids = [engine.submit(make_request(3, 4, arrival=n)) for n in (0, 0, 0, 9)]
    service = serve(engine, is_open=False)
    until(lambda: over(service, *ids))
    assert engine.trace.actions == []


def test_close_joins_and_ends_streams(serve):
    service = serve(paused=True)
    stream = service.stream(service.submit(make_request(3, 5)))
    got = []
    reader = threading.Thread(target=lambda: got.extend(stream))
    reader.start()
    service.step()
    service.close()
    service.close()
    reader.join(PATIENCE)
    assert not reader.is_alive()
    assert len(got) <= 1
    for act in (service.step, service.release, lambda: service.submit(make_request(3, 5))):
        with pytest.raises(EngineError, match="closed"):
            act()


def test_close_waits_for_the_step_under_way(serve):
    runner = Gate()
    service = serve(make_engine(runner=runner))
    service.submit(make_request(3, 5))
    assert runner.inside.wait(PATIENCE)
    closer = threading.Thread(target=service.close)
    closer.start()
    time.sleep(0.05)
    assert closer.is_alive()
    runner.go.set()
    closer.join(PATIENCE)
    assert service.engine.clock.step == 1


def test_a_thousand_requests_leave_nothing_behind(serve):
    engine = Engine(EngineConfig(num_blocks=64, block_size=4), FakeRunner(), keep_trace=False)
    service = serve(engine, keep=50)

    def hundred():
        ids = [service.submit(make_request(3 + n % 7, 1 + n % 9)) for n in range(100)]
        for n, rid in enumerate(ids):
            if n % 10 == 3:
                service.cancel(rid)
        until(lambda: not engine.has_work)

    tracemalloc.start()
    sizes = []
    for _ in range(10):
        hundred()
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    with service.read():
        engine.check()
        assert engine.pool.num_free == engine.pool.num_blocks
        assert len(engine.requests) == 50
    assert min(sizes[5:]) - min(sizes[1:5]) < 30_000, sizes
