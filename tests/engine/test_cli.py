"""The command line: one JSON object, the same bytes twice, exit 2 and one message for bad input."""

import json
import subprocess
import sys

import pytest

from engine import Trace
from engine.cli import main
from tests.factories import PUBLISHED


def run(capsys, *argv):
    status = main(["simulate", *argv])
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.mark.parametrize(
    ("policy", "slots", "steps", "utilisation"),
    PUBLISHED,
)
def test_published_figures(capsys, policy, slots, steps, utilisation):
    argv = ("--workload", "real64", "--policy", policy, "--slots", str(slots), "--json")
    status, out, err = run(capsys, *argv)
    report = json.loads(out)
    assert (status, err, report["steps"], round(report["utilisation"], 4)) == (0, "", steps, utilisation)
    assert report["useful_cells"] == 9939
    assert run(capsys, *argv)[1] == out
    wanted = {"pool_slots", "live", "tail_waste", "reserved", "hole", "free", "peak_blocks", "live_share"}
    assert set(report["kv"]) == wanted | {"live_share_saturated", "block_share"}
    assert set(report["ttft"]) == set(report["tpot"]) == {"mean", "p50", "p95", "max", "unit"}


def test_ttft_and_tpot(capsys, tmp_path):
    path = tmp_path / "w.json"
    path.write_text('[{"output_tokens": 4}, {"output_tokens": 1, "arrival": 2}]')
    report = json.loads(run(capsys, "--workload", str(path), "--slots", "1", "--json")[1])
    assert report["ttft"] == {"mean": 2.0, "p50": 2.0, "p95": 2.9, "max": 3, "unit": "steps"}
    assert report["tpot"]["mean"] == 1.0


def test_refused_requests_are_counted_and_the_run_goes_on(capsys, tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("output_tokens,prompt_tokens,name,extra\n50,4,long,x\n3,4,short,y\n")
    status, out, _ = run(capsys, "--workload", str(path), "--blocks", "2", "--block-size", "4", "--json")
    report = json.loads(out)
    assert (status, report["finished"], report["refused"]) == (0, 1, 1)


def test_more_slots_than_requests_is_noted(capsys, tmp_path):
    path = tmp_path / "w.json"
    path.write_text('{"lengths": [3, 4]}')
    report = json.loads(run(capsys, "--workload", str(path), "--json")[1])
    assert any("slots" in note for note in report["notes"])


@pytest.mark.parametrize("suffix", [".json", ".csv", ".chrome.json"])
def test_trace_is_written(capsys, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    assert run(capsys, "--workload", "uniform:5:1:9:3", "--trace", str(path))[0] == 0
    text = path.read_text()
    if suffix == ".json":
        assert Trace.from_json(text).to_json() == text
    assert len(text) > 200


@pytest.mark.parametrize("policy", ["static", "continuous", "prefill_first"])
@pytest.mark.parametrize("kv", ["paged", "max", "pow2", "oracle"])
def test_every_policy_and_manager(capsys, policy, kv):
    argv = ["--workload", "uniform:20:1:30:1", "--policy", policy, "--kv", kv, "--prompt-tokens", "7", "--budget", "16"]
    report = json.loads(run(capsys, *argv, "--arrival-rate", "0.3", "--watermark", "0.05", "--json")[1])
    parts = sum(report["kv"][k] for k in ("live", "tail_waste", "reserved", "hole", "free"))
    assert report["finished"] == 20
    assert parts == pytest.approx(report["kv"]["pool_slots"])


def test_anchor_clock_counts_seconds(capsys):
    report = json.loads(run(capsys, "--workload", "uniform:5:9:9:1", "--clock", "anchor", "--json")[1])
    assert report["ttft"]["unit"] == "seconds"
    assert 0.015 < report["tpot"]["mean"] < 0.02


BAD_FILES = {
    "broken.json": "[1, 2",
    "text.json": '["many"]',
    "zero.json": "[0]",
    "negative.json": "[-3]",
    "huge.json": "[1000000000000]",
    "float.json": "[1.5]",
    "bool.json": "[true]",
    "empty.json": "[]",
    "scalar.json": "7",
    "null.json": "[null]",
    "deep.json": "[" * 100_000,
    "prompt.json": '[{"output_tokens": 3, "prompt_tokens": 0}]',
    "arrival.json": '[{"output_tokens": 3, "arrival": "soon"}]',
    "nan.json": '[{"output_tokens": 3, "arrival": NaN}]',
    "head.csv": "a,b\n1,2\n",
    "words.csv": "output_tokens\nmany\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(capsys, tmp_path, name):
    path = tmp_path / name
    path.write_text(BAD_FILES[name])
    status, out, err = run(capsys, "--workload", str(path), "--json")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ["--workload", "nowhere.json"],
        ["--workload", "real65"],
        ["--workload", "uniform:3:9"],
        ["--workload", "uniform:3:9:1:0"],
        ["--workload", "uniform:3:1:1000000000000:0"],
        ["--workload", "real64", "--slots", "0"],
        ["--workload", "real64", "--slots", "-1"],
        ["--workload", "real64", "--block-size", "0"],
        ["--workload", "real64", "--blocks", "0"],
        ["--workload", "real64", "--blocks", "1000000000000"],
        ["--workload", "real64", "--prompt-tokens", "0"],
        ["--workload", "real64", "--watermark", "1"],
        ["--workload", "real64", "--watermark", "nan"],
        ["--workload", "real64", "--arrival-rate", "0"],
        ["--workload", "real64", "--arrival-rate", "inf"],
        ["--workload", "real64", "--host-blocks", "-1"],
        ["--workload", "real64", "--kv", "max", "--prefix", "hash"],
        ["--workload", "real64", "--kv", "oracle", "--preempt", "swap"],
        ["--workload", "real64", "--prefix", "snapshot", "--snapshot-tokens", "24"],
        ["--workload", "real64", "--prefix", "snapshot", "--snapshot-tokens", "8"],
        ["--workload", "real64", "--trace", "no/such/folder/x.json"],
    ],
)
def test_bad_arguments(capsys, argv):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "engine", "simulate", "--workload", "real64", "--slots", "none"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    code = "import engine, engine.cli, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
