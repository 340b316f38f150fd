"""`python -m engine bench` on the small model: every way makes all tokens, and the table is made of the report."""

from __future__ import annotations

import json

from engine.cli import main
from engine.model.bench import WAYS, table
from engine.model.generate import DEFAULT_MODEL


def test_bench(capsys):
    assert main(["bench", "--rounds", "1", "--requests", "3", "--json", "--model", str(DEFAULT_MODEL)]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    speed = report["tokens_per_second"]
    assert tuple(speed) == WAYS
    assert report["over_transformers"] == speed[WAYS[3]] / speed[WAYS[2]]
    assert report["step_over_floor"] > 0
    assert 0 <= report["others_busy"] <= 1
    assert f"| this engine | {speed[WAYS[3]]:,.1f} |" in table(report)


def test_bad_input(capsys):
    assert main(["bench", "--rounds", "0"]) == 2
    assert "--rounds must be at least 1" in capsys.readouterr().err
