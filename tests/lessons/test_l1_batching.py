"""Lesson 1: what its sentences claim, on the real lengths, by a short schedule that shares no code with the engine."""

import json
from pathlib import Path

import pytest

from app.figures import value_of
from lessons.loader import load
from lessons.model import Lesson

LENGTHS = json.loads((Path(__file__).parents[2] / "data" / "reply_lengths.json").read_text(encoding="utf-8"))["lengths"]


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load("l1_batching", "zh")


@pytest.fixture(scope="module")
def value(lesson):
    return lambda key: value_of(lesson.figures[key].source)


def batches(slots: int) -> list[list[int]]:
    return [LENGTHS[first : first + slots] for first in range(0, len(LENGTHS), slots)]


def continuous(slots: int) -> tuple[int, dict[int, tuple[int, int, int]]]:
    """Steps, and {request: (slot, first step, last step)}, all from 1; the head takes the lowest free slot."""
    free_from, seats = [1] * slots, {}
    for number, length in enumerate(LENGTHS, 1):
        enter = min(free_from)
        slot = free_from.index(enter)
        seats[number] = (slot + 1, enter, enter + length - 1)
        free_from[slot] = enter + length
    return max(free_from) - 1, seats


def test_published_figures(value):
    runs = ("static8", "static16", "continuous8", "continuous16")
    assert [value(f"{run}_steps") for run in runs] == [2116, 1258, 1335, 790]
    assert [round(value(f"{run}_util"), 4) for run in runs] == [0.5871, 0.4938, 0.9306, 0.7863]
    assert (value("count"), value("shortest"), value("longest"), value("total")) == (64, 22, 356, 9939)
    assert [round(value(key)) for key in ("alone", "fit", "together")] == [65, 58, 2304]


@pytest.mark.parametrize("slots", [8, 12, 16, 28, 32])
def test_utilisation_agrees_with_the_short_schedule(value, slots):
    assert value(f"static{slots}_util") == pytest.approx(sum(LENGTHS) / slots / sum(max(b) for b in batches(slots)))
    assert value(f"continuous{slots}_util") == pytest.approx(sum(LENGTHS) / slots / continuous(slots)[0])


def test_the_first_static_batch(value):
    first = sorted(batches(8)[0])
    assert LENGTHS[1] == first[-1] == value("length2") == value("longest")
    assert (value("batch1_second"), value("batch1_alone")) == (first[-2], first[-1] - first[-2]) == (286, 70)
    assert value("queue_after_first") == 56
    assert value("static8_idle") == 8 * 2116 - 9939


def test_request_9_takes_the_slot_of_request_7(value):
    seats = continuous(8)[1]
    assert seats[7] == (7, 1, 85) == (value("slot9"), 1, value("left7"))
    assert seats[9][:2] == (7, 86) == (value("slot9"), value("enter9"))


def test_nothing_is_idle_under_continuous_before_the_queue_is_empty(value):
    steps, seats = continuous(8)
    assert value("last_enter") == seats[64][1]
    busy = [sum(enter <= step <= leave for _, enter, leave in seats.values()) for step in range(1, steps + 1)]
    assert value("first_idle") == next(step for step, n in enumerate(busy, 1) if n < 8) > value("last_enter")


def test_the_answers_of_the_tries(value):
    alone = [sorted(batch)[-1] - sorted(batch)[-2] for batch in batches(8)]
    assert (alone.index(max(alone)), alone.index(min(alone))) == (6, 1)
    assert (value("batch7_alone"), value("batch2_alone")) == (max(alone), min(alone)) == (80, 1)
    assert value("continuous_drop") > value("static_drop")
    assert value("continuous16_steps") < value("static16_steps")


def test_where_batch_borders_fall(value):
    assert sorted(LENGTHS)[-2:] == [LENGTHS[31], LENGTHS[1]] == [value("length32"), value("length2")]
    assert (len(batches(12)[-1]), value("last12_size"), len(LENGTHS) % 16) == (4, 4, 0)
    third = batches(28)[2]
    assert (len(batches(28)), len(third), max(third)) == (3, value("last28_size"), value("last28_steps"))
    assert (len(batches(32)), LENGTHS[31] in batches(32)[0], LENGTHS[31] in batches(28)[1]) == (2, True, True)
    assert value("static28_util") < value("static32_util")
    assert value("static12_util") < value("static16_util")
    rates = [value(f"continuous{slots}_util") for slots in (12, 16, 28, 32)]
    assert rates == sorted(rates, reverse=True)


def test_continuous_batching_needs_no_paging(value):
    assert value("continuous8_max_steps") == value("continuous8_steps")


def test_the_code_it_shows_exists(lesson):
    from importlib import import_module

    for code in lesson.scene("code").code:
        target, _, name = code.object.partition(":")
        thing = import_module(target)
        for part in name.split("."):
            thing = getattr(thing, part)
