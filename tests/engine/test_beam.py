"""Beam search: the rules alone, on staged probabilities, on shared blocks, and through the engine on tight pools."""

import pytest

from engine import CapacityError, FakeRunner, ValidationError
from engine.beam import Beams
from engine.plan import Code
from engine.runner import Candidate
from tests.factories import codes, make_counting_engine, make_engine, make_request, run_checked


def beams(width, **params):
    return {"beam_width": width, **params}


def test_a_beam_may_leave_several_children_or_none():
    search = Beams(2, max_tokens=3)
    first = search.advance([()], [[Candidate(7, -0.1), Candidate(8, -1.0), Candidate(9, -2.0), Candidate(3, -5.0)]])
    assert [(b.parent, b.token) for b in first] == [(0, 7), (0, 8)]
    both = search.advance(
        [(7,), (8,)], [[Candidate(1, -0.2), Candidate(2, -0.3)], [Candidate(1, -0.1), Candidate(2, -9.0)]]
    )
    assert [(b.parent, b.token) for b in both] == [(0, 1), (0, 2)]
    assert search.scores == pytest.approx([-0.3, -0.4])
    assert search.advance([(7, 1), (7, 2)], [[Candidate(4, -1.0)], [Candidate(5, -0.1)]]) == []
    assert search.over
    assert [done.tokens for done in search.finished] == [(7, 2, 5)]  # as many are looked at as one beam offers


def test_finished_beams_are_kept_with_their_score_per_token():
    search = Beams(1, max_tokens=9)
    search.advance([()], [[Candidate(5, -0.2), Candidate(6, -0.9)]])
    going = search.advance([(5,)], [[Candidate(0, -0.1, is_eos=True), Candidate(6, -0.2)]])
    assert going == []  # −0.3 / 2 is kept; −0.4 / 2 cannot beat it
    assert search.finished[0].score == pytest.approx(-0.15)
    assert (search.finished[0].tokens, search.finished[0].reason) == ((5, 0), "stop")


def staged(tokens):
    """Three tokens; what follows 2 is likelier than what follows 1, so the second beam overtakes the first."""
    last = tokens[-1]
    if last == 1:
        return {4: -2.0, 5: -2.1, 6: -2.2, 7: -2.3}
    return {1: -0.5, 2: -0.6, 3: -3.0, 8: -4.0}


def test_tables_fork_and_die():
    engine = make_engine(num_blocks=20, block_size=2, runner=FakeRunner(logprobs=staged))
    engine.submit(make_request([9, 9, 9], 4, params=beams(2), request_id="r"))
    first = engine.step()
    engine.check()
    assert codes(first, "r") == ["ADMITTED", "FORKED"]
    assert engine.block_tables() == {"r/0": [0, 1], "r/1": [0, 1]}
    assert engine.requests["r"].outputs == [[1], [2]]
    second = engine.step()
    engine.check()
    assert second.plan.copies == ((1, 2),)
    assert engine.requests["r"].outputs == [[2, 1], [2, 2]]  # both children of the second beam
    assert engine.block_tables() == {"r/0": [0, 1], "r/1": [0, 1]}
    assert engine.pool.ref(1) == 2
    assert engine.pool.is_free(2)
    run_checked(engine)
    state = engine.requests["r"]
    assert state.finish_reasons == ["length", "length"]
    assert state.scores == sorted(state.scores, reverse=True)
    assert engine.pool.num_free == 20


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(
    "fields",
    [
        {"num_blocks": 40},
        {"prefix": "hash"},
        {"prefix": "radix"},
        {"preempt": "swap", "host_blocks": 9},
        {"max_num_batched_tokens": 3},
        {"policy": "static"},
        {"policy": "prefill_first"},
    ],
    ids=str,
)
def test_disturbed_or_not_the_beams_are_the_same(width, fields):
    alone = make_engine(num_blocks=100, block_size=3)
    rid = alone.submit(make_request(7, 9, params=beams(width)))
    run_checked(alone)
    engine = make_engine(**{"num_blocks": 21, "block_size": 3, "max_num_seqs": 6, **fields})
    others = [engine.submit(make_request(range(50, 55), 20)) for _ in range(2)]
    same = [engine.submit(make_request(7, 9, params=beams(width))) for _ in range(2)]
    run_checked(engine)
    for name in same:
        assert engine.requests[name].outputs == alone.requests[rid].outputs
        assert engine.requests[name].scores == alone.requests[rid].scores
    assert all(engine.requests[name].finish_reason == "length" for name in others)
    assert engine.pool.num_free == engine.config.num_blocks


def test_beams_are_preempted_and_come_back_together():
    for fields in ({}, {"preempt": "swap", "host_blocks": 30}):
        engine = make_engine(num_blocks=18, block_size=2, max_num_seqs=6, **fields)
        for _ in range(2):
            engine.submit(make_request(range(50, 58), 16))
        engine.submit(make_request(5, 8, params=beams(3), request_id="beam"))
        records = run_checked(engine)
        gone = [r for r in records if "PREEMPTED_BY" in codes(r, "beam")]
        back = [r for r in records if "RESUMED" in codes(r, "beam")]
        assert gone
        for record in gone:
            assert codes(record, "beam").count("PREEMPTED_BY") == 3
        for record in back:
            assert codes(record, "beam").count("RESUMED") == 3
        trace = type(engine.trace).from_json(engine.trace.to_json())
        assert list(trace.records()) == records


def test_aborting_a_search_ends_all_its_beams_and_one_beam_cannot_be_aborted():
    engine = make_engine(num_blocks=30)
    engine.submit(make_request(5, 8, params=beams(3), request_id="r"))
    engine.step()
    with pytest.raises(ValidationError, match="whole request"):
        engine.abort("r/1")
    engine.abort("r")
    engine.check()
    assert engine.pool.num_free == 30
    assert engine.requests["r"].finish_reasons == ["abort"] * 3
    assert engine.step() is None


def test_one_token_replies():
    engine = make_engine(num_blocks=30)
    engine.submit(make_request(5, 1, params=beams(3), request_id="r"))
    run_checked(engine)
    assert len({tuple(output) for output in engine.requests["r"].outputs}) == 3


def test_what_cannot_run_is_refused():
    for fields in ({"max_num_seqs": 2}, {"num_blocks": 5}):
        with pytest.raises(CapacityError) as caught:
            make_engine(**fields).submit(make_request(4, 5, params=beams(3)))
        assert caught.value.reason == "TOO_BIG"
    for params in ({"temperature": 1.0}, {"n": 2}):
        with pytest.raises(ValidationError):
            make_request(4, 4, params=beams(2, **params))
    with pytest.raises(ValidationError):
        make_request(4, 4, params=beams(0))
    with pytest.raises(ValidationError):
        make_engine(kv="max").submit(make_request(4, 4, params=beams(2)))


def test_blocks_are_saved_against_no_sharing():
    engine = make_counting_engine(num_blocks=100)
    engine.submit(make_request(32, 8, params=beams(4)))
    records = run_checked(engine)
    held = sum(r.usage.held_blocks for r in records)
    apart = sum(len(table) for r in records for table in r.plan.block_tables.values())
    assert held < 0.6 * apart
    assert any(e.code is Code.COW_COPY for r in records for e in r.events)
