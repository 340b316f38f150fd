"""The triton backend under the engine: the torch backend's greedy tokens, whatever the tables and the schedule do."""

import contextlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import Gemma2Config, LlamaConfig

from engine import Engine, EngineConfig, Request, SamplingParams
from engine.cli import main
from engine.errors import ModelError
from engine.model import triton_backend
from engine.model.attention import KVPool
from engine.model.generate import DEFAULT_MODEL
from engine.model.loading import LoadedModel
from engine.model.runner import ModelRunner, load_model
from engine.model.triton_backend import DecodeGraph, TritonBackend, TritonStep, bucket
from engine.plan import StepPlan
from kernels.errors import KernelError
from tests.engine.model import layouts
from tests.factories import run_checked
from tests.kernels.conftest import DEVICE

PROMPTS = [[11, 7, 5, 3, 2, 19, 23, 1, 90, 14, 15], [400, 401, 402], [77] * 7]


@pytest.fixture(scope="module")
def plain() -> LoadedModel:
    """For the torch backend, on the CPU."""
    return load_model(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def tiny(plain) -> LoadedModel:
    """For the triton backend: on a GPU, if there is one."""
    return plain if DEVICE == "cpu" else load_model(DEFAULT_MODEL, device=DEVICE)


def replies(loaded, backend, max_tokens=6, prompts=PROMPTS, **config):
    """Every prompt's tokens, the engine checked after each step, and what the runs were."""
    settings = {"num_blocks": 24, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 8, **config}
    engine = Engine(EngineConfig(**settings), ModelRunner(loaded, backend=backend))
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    ids = [engine.submit(Request(prompt_token_ids=tuple(prompt), params=params)) for prompt in prompts]
    records = run_checked(engine)
    return [engine.requests[rid].outputs[0] for rid in ids], records, engine


@pytest.mark.kernel
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_blocks": 7},
        {"kv": "max", "num_blocks": 12},
        {"block_size": 1, "num_blocks": 48},
        {"prefix": "hash", "max_num_seqs": 2},
    ],
    ids=["chunks", "preempted", "contiguous", "b1", "prefix"],
)
def test_greedy_tokens_are_the_torch_backends(tiny, plain, config):
    expected, _, _ = replies(plain, "torch", **config)
    found, records, _ = replies(tiny, "triton", **config)
    assert found == expected
    plans = [record.plan for record in records]
    assert any(max(plan.num_scheduled_tokens.values()) > 1 for plan in plans)
    assert any(set(plan.num_scheduled_tokens.values()) == {1} for plan in plans)
    if not config:
        mixed = [plan for plan in plans if len(set(plan.num_scheduled_tokens.values())) > 1]
        assert any(1 in plan.num_scheduled_tokens.values() for plan in mixed)
        assert any(plan.num_computed_tokens[s] for plan in plans for s, n in plan.num_scheduled_tokens.items() if n > 1)
    if config.get("num_blocks") == 7:
        assert any("PREEMPTED_BY" in str(event.code) for record in records for event in record.events)


@pytest.mark.kernel
def test_a_model_of_transformers_without_the_lean_decoder(plain):
    loaded = load_model(DEFAULT_MODEL, pack=False, device=DEVICE)
    assert loaded.decoder is None
    assert replies(loaded, "triton", 3)[0] == replies(plain, "torch", 3)[0]


@pytest.mark.kernel
def test_copied_blocks(tiny):
    backend = TritonBackend(tiny, ModelRunner(tiny)._forward)
    pools = [KVPool(tiny.layers, 6, 4, torch.float32, torch.device(DEVICE)) for _ in range(2)]
    for mine, plain in zip((*pools[0].keys, *pools[0].values), (*pools[1].keys, *pools[1].values), strict=True):
        plain.copy_(mine.normal_())
    for pairs in (((0, 3), (1, 4)), ((0, 1), (1, 2)), ()):
        backend.copy_blocks(pools[0], pairs)
        pools[1].copy_blocks(pairs)
        assert all(map(torch.equal, pools[0].keys, pools[1].keys))
        assert all(map(torch.equal, pools[0].values, pools[1].values))


