"""The runner without a model, on its own and in place of one that was recorded."""

from __future__ import annotations

import pytest

from engine import CountingRunner, FakeRunner, Trace, ValidationError
from tests.factories import codes, make_engine, make_request, run_checked

HOT = {"temperature": 1.0}


def conversation(runner, **fields):
    """Replies that later prompts begin with, branches, beams, replies that end themselves, on a tight pool."""
    fields = {"num_blocks": 22, "block_size": 2, "max_num_seqs": 6, "max_num_batched_tokens": 12, **fields}
    engine = make_engine(runner=runner, **fields)
    first = engine.submit(make_request(5, 7, request_id="first"))
    engine.submit(make_request(6, 8, params={"beam_width": 3}, request_id="beams"))
    while engine.requests[first].finish_reason is None:
        engine.step()
    reply = engine.requests[first].outputs[0] if not isinstance(runner, CountingRunner) else None
    return engine, reply


def ask_again(engine, reply):
    prompt = [*range(100, 105), *reply, 7]
    engine.submit(make_request(prompt, 6, params={**HOT, "n": 2}, request_id="second"))
    engine.submit(make_request(6, 9, params={"beam_width": 2}, request_id="more"))
    engine.submit(make_request([3, 4, 5], 20, output_len=6, request_id="short"))
    return run_checked(engine)


@pytest.mark.parametrize("fields", [{}, {"preempt": "swap", "host_blocks": 30}, {"policy": "prefill_first"}])
@pytest.mark.parametrize("prefix", ["none", "hash", "radix"])
def test_a_recorded_run_is_replayed_with_its_hits_and_beams(prefix, fields):
    fields = {**fields, "prefix": prefix}
    engine, reply = conversation(FakeRunner(), **fields)
    records = ask_again(engine, reply)
    seen = {code for record in records for code in codes(record)}
    assert {"FORKED", "FINISHED"} <= seen
    if prefix != "none":
        assert "HIT" in seen
    recorded = Trace.from_json(engine.trace.to_json())
    replay, _ = conversation(CountingRunner(recorded), **fields)
    ask_again(replay, reply)
    assert replay.trace.same_schedule(engine.trace)
    assert [replay.requests[r].outputs for r in replay.requests] == [
        engine.requests[r].outputs for r in engine.requests
    ]
    made_up, _ = conversation(CountingRunner(), **fields)
    ask_again(made_up, reply)
    assert not made_up.trace.same_schedule(engine.trace), "counting alone cannot know the beams"


def test_another_run_is_noticed():
    engine, _ = conversation(FakeRunner())
    other = make_engine(runner=CountingRunner(engine.trace))
    other.submit(make_request(request_id="other"))
    with pytest.raises(ValidationError, match="step 0 is not the one that was recorded"):
        other.step()
