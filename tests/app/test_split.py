"""Lesson 2's four runs: the page's numbers are the command line's, and each step's parts add up to the pool."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.lanes import SpecError
from app.routes import answer
from app.split import PARTS, RULES, picture, run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shown() -> dict:
    status, body = answer({}, "/split")
    assert status == 200
    return json.loads(gzip.decompress(body))


@pytest.mark.parametrize("rule", RULES)
def test_the_command_line_prints_the_same(shown, rule):
    made = shown["rules"][rule]
    command = shlex.split(made["command"])
    done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    for key in ("live_share", "live_share_saturated"):
        assert report["kv"][key] == made[key]
    assert {part: report["kv"][part] for part in PARTS} == made["mean"]
    assert (report["steps"], report["preemptions"], report["refused"]) == (made["steps"], made["preemptions"], 0)


@pytest.mark.parametrize("rule", RULES)
def test_somebody_waits_and_every_step_adds_up(shown, rule):
    made = shown["rules"][rule]
    assert any(made["waiting"])
    assert len(made["waiting"]) == made["steps"]
    for step in range(made["steps"]):
        assert sum(made["parts"][part][step] for part in PARTS) == shown["pool"]
    means = {part: sum(made["parts"][part]) / made["steps"] for part in PARTS}
    assert means == pytest.approx(made["mean"])
    busy = [live for live, waiting in zip(made["parts"]["live"], made["waiting"], strict=True) if waiting]
    assert made["live_share_saturated"] == pytest.approx(sum(busy) / len(busy) / shown["pool"])


def test_the_order(shown):
    shares = [shown["rules"][rule]["live_share"] for rule in RULES]
    assert shares == sorted(shares)
    busy = [shown["rules"][rule]["live_share_saturated"] for rule in RULES]
    assert busy == sorted(busy)
    steps = [shown["rules"][rule]["steps"] for rule in RULES]
    assert steps == sorted(steps, reverse=True)


def test_every_reply_is_written_under_every_rule():
    for rule in RULES:
        assert run(rule)["report"]["finished"] == 64


@pytest.mark.parametrize("params", [{"limit": "100"}, {"pool": "0"}, {"prompt": "x"}])
def test_only_what_is_offered(params):
    with pytest.raises(SpecError):
        picture(params)