def decode_plan(num_blocks=9, tables=((0, 5), (7,), (3, 1)), computed=(5, 2, 4), tokens=(9, 8, 7)) -> StepPlan:
    names = [f"r{i}/0" for i in range(len(tables))]
    slots = [table[p // 4] * 4 + p % 4 for table, p in zip(tables, computed, strict=True)]
    return StepPlan(
        step=0,
        block_size=4,
        num_blocks=num_blocks,
        num_scheduled_tokens=dict.fromkeys(names, 1),
        num_computed_tokens=dict(zip(names, computed, strict=True)),
        token_ids={name: (token,) for name, token in zip(names, tokens, strict=True)},
        block_tables=dict(zip(names, tables, strict=True)),
        slot_mapping={name: (slot,) for name, slot in zip(names, slots, strict=True)},
        sampling=dict.fromkeys(names, SamplingParams()),
    )


def hostile_pool(loaded, plan) -> KVPool:
    """NaN in every slot that the plan's sequences have not written; the last slot carries a mark."""
    pool = KVPool(loaded.layers, plan.num_blocks, 4, torch.float32, torch.device(DEVICE))
    torch.manual_seed(0)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(float("nan"))
        for seq_id, table in plan.block_tables.items():
            for p in range(plan.num_computed_tokens[seq_id]):
                tensor[table[p // 4], p % 4].normal_()
        tensor[-1, -1].fill_(42.0)
    return pool


@pytest.mark.kernel
@pytest.mark.parametrize("pack", [True, False], ids=["lean", "module"])
def test_padded_rows_touch_nothing(tiny, pack):
    """A graph of 4 rows, 3 of them alive: no slot changes but theirs, and NaN in free blocks reaches no output."""
    loaded = tiny if pack else load_model(DEFAULT_MODEL, pack=False, device=DEVICE)
    runner = ModelRunner(loaded, backend="triton")
    plan = decode_plan()
    pool = hostile_pool(loaded, plan)
    before = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
    assert bucket(3) == 4
    with torch.inference_mode():
        logits = runner.kernels.logits(plan, pool)
    assert logits.shape == (3, loaded.vocab_size)
    assert logits.isfinite().all()
    written = [slot for slots in plan.slot_mapping.values() for slot in slots]
    for old, new in zip(before, (*pool.keys, *pool.values), strict=True):
        changed = (old.view(torch.int32) != new.view(torch.int32)).flatten(2).any(2).flatten().nonzero()[:, 0]
        assert sorted(written) == changed.tolist()
        assert (new[-1, -1] == 42).all()


@pytest.mark.kernel
def test_row_0_keeps_every_bit_when_neighbours_change(tiny):
    """Same shapes, other neighbours: equal bit for bit. Alone: equal within tolerance, the same best token."""

    def first(computed, tokens, tables, fill):
        plan = decode_plan(computed=computed, tokens=tokens, tables=tables)
        pool = hostile_pool(tiny, decode_plan())
        for tensor in (*pool.keys, *pool.values):
            for table in tables[1:]:
                tensor[list(table)] *= fill
        with torch.inference_mode():
            return ModelRunner(tiny, backend="triton").kernels.logits(plan, pool)[0].clone()

    tables = ((0, 5), (7,), (3, 1))
    one = first((5, 2, 4), (9, 8, 7), tables, 1.0)
    other = first((5, 2, 4), (9, 100, 3), tables, -2.0)
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    alone = first((5,), (9,), tables[:1], 1.0)
    assert torch.allclose(alone, one, atol=1e-3)
    assert int(alone.argmax()) == int(one.argmax())


@pytest.mark.kernel
def test_a_graph_follows_tables_that_grow_shrink_and_change_rows(tiny):
    """One graph, replayed with other sequences in its rows: the logits of a step laid out anew."""
    forward = ModelRunner(tiny)._forward
    plans = [
        decode_plan(),
        decode_plan(computed=(6, 3, 5)),
        decode_plan(tables=((7,), (0, 5)), computed=(2, 5), tokens=(8, 9)),
        decode_plan(tables=((3, 1), (7,), (0, 5)), computed=(4, 2, 5)),
    ]
    pool = hostile_pool(tiny, decode_plan(computed=(7, 3, 6)))
    graph = DecodeGraph(forward, pool, 4, 8, 2)
    with torch.inference_mode():
        for plan in plans:
            expected = forward(TritonStep.of_plan(plan, pool))
            assert torch.allclose(graph.run(plan), expected, atol=1e-4)


def test_wrong_tables_are_errors_before_any_launch(tiny):
    backend = TritonBackend(tiny, ModelRunner(tiny)._forward)
    pool = KVPool(tiny.layers, 9, 4, torch.float32, torch.device(DEVICE))
    with pytest.raises(ModelError, match="names blocks 0 to 9: there are 9"):
        backend.logits(decode_plan(tables=((0, 9), (7,), (3, 1))), pool)
    with pytest.raises(ModelError, match="names blocks -1 to 3"):
        backend.logits(decode_plan(tables=((0, 5), (7,), (3, -1))), pool)
    with pytest.raises(KernelError, match="two tokens go to one slot"):
        backend.logits(decode_plan(tables=((0, 5), (0, 5), (3, 1)), computed=(5, 5, 4)), pool)
    short = replace(decode_plan(), block_tables={"r0/0": (0,), "r1/0": (7,), "r2/0": (3, 1)})
    with pytest.raises(KernelError, match="sequence 0 has length 6, its table has room for 4"):
        TritonStep.of_plan(short, pool)


def test_graphs_are_few(tiny):
    assert [bucket(n) for n in (1, 3, 5, 9, 63, 64, 65, 256, 257)] == [1, 4, 8, 16, 64, 64, 80, 256, 320]
    backend = TritonBackend(tiny, ModelRunner(tiny)._forward)
    pool = KVPool(tiny.layers, 300, 4, torch.float32, torch.device(DEVICE))
    graphs = {
        backend._graph(decode_plan(300, tables=((0,),) * n, computed=(3,) * n, tokens=(1,) * n), pool)
        for n in (5, 6, 8)
    }
    assert len(graphs) == 1
    wide = decode_plan(300, tables=(tuple(range(300)),), computed=(1199,), tokens=(1,))
    assert backend._graph(wide, pool) not in graphs
    assert len(backend._graphs) == 1  # tables outgrew the graphs that were there


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LlamaConfig(**layouts.SHAPE, num_attention_heads=4, num_key_value_heads=2, head_dim=20), "20 and 20 numbers"),
        (
            Gemma2Config(**layouts.SHAPE, num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=9),
            "sliding window|soft cap",
        ),
    ],
    ids=["head_dim", "gemma2"],
)
def test_models_the_kernels_cannot_run_stay_on_torch(tmp_path, capsys, config, reason):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason):
        ModelRunner(load_model(tmp_path, device=DEVICE), backend="triton")
    AutoTokenizer.from_pretrained(DEFAULT_MODEL).save_pretrained(tmp_path)
    assert triton_backend.unsupported(load_model(tmp_path, device=DEVICE)) is not None


