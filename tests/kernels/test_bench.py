"""The benchmarks run (dry, interpreted), their floors are right, and their tables land between the markers."""

import math

import pytest
import torch

from kernels import bench, timing
from kernels.__main__ import main
from kernels.results import Table, Target, shown, write
from tests.kernels import bench_steps, gpu


@pytest.mark.kernel
@pytest.mark.skipif(torch.cuda.is_available(), reason="no GPU is needed for this one, and there it would take minutes")
def test_dry_run(capsys, tmp_path):
    file = tmp_path / "RESULTS.md"
    file.write_text("<!-- kernels -->\nNot measured yet.\n<!-- /kernels -->\n")
    assert main(["bench", "--dry-run", "--results", str(file)]) == 0
    out = capsys.readouterr().out
    assert "nothing is measured" in out
    assert "0 cases wrong" in out
    assert ": met" not in out
    assert "MISSED" not in out
    assert file.read_text() == "<!-- kernels -->\nNot measured yet.\n<!-- /kernels -->\n"
    assert main(["bench"]) == 2
    assert "use --dry-run" in capsys.readouterr().err


@pytest.mark.kernel
@pytest.mark.skipif(torch.cuda.is_available(), reason="no GPU is needed for this one")
def test_engine_steps_dry_run(capsys):
    assert bench_steps.main(["--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "not measured" in out
    assert "3 sequences of 5" in out


@pytest.mark.parametrize(
    ("shape", "microseconds"), list(zip(bench.DECODE, (250, 62.5, 31.2, 125, 999, 31.3), strict=True)), ids=str
)
def test_floors(shape, microseconds):
    """At 4.3 TB/s, of the KV, the query and the output."""
    assert shape.moved(1) / 4.3e12 * 1e6 == pytest.approx(microseconds, rel=5e-3)


def test_partial_results_are_counted():
    shape = bench.Shape(2, 1000)
    assert shape.moved(4) - shape.moved(1) == 8 * 2 * 32 * 4 * 129


def test_cliffs():
    batches, lengths = (1, 2, 4), (256, 512)
    flat = {(b, n): b * n * 0.1 for b in batches for n in lengths}
    assert bench.cliffs(flat, batches, lengths) == (pytest.approx(1), 1)
    assert bench.cliffs({**flat, (4, 512): 2 * flat[4, 512]}, batches, lengths)[0] == pytest.approx(2)
    assert bench.cliffs({**flat, (4, 512): flat[4, 512] / 2}, batches, lengths)[0] == pytest.approx(2)
    small = {(1, 256): 9.0, (2, 256): 6.0, (1, 512): 10.0}
    assert bench.cliffs(small, batches, lengths) == (1, pytest.approx(2 / 3))
    assert all(map(math.isnan, bench.cliffs({(1, 256): math.nan}, batches, lengths)))


def test_tables_land_between_their_markers(tmp_path):
    file = tmp_path / "RESULTS.md"
    file.write_text("# Head\n<!-- a -->\nold\n<!-- /a -->\nbetween\n<!-- b -->\nstays\n<!-- /b -->\nend\n")
    table = Table("Title", ["case", "µs"])
    table.add(["one", 250.4])
    table.add(["two", float("nan")], wrong=True)
    targets = [Target("x", 0.93, 0.9, at_least=True), Target("y", 1.2, 1.05), Target("z", float("nan"), 1)]
    write(file, "a", "some GPU", [table], targets)
    text = file.read_text()
    assert "old" not in text
    assert "stays" in text
    assert "| one  | 250 |" in text
    assert "| two  | —   |" in text
    assert [line.split(": ")[-1] for line in text.splitlines() if line[:2] == "- "] == ["met", "MISSED", "not measured"]
    assert table.wrong == 1
    write(file, "a", "other", [], [])
    assert "some GPU" not in file.read_text()
    with pytest.raises(ValueError, match="needs the lines"):
        write(file, "c", "", [], [])


def test_numbers():
    assert [shown(x) for x in (0.9312, 31.26, 1234.5, 4.1e-3, 7, "x")] == [
        "0.931",
        "31.3",
        "1,234",
        "4.1e-03",
        "7",
        "x",
    ]


def test_results_file_has_the_markers():
    text = (gpu.ROOT / gpu.RESULTS).read_text(encoding="utf-8")
    for name in ("kernels", "engine"):
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1


def test_stages():
    assert [name for name, _ in gpu.stages(True)] == [name for name, _ in gpu.stages(False)]
    assert all("--dry-run" not in arguments for _, arguments in gpu.stages(True))
    assert timing.sets_needed(10, "cpu") == 1
