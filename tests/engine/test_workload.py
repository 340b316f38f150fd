"""Workloads: the real lengths, typed lists, arrivals, prefixes."""

import random

import pytest

from engine import ValidationError
from engine.workload import WorkItem, Workload, from_text, one_long, parse_workload, real64, uniform


def test_real64():
    lengths = real64().lengths
    assert (len(lengths), min(lengths), max(lengths), sum(lengths)) == (64, 22, 356, 9939)


def test_uniform_is_the_documented_draw():
    r = random.Random(7)
    assert uniform(5, 2, 9, 7).lengths == [r.randint(2, 9) for _ in range(5)]
    assert parse_workload("uniform:5:2:9:7").lengths == uniform(5, 2, 9, 7).lengths


@pytest.mark.parametrize("text", ["12, 40, 7", "12 40\n7", "12，40、7", " 12;40；7 "])
def test_typed_lists(text):
    assert from_text(text).lengths == [12, 40, 7]


@pytest.mark.parametrize(
    "text", ["", "  ,", "12, x", "0", "-4", "1.5", "1e3", "9" * 30, "<script>alert(1)</script>", "١٢"]
)
def test_bad_typed_lists(text):
    with pytest.raises(ValidationError) as caught:
        from_text(text)
    assert len(str(caught.value)) < 200


def test_poisson_arrivals_are_seeded_and_average_the_rate():
    a, b = (uniform(2000, 1, 2).with_arrivals(0.5, seed=4) for _ in range(2))
    assert a == b
    assert 1800 < max(i.arrival for i in a.items) / 2 < 4400
    assert [i.arrival for i in a.items] == sorted(i.arrival for i in a.items)


def test_bursts():
    assert [i.arrival for i in one_long(5).with_bursts(2, 10).items] == [0, 0, 10, 10, 20]


def test_prompts_are_unique_but_for_shared_prefixes():
    items = (WorkItem(1, prompt_tokens=6, prefix_id="s", prefix_tokens=4),) * 2 + (WorkItem(1, prompt_tokens=6),)
    a, b, c = (r.prompt_token_ids for r in Workload(items).requests())
    assert a[:4] == b[:4]
    assert len({*a[4:], *b[4:], *c}) == 10
