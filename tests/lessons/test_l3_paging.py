"""Lesson 3: what its sentences claim, against the board's engines and by arithmetic that shares no code with them."""

from __future__ import annotations

from math import ceil

import pytest

from app.board import DEFAULTS, SCENE, SIDES, Board, Spec
from app.code import excerpt
from app.figures import value_of
from lessons.loader import load
from lessons.model import Lesson


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load("l3_paging", "zh")


@pytest.fixture(scope="module")
def value(lesson):
    return lambda key: value_of(lesson.figures[key].source)


def played(state) -> list[dict]:
    """Frames of a scene, try or misconception."""
    return Board(Spec.parse({k: str(v) for k, v in state.items() if k in (*DEFAULTS, "acts")})).frames


def codes(frame, side, number=None) -> list[str]:
    return [event[1] for event in frame[side]["events"] if number in (None, event[2])]


def request(frame, side, number) -> dict:
    return frame[side]["requests"][number - 1]


def test_the_scenes_walk_through_the_one_scene(lesson):
    story = [scene for scene in lesson.scenes if scene.id != "exercise"]
    assert {scene.state["acts"] for scene in story} == {SCENE}
    assert [scene.state.get("at") for scene in story[:6]] == [0, 1, 3, 4, 5, None]


def test_published_figures(value):
    assert (value("share_c"), value("share_p")) == (27 / 48, 36 / 48)
    assert (value("unused"), value("run"), value("limit4")) == (16, 10, 12)
    assert [value(f"t{k}") for k in range(3)] == [11, 8, 4]
    assert (value("ex_blocks"), value("ex_waste")) == (11, 11)
    assert (value("fifty_blocks"), value("fifty_last")) == (4, 2)


def test_the_first_step_and_the_hatching(value):
    assert value("live1") == 9 + 6 + 10
    assert value("reserved1") == 16 + 10 + 16 - 25
    assert value("waste1") == sum(-n % 4 for n in (9, 6, 10))
    assert (value("free1c"), value("free1p")) == (48 - 42, 48 - 25 - value("waste1"))
    assert value("reserved3") == value("reserved1") - 2 * 3
    assert value("waste3") == sum(-n % 4 for n in (11, 8, 12))


def test_the_guess_is_what_the_engine_does(lesson):
    (guess,) = lesson.scene("guess").predictions
    frame = played({"acts": SCENE})[-1]
    admitted = {side: "ADMITTED" in codes(frame, side, 4) for side in SIDES}
    assert admitted == {"contiguous": False, "paged": True}
    assert [choice.text for choice in guess.choices if choice.right] == ["只有右边"]


def test_the_exercise(lesson, value):
    state = lesson.scene("exercise").state
    lengths = [7, 16, 31, 48, 63]
    assert [int(pair.split(":")[0]) for pair in state["open"].split(",")] == lengths
    tables = [blocks for _, blocks, _ in played(state)[-1]["paged"]["tables"]]
    assert tables == [[0], [1], [2, 3], [4, 5, 6], [7, 8, 9, 10]]
    waste = [-n % 16 for n in lengths]
    assert (sum(waste), max(waste), waste.count(0)) == (value("ex_waste"), value("ex_first"), 2)
    for length in lengths:
        assert f"`{length}`" in lesson.scene("exercise").section.text


def tries(lesson) -> dict:
    return {item.id: item.state for scene in lesson.scenes for item in scene.tries}


def test_request_4_waits_for_request_3(lesson):
    frames = played(tries(lesson)["until"])
    left = next(i for i, frame in enumerate(frames) if "FINISHED" in codes(frame, "contiguous", 3))
    assert frames[left]["contiguous"]["runs"][-1][:2] == [16, 32]
    assert codes(frames[left], "contiguous", 4) == ["NO_RUN"]
    assert codes(frames[left + 1], "contiguous", 4) == ["ADMITTED"]


def test_a_higher_limit_lets_request_4_in_by_luck(lesson):
    state = tries(lesson)["limits"]
    lengths = [[pair.split(":")[0] for pair in text.split(",")] for text in (state["open"], DEFAULTS["open"])]
    assert lengths[0] == lengths[1]
    frame, scene = played(state)[-1], played({"acts": SCENE})[-1]
    assert codes(frame, "contiguous", 4) == ["ADMITTED"]
    assert frame["paged"]["tables"] == scene["paged"]["tables"]


def test_the_last_block_of_request_4_was_request_2s(lesson):
    state = tries(lesson)["reuse"]
    frames = played(state)
    block = int(state["block"][1:])
    assert frames[-1]["paged"]["tables"][-1][:2] == [4, [11, 8, block]]
    users = [n for frame in frames for b, what, n, _ in frame["paged"]["changes"] if (b, what) == (block, "taken")]
    assert users == [2, 4]


def test_length_50_takes_a_block_when_its_last_is_full(lesson):
    frames = played(tries(lesson)["fifty"])
    held = [(request(f, "paged", 1)["written"], len(f["paged"]["tables"][0][1])) for f in frames[1:]]
    assert held[0] == (50, 4)
    assert all(blocks == ceil(n / 16) for n, blocks in held)
    assert [n for (n, blocks), (_, before) in zip(held[1:], held, strict=False) if blocks > before] == [65]


def myths(lesson) -> dict:
    return {myth.id: myth.state for myth in lesson.scene("myth").misconceptions}


def test_the_experiments_refute_the_misconceptions(lesson, value):
    free = played(myths(lesson)["free"])[1]
    assert codes(free, "paged", 3) == ["SLOTS"]
    assert free["paged"]["usage"]["free"] > 24
    same = played(myths(lesson)["smaller"])[4]
    assert same["contiguous"]["usage"]["live"] == same["paged"]["usage"]["live"]
    coarse = played(myths(lesson)["none"])[-1]["paged"]
    assert sum(len(blocks) for _, blocks, _ in coarse["tables"]) == 3
    assert coarse["usage"]["free"] == 0
    assert coarse["usage"]["tail_waste"] > value("waste6") == 8


def test_the_task_can_be_done_on_both_sides(lesson):
    (goal,) = lesson.scene("tries").goals
    assert goal.quantity == "paged.live_share"
    right = played({"open": "12:14,12:14,12:14,11:13", "acts": "s"})[-1]
    assert right["paged"]["usage"]["live_share"] == 47 / 48 >= goal.at_least
    left = played({"open": "45:48", "acts": "s2"})[-1]  # a limit close to the length
    assert left["contiguous"]["usage"]["live_share"] == 46 / 48 >= goal.at_least


def test_block_sizes(value):
    assert value("table_1") == 356
    assert value("table_16") == ceil(356 / 16)
    assert 5 < value("waste_16") < 10  # about half a block
    assert 55 < value("waste_128") < 90


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_figure_resolves_and_the_code_exists(lang):
    lesson = load("l3_paging", lang)
    for figure in lesson.figures.values():
        assert figure.source is None or value_of(figure.source) >= 0
    for code in lesson.scene("code").code:
        assert excerpt(code.object)["text"]
