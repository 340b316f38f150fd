"""The board is two real engines: its frames are what they say, and a list of actions always gives the same frames."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.board import MAX_ACTIONS, MAX_REQUESTS, SCENE, SIDES, Action, Board, Size, Spec, frames
from app.lanes import SpecError
from app.routes import answer
from engine import CountingRunner, Engine, EngineConfig, Request, SamplingParams
from lessons.words import words

PARTS = ("live", "tail_waste", "reserved", "hole", "free")


def board(acts: str = SCENE, **params: str) -> Board:
    return Board(Spec.parse({"acts": acts, **params}))


def cells(side: dict) -> list[tuple[str, int]]:
    return [(state, owner) for state, owner, count in side["cells"] for _ in range(count)]


def tables(side: dict) -> dict[int, list[int]]:
    return {n: blocks for n, blocks, _ in side["tables"]}


def test_the_scene():
    played = board().frames
    live = [[frame[side]["usage"]["live"] for side in SIDES] for frame in played]
    assert live == [[0, 0], [25, 25], [28, 28], [31, 31], [25, 25], [25, 25], [27, 36]]
    last = played[-1]
    assert [round(100 * last[side]["usage"]["live_share"], 2) for side in SIDES] == [56.25, 75.0]
    assert ["NO_RUN", 4] in [event[1:3] for event in last["contiguous"]["events"]]
    assert last["contiguous"]["requests"][3]["why"] == ["NO_RUN", {"largest_run": 10, "needed": 12, "free": 16}]
    assert last["contiguous"]["runs"] == [[16, 10, 1], [42, 6, 1]]
    assert tables(last["paged"])[4] == [11, 8, 4]
    assert last["paged"]["usage"] | {"live_share": 0} == {
        "live": 36,
        "tail_waste": 8,
        "reserved": 0,
        "hole": 0,
        "free": 4,
        "pool_slots": 48,
        "live_share": 0,
    }
    assert [event[1:3] for event in played[4]["paged"]["events"]] == [["FINISHED", 2]]


@pytest.mark.parametrize("kv", ["max", "paged"])
def test_the_scene_is_the_engines_without_a_board(kv):
    size = 4 if kv == "paged" else 1
    engine = Engine(EngineConfig(48 // size, block_size=size, max_num_seqs=12, kv=kv), CountingRunner())
    made = board()
    side = "paged" if kv == "paged" else "contiguous"

    def submit(number, prompt, max_tokens):
        engine.submit(Request(tuple(range(prompt)), SamplingParams(max_tokens=max_tokens), request_id=str(number)))

    for number, prompt, max_tokens in ((1, 9, 7), (2, 6, 4), (3, 10, 6)):
        submit(number, prompt, max_tokens)
    for step in range(1, 6):
        if step == 5:
            submit(4, 9, 3)
        engine.step()
        frame = made.frames[step + (step == 5)][side]
        assert tables(frame) == {int(k.partition("/")[0]): v for k, v in engine.block_tables().items()}


def plays(draw) -> tuple[Spec, list[Action]]:
    pool = draw(st.sampled_from((16, 48, 64)))
    size = st.integers(1, pool - 1).flatmap(lambda n: st.builds(Size, st.just(n), st.integers(n + 1, pool)))
    act = st.one_of(
        st.just(Action("s")),
        st.builds(lambda n: Action("f", n), st.integers(0, 9)),
        size.map(lambda s: Action("a", 0, s)),
    )
    spec = Spec(
        opening=tuple(draw(st.lists(size, min_size=1, max_size=5))),
        pool=pool,
        block_size=draw(st.sampled_from((1, 2, 4, 16))),
        seats=draw(st.integers(1, 12)),
        watermark=draw(st.sampled_from((0.0, 0.25))),
        budget=draw(st.sampled_from((None, 4, 16))),
    )
    return spec, draw(st.lists(act, max_size=24))


@given(st.composite(plays)())
@settings(max_examples=60)
def test_every_frame_is_what_the_engine_says(play):
    spec, actions = play
    made = Board(spec)
    history: dict[tuple[str, int], int] = {}
    for action in [None, *actions]:
        frame = made.frames[-1] if action is None else made.act(action)
        for name, side in made.sides.items():
            side.engine.check()
            shown, size = frame[name], side.engine.config.block_size
            assert tables(shown) == {int(k[:-2]): v for k, v in side.engine.block_tables().items()}
            drawn = cells(shown)
            usage = shown["usage"]
            assert len(drawn) == usage["pool_slots"] == spec.pool // size * size
            for part in PARTS:
                assert sum(state == part for state, _ in drawn) == usage[part], part
            owners = {slot // size: owner for slot, (_, owner) in enumerate(drawn) if owner}
            assert owners == {block: n for n, blocks in tables(shown).items() for block in blocks}
            for block, what, request, _ in shown["changes"]:  # the history of every block adds up to its owner now
                if what == "taken":
                    assert history.get((name, block), 0) == 0
                    history[name, block] = request
                elif what == "freed":
                    assert history[name, block] == request
                    history[name, block] = 0
                else:
                    assert (what, history[name, block]) == ("written", request)
            assert {key[1]: n for key, n in history.items() if key[0] == name and n} == owners


def test_two_hundred_actions_and_two_hundred_undos_return_to_the_start_byte_for_byte():
    acts = ["s", "a3:9", "s", "f1", "s", "s", "a5:6", "s", "f2", "s"] * 2 + ["s"] * 180
    whole = Board(Spec.parse({"acts": ",".join(acts)})).frames
    assert len(whole) == 201
    for done in range(200, -1, -1):
        shorter = Board(Spec.parse({"acts": ",".join(acts[:done])})).frames
        assert json.dumps(shorter[-1]) == json.dumps(whole[done])
    assert json.dumps(shorter) == json.dumps(board("").frames)


def test_the_list_reads_with_and_without_repetition():
    one, other = Spec.parse({"acts": "s,s,s,f2,a9:12"}), Spec.parse({"acts": "s3,f2,a9:12"})
    assert one.actions == other.actions
    assert [str(action) for action in one.actions] == ["s", "s", "s", "f2", "a9:12"]
    assert Spec.parse({"acts": "-"}).actions == ()


def test_what_is_not_there_changes_nothing():
    before, after = board("s2").frames[-1], board("s2,f9").frames[-1]
    for side in SIDES:
        assert after[side]["events"] == after[side]["changes"] == []
        assert after[side]["cells"] == before[side]["cells"]
    over = board("s9,s,s").frames
    assert over[-1]["paged"]["cells"] == [["free", 0, 48]]
    assert not over[-1]["paged"]["more"]


def test_a_block_keeps_its_history():
    changes = [change for frame in board().frames for change in frame["paged"]["changes"] if change[0] == 4]
    assert [(what, n) for _, what, n, _ in changes] == [
        *[("taken", 2), ("written", 2)] * 1,
        *[("written", 2)] * 2,
        *[("freed", 2), ("taken", 4), ("written", 4)],
    ]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"seats": "2"}, "SLOTS"),
        ({"watermark": "0.5"}, "WATERMARK"),
        ({"budget": "8"}, "BUDGET"),
        ({"pool": "32"}, "NO_BLOCKS"),
    ],
)
def test_the_log_says_why_nobody_is_admitted_on_the_paged_side(rule, code):
    events = [event[1] for event in board("s", open="9:16,6:10,10:16,9:12,9:12", **rule).frames[-1]["paged"]["events"]]
    assert code in events


@pytest.mark.parametrize(
    ("params", "code", "detail"),
    [
        ({"open": "9:16,6:6"}, "board_limit", {"i": 2, "limit": 6, "length": 6}),
        ({"open": "9:16,6:4"}, "board_limit", {"i": 2, "limit": 4, "length": 6}),
        ({"open": "0:4"}, "board_length", {"i": 1, "word": "0", "max": 47}),
        ({"open": ":"}, "board_length", {"i": 1, "word": "", "max": 47}),
        ({"open": "x:4"}, "board_length", {"i": 1, "word": "x", "max": 47}),
        ({"open": "4"}, "board_limit_word", {"i": 1, "word": "", "min": 5, "max": 48}),
        ({"open": "9:-3"}, "board_limit_word", {"i": 1, "word": "-3", "min": 10, "max": 48}),
        ({"open": "48:49"}, "board_length", {"i": 1, "word": "48", "max": 47}),
        ({"open": "9:999999999"}, "board_pool", {"i": 1, "limit": "999999999", "pool": 48}),
        ({"open": "9:" + "9" * 400}, "board_limit_word", {"i": 1, "word": "9" * 20, "min": 10, "max": 48}),
        ({"open": " ,"}, "board_empty", {}),
        ({"open": ",".join(["1:2"] * 25)}, "board_many", {"max": MAX_REQUESTS}),
        ({"acts": "a9:60"}, "board_pool", {"i": 4, "limit": "60", "pool": 48}),
        ({"acts": "s,a9:12,a9:3"}, "board_limit", {"i": 5, "limit": 3, "length": 9}),
        ({"acts": ",".join(["a1:2"] * 22)}, "board_many", {"max": MAX_REQUESTS}),
        ({"acts": "s999"}, "board_actions", {"max": MAX_ACTIONS}),
        ({"acts": "s,<script>"}, "query", {"name": "acts"}),
        ({"pool": "7"}, "query", {"name": "pool"}),
        ({"b": "3"}, "query", {"name": "b"}),
        ({"budget": "-1"}, "query", {"name": "budget"}),
        ({"since": "x"}, "query", {"name": "since"}),
    ],
)
def test_bad_input_is_answered_with_a_reason_in_both_languages(params, code, detail):
    with pytest.raises(SpecError) as error:
        frames(params)
    assert (error.value.code, error.value.detail) == (code, detail)
    status, body = answer(params, "/board")
    assert (status, json.loads(gzip.decompress(body))) == (400, {"error": {"code": code, "detail": detail}})
    for lang in ("zh", "en"):
        words(lang).fill(f"errors.{code}", **detail)  # KeyError if a placeholder is not filled


def test_the_route_gives_only_what_is_asked_for():
    status, body = answer({"acts": "s4", "since": "4"}, "/board")
    assert status == 200
    assert json.loads(gzip.decompress(body))["frames"] == json.loads(json.dumps(board("s4").frames[4:]))