def test_blocks_that_fit(tiny, monkeypatch):
    """85% of what is free, less the guard block: 4 layers, keys and values, 2 heads of 32, 4 bytes a number."""
    per_block = 16 * 4 * 2 * 2 * 32 * 4
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * per_block, 0))
    assert triton_backend.blocks_that_fit(tiny, 16) == 84
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * per_block, 0))
    with pytest.raises(ModelError, match="too little for a pool of tiny-model"):
        triton_backend.blocks_that_fit(tiny, 16)


def test_compiled_kernels_need_the_model_on_the_gpu(plain, monkeypatch):
    monkeypatch.setattr(triton_backend, "INTERPRETED", SimpleNamespace(value=False))
    with pytest.raises(ModelError, match="loaded on the CPU"):
        TritonBackend(plain, ModelRunner(plain)._forward)


@pytest.mark.kernel
@pytest.mark.skipif(torch.cuda.is_available(), reason="no GPU is needed for this one")
def test_generate_on_the_triton_backend(capsys):
    arguments = ["generate", "--prompt", "卻說", "--max-tokens", "3", "--ignore-eos", "--json", "--backend"]
    outputs = {}
    for backend in ("triton", "torch"):
        assert main([*arguments, backend]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["backend"], found["backend_reason"]) == (backend, None)
        outputs[backend] = found["outputs"]
    assert outputs["triton"] == outputs["torch"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="no GPU is needed for this one")
def test_generate_says_why_it_runs_on_torch(capsys, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    arguments = ["generate", "--prompt", "卻說", "--max-tokens", "2", "--json", "--backend"]
    for backend in ("triton", "auto"):
        assert main([*arguments, backend]) == 0
        captured = capsys.readouterr()
        found = json.loads(captured.out)
        assert (found["backend"], found["backend_reason"]) == ("torch", "there is no CUDA GPU")
        assert ("running on torch instead" in captured.err) == (backend == "triton")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with contextlib.suppress(KeyError):
        monkeypatch.delitem(sys.modules, "kernels.machine")
    from kernels.machine import unavailable

    assert unavailable() == "Triton is not installed"
