"""`ModelRunner`: greedy tokens equal `model.generate`'s whatever the batch, the tables and the schedule do."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import CapacityError, CountingRunner, Engine, EngineConfig, Request, SamplingParams, ValidationError
from engine.config import PREEMPTS, PREFIXES
from engine.errors import ModelError
from engine.model.attention import Dense, KVPool, PagedStep, step_rows
from engine.model.decoder import LeanDecoder
from engine.model.fetch import available
from engine.model.generate import DEFAULT_MODEL
from engine.model.host_store import HostStore
from engine.model.runner import ModelRunner, load_model
from tests.engine.model import layouts
from tests.factories import run_checked

NEAR = 1e-4
NAMES = ("tiny", "qwen3", "gemma2", "gpt2", "phi")
near_ties = 0


class Subject:
    """A model under the engine and the same as transformers runs it."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.loaded = load_model(folder)
        attention = "eager" if "gemma2" in str(folder) else "sdpa"
        self.reference = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention
        ).eval()
        self.reply = cache(self._reply)

    def _reply(self, prompt, count):
        """(tokens, gap between the two best logits at each) of `generate`, one request at a time."""
        found = self.reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = [logits[0].float().topk(2).values for logits in found.logits]
        return found.sequences[0, len(prompt) :].tolist(), [float(a - b) for a, b in best]

    def require_equal(self, prompt, tokens):
        """Equal to `generate`, unless its two best logits are nearly the same where they part."""
        global near_ties
        expected, gaps = self.reply(tuple(prompt), len(tokens))
        if tokens != expected:
            at = next(i for i, (a, b) in enumerate(zip(tokens, expected, strict=True)) if a != b)
            assert gaps[at] < NEAR, f"token {at} differs: {tokens[at]} instead of {expected[at]}"
            near_ties += 1


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    def make(name):
        folder = DEFAULT_MODEL if name == "tiny" else layouts.save(name, tmp_path_factory.mktemp("models") / name)
        return Subject(folder)

    yield cache(make)
    print(f"near ties: {near_ties}")


def random_workload(number):
    """Configuration and requests of random workload `number`; tight pools preempt."""
    rnd = random.Random(number)
    size = rnd.choice((1, 3, 16, 256))
    slots = rnd.randint(1, 5)
    shared = [rnd.randrange(1, 131) for _ in range(rnd.choice((0, 0, 20)))]
    requests = [
        ((*shared, *(rnd.randrange(1, 131) for _ in range(rnd.randint(1, 40)))), rnd.randint(1, 24))
        for _ in range(rnd.randint(2, 6))
    ]
    kv = rnd.choice(("paged", "paged", "paged", "max", "pow2"))
    largest = max(len(p) + (count - 1 if kv == "paged" else 32) for p, count in requests)
    blocks = -(-largest // size) + rnd.choice((0, 0, 1, 2, 100))
    config = EngineConfig(
        num_blocks=blocks,
        block_size=size,
        max_num_seqs=slots,
        max_num_batched_tokens=rnd.choice((None, None, 1, 7, 32)),
        policy=rnd.choice(("static", "continuous", "continuous", "prefill_first")),
        kv=kv,
        prefix=rnd.choice(PREFIXES) if kv == "paged" else "none",
        preempt=rnd.choice(PREEMPTS) if kv == "paged" else "recompute",
        host_blocks=rnd.choice((0, 20)),
        disk_blocks=rnd.choice((0, 20)),
    )
    return config, requests


def run_workload(subject, config, requests):
    engine = Engine(config, ModelRunner(subject.loaded))
    for prompt, count in requests:
        engine.submit(Request(prompt, SamplingParams(max_tokens=count, ignore_eos=True)))
    run_checked(engine)
    return engine


def check_workload(subject, number):
    config, requests = random_workload(number)
    engine = run_workload(subject, config, requests)
    for (prompt, count), state in zip(requests, engine.requests.values(), strict=True):
        assert len(state.outputs[0]) == count
        subject.require_equal(prompt, state.outputs[0])
    assert engine.pool.num_free == config.num_blocks
    return engine


@pytest.mark.parametrize("name", NAMES)
def test_equals_generate(subjects, name):
    for number in range(NAMES.index(name), 50, len(NAMES)):
        check_workload(subjects(name), number)


def test_equals_generate_on_smollm2():
    folder = available("smollm2")
    if folder is None:
        pytest.skip("SmolLM2 is not fetched (python -m engine fetch-model smollm2)")
    subject = Subject(folder)
    for number in (3, 8, 21):
        check_workload(subject, number)


def test_random_workloads_are_tight():
    """The workloads above do preempt, chunk and reserve: counted without a model."""
    preempted, hits, swaps, kinds = 0, 0, 0, set()
    for number in range(50):
        config, requests = random_workload(number)
        engine = Engine(config, CountingRunner())
        for prompt, count in requests:
            engine.submit(Request(prompt, SamplingParams(max_tokens=count)))
        run_checked(engine)
        preempted += engine.metrics.preemptions > 0
        hits += sum(engine.metrics.prefix_hits.values()) > 0
        swaps += engine.metrics.bytes_swapped > 0
        kinds.add((config.policy, config.kv == "paged", config.block_size))
    assert preempted >= 5
    assert hits >= 5
    assert swaps >= 2
    assert len(kinds) > 15


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_equals_generate_on_all_workloads(subjects, name):
    for number in range(50 + NAMES.index(name), 200, len(NAMES)):
        check_workload(subjects(name), number)


def test_same_schedule_as_counting(subjects):
    """Ended by the model itself: the trace of the same lengths without a model is the same."""
    subject = subjects("tiny")
    config = EngineConfig(num_blocks=40, block_size=4, max_num_seqs=4, max_num_batched_tokens=16)
    prompts = [tuple(subject.loaded.tokenizer(text).input_ids) for text in ("卻說", "玄德曰", "次日，曹操", "孔明")]
    params = SamplingParams(max_tokens=60, temperature=0.8, top_p=0.95)
    engine = Engine(config, ModelRunner(subject.loaded))
    for i, prompt in enumerate(prompts * 3):
        engine.submit(Request(prompt, replace(params, seed=i)))
    run_checked(engine)
    reasons = {state.finish_reason for state in engine.requests.values()}
    assert reasons == {"stop", "length"}
    assert engine.metrics.preemptions > 0
    counting = Engine(config, CountingRunner())
    for state in engine.requests.values():
        counting.submit(replace(state.request, output_len=len(state.outputs[0])))
    run_checked(counting)
    assert engine.trace.same_schedule(counting.trace)


@pytest.mark.parametrize("prefix", ["hash", "radix", "snapshot"])
def test_same_schedule_as_counting_with_hits_and_beams(subjects, prefix):
    """A second turn that begins with the first reply, branches and beams: replayed from the record without a model."""
    subject = subjects("tiny")
    config = EngineConfig(num_blocks=40, block_size=4, max_num_seqs=6, max_num_batched_tokens=16, prefix=prefix)
    prompt = tuple(subject.loaded.tokenizer("次日，曹操").input_ids)

    def run(runner, reply=None):
        engine = Engine(config, runner)
        first = engine.submit(Request(prompt, SamplingParams(max_tokens=30, ignore_eos=True)))
        engine.submit(Request(prompt, SamplingParams(max_tokens=25, beam_width=3)))
        while engine.requests[first].finish_reason is None:
            engine.step()
        reply = reply or engine.requests[first].outputs[0]
        engine.submit(Request((*prompt, *reply, 9), SamplingParams(max_tokens=20, temperature=0.8, n=2)))
        engine.submit(Request(prompt, SamplingParams(max_tokens=40, beam_width=2)))
        run_checked(engine)
        return engine, reply

    engine, reply = run(ModelRunner(subject.loaded))
    assert sum(engine.metrics.prefix_hits.values()) > 0
    assert run(CountingRunner(engine.trace), reply)[0].trace.same_schedule(engine.trace)


def test_sampled_reply_depends_on_nothing_but_its_request(subjects):
    subject = subjects("tiny")
    request = Request(
        (5, 6, 7), SamplingParams(max_tokens=20, temperature=0.9, top_k=50, top_p=0.9, seed=3, ignore_eos=True)
    )
    replies = []
    for budget, others in ((None, 0), (2, 0), (None, 3)):
        engine = Engine(EngineConfig(num_blocks=40, max_num_batched_tokens=budget), ModelRunner(subject.loaded))
        rid = engine.submit(request)
        for i in range(others):
            engine.submit(Request((9 + i, 4), SamplingParams(max_tokens=9)))
        run_checked(engine)
        replies.append(engine.requests[rid].outputs[0])
    assert replies[0] == replies[1] == replies[2]
    other = Engine(EngineConfig(num_blocks=40), ModelRunner(subject.loaded))
    rid = other.submit(replace(request, params=replace(request.params, seed=4)))
    other.run()
    assert other.requests[rid].outputs[0] != replies[0]


def test_several_replies_are_those_of_their_own_random_numbers(subjects):
    """Roomy, or with hits, copies and both kinds of preemption: n replies stay the same, and differ from each other."""
    subject = subjects("tiny")
    params = SamplingParams(max_tokens=24, temperature=0.9, n=3, seed=5, ignore_eos=True)
    replies, seen = [], set()
    for fields in (
        {"num_blocks": 60},
        {"num_blocks": 13, "prefix": "hash"},
        {"num_blocks": 13, "preempt": "swap", "host_blocks": 4, "disk_blocks": 9},
    ):
        config = EngineConfig(block_size=4, max_num_seqs=6, max_num_batched_tokens=9, **fields)
        engine = Engine(config, ModelRunner(subject.loaded))
        ids = [engine.submit(Request((5, 6, 7, 8, 9, 10), params)) for _ in range(2)]
        records = run_checked(engine)
        seen |= {str(e.code) for record in records for e in record.events}
        replies.append([engine.requests[rid].outputs for rid in ids])
    assert replies[0] == replies[1] == replies[2]
    assert replies[0][0] == replies[0][1]
    assert len({tuple(output) for output in replies[0][0]}) == 3
    assert {"FORKED", "COW_COPY", "HIT", "SWAP_OUT", "SWAP_IN", "PREEMPTED_BY"} <= seen


def test_swapped_blocks_come_back_from_memory_and_disk(subjects):
    pool = KVPool(subjects("tiny").loaded.layers, 4, 2, torch.float32, torch.device("cpu"))
    for tensor in (*pool.keys, *pool.values):
        tensor.normal_()
    wanted = [tensor[[0, 2]].clone() for tensor in (*pool.keys, *pool.values)]
    store = HostStore(pool)
    store.put(((0, 0), (2, 7)), host_blocks=3)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(float("nan"))
    store.get(((3, 0), (1, 7)), host_blocks=3)
    for tensor, before in zip((*pool.keys, *pool.values), wanted, strict=True):
        assert torch.equal(tensor[[3, 1]], before)
    block = KVPool.bytes_needed(subjects("tiny").loaded.layers, 0, 2, 4)
    assert store.bytes_moved == {"memory": 2 * block, "disk": 2 * block}
    assert min(store.seconds.values()) > 0


class Logits(ModelRunner):
    """Keeps the logits of every step."""

    def _sample(self, plan, logits):
        self.seen = logits.clone()
        return super()._sample(plan, logits)


def last_logits(subject, neighbours):
    runner = Logits(subject.loaded)
    engine = Engine(EngineConfig(num_blocks=40), runner)
    for prompt in ((3, 4, 5, 6), *neighbours):
        engine.submit(Request(tuple(prompt), SamplingParams(max_tokens=5, ignore_eos=True)))
    engine.run()
    return runner.seen[0]


def test_only_neighbours_contents_changed(subjects):
    """Row 0 is bit-equal under other neighbours of the same shape, and nearly equal alone."""
    subject = subjects("tiny")
    first = last_logits(subject, [(7, 8, 9), (10, 11)])
    assert torch.equal(first, last_logits(subject, [(70, 80, 90), (100, 110)]))
    assert torch.allclose(first, last_logits(subject, []), atol=1e-4)


def test_nothing_is_read_beyond_the_own_tokens(subjects):
    """With NaN in every block, guard included, only what the sequences wrote themselves reaches an output."""
    subject = subjects("tiny")
    config, requests = EngineConfig(num_blocks=24, block_size=4, max_num_seqs=3), [((3, 4, 5) * 3, 12), ((6, 7), 7)]
    runner = ModelRunner(subject.loaded)
    pool = runner.prepare(24, 4)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(float("nan"))
    engine = Engine(config, runner)
    for prompt, count in requests:
        engine.submit(Request(prompt, SamplingParams(max_tokens=count, ignore_eos=True)))
    run_checked(engine)
    for (prompt, _), state in zip(requests, engine.requests.values(), strict=True):
        subject.require_equal(prompt, state.outputs[0])
    assert torch.isnan(pool.keys[0][24]).all()


def test_nobody_is_padded_to_the_longest(subjects):
    """Positions read in a step: at most twice a row's own, or 64 more."""
    subject = subjects("tiny")
    engine = Engine(EngineConfig(num_blocks=64, max_num_seqs=8), CountingRunner())
    for length in (600, 3, 5, 20, 70):
        engine.submit(Request((1,) * length, SamplingParams(max_tokens=9)))
    engine.step()
    plan = engine.step().plan
    step = PagedStep(plan, KVPool(subject.loaded.layers, 64, 16, torch.float32, torch.device("cpu")))
    read = sum(len(rows.slots) for rows in step._rows)
    assert read <= 601 + sum(max(2 * n, n + 64) for n in (4, 6, 21, 71)) < 5 * 601


def test_steps_have_few_sizes():
    """At most a quarter of the rows is added, and a thousand counts have 36 sizes."""
    sizes = [step_rows(count) for count in range(1025)]
    assert sizes[:13] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 10, 12, 12]
    assert all(count <= size <= 1.25 * count for count, size in enumerate(sizes))
    assert len(set(sizes[1:])) == 36


def test_rows_beyond_the_tokens_change_nothing(subjects):
    """21 tokens run as 24 rows: three of zeros, not written, not sampled; the replies stay those of `generate`."""
    subject = subjects("tiny")
    steps = []

    class Watched(ModelRunner):
        def _forward(self, step):
            logits = super()._forward(step)
            steps.append((step.num_tokens, step.token_ids.shape[1], step.num_samples, len(logits)))
            return logits

    engine = Engine(EngineConfig(num_blocks=64, max_num_seqs=16), Watched(subject.loaded))
    prompts = [(5, 6, 7, 8, 9, 10, 11, 12, 13), *((20 + i, 30 + i, 40 + i) for i in range(4))]
    for prompt in [*prompts, *((50 + i,) for i in range(4))]:
        engine.submit(Request(prompt, SamplingParams(max_tokens=4, ignore_eos=True)))
    run_checked(engine)
    assert steps[:2] == [(25, 28, 9, 10), (9, 10, 9, 10)]
    for state in engine.requests.values():
        subject.require_equal(state.request.prompt_token_ids, state.outputs[0])


@pytest.mark.long
def test_a_thousand_requests_leave_nothing_behind():
    """Resident memory after 1,000 requests of mixed lengths and after 1,000 more: within 2%, and every block free.

    In a process of its own: what other tests leave to be freed would hide growth.
    """
    found = subprocess.run([sys.executable, "-c", SERVE_MANY], capture_output=True, text=True, check=True)
    before, after, free = map(int, found.stdout.split())
    assert after <= 1.02 * before, f"{before} kB after 1,000 requests, {after} kB after 1,000 more"
    assert free == 128


SERVE_MANY = """
import random
from engine import Engine, EngineConfig, Request, SamplingParams
from engine.model.generate import DEFAULT_MODEL
from engine.model.runner import ModelRunner
from engine.service import EngineService

engine = Engine(
    EngineConfig(num_blocks=128, max_num_seqs=8, prefix="hash"), ModelRunner(DEFAULT_MODEL), keep_trace=False
)
service, rng = EngineService(engine), random.Random(1)

def serve(count):
    for _ in range(count // 50):
        requests = [
            Request(
                [rng.randrange(3, 2000) for _ in range(rng.randint(1, 60))],
                SamplingParams(max_tokens=rng.randint(1, 30), temperature=0.8, seed=rng.randrange(9)),
            )
            for _ in range(50)
        ]
        for request_id in [service.submit(request) for request in requests]:
            for _ in service.stream(request_id):
                pass
    lines = open("/proc/self/status").read().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("VmRSS"))

print(serve(1000), serve(1000), engine.kv.pool.num_free)
"""


def test_bad_requests_leave_the_engine_alive(subjects):
    loaded = subjects("tiny").loaded
    engine = Engine(EngineConfig(num_blocks=100), ModelRunner(loaded))
    with pytest.raises(ValidationError, match="token id 2048 is unknown"):
        engine.submit(Request((1, 2048)))
    with pytest.raises(CapacityError, match="context is 1024"):
        engine.submit(Request((1,) * 1020, SamplingParams(max_tokens=5)))
    with pytest.raises(ValidationError, match="max_tokens"):
        SamplingParams(max_tokens=10**9)
    rid = engine.submit(Request((1, 2), SamplingParams(max_tokens=3, ignore_eos=True)))
    run_checked(engine)
    assert len(engine.requests[rid].outputs[0]) == 3


class Failing:
    """Fails once, then passes plans on; has nothing but `run`."""

    def __init__(self, inner) -> None:
        self.inner, self.left = inner, 1

    def run(self, plan):
        if self.left:
            self.left -= 1
            raise RuntimeError("the device is gone")
        return self.inner.run(plan)


def test_a_failing_runner_costs_only_its_plan(subjects):
    engine = Engine(EngineConfig(num_blocks=10, max_num_seqs=1), Failing(ModelRunner(subjects("tiny").loaded)))
    first, second = (engine.submit(Request((1, 2), SamplingParams(max_tokens=3, ignore_eos=True))) for _ in range(2))
    with pytest.raises(RuntimeError, match="gone"):
        engine.step()
    engine.check()
    run_checked(engine)
    assert engine.requests[first].finish_reason == "error"
    assert engine.requests[second].finish_reason == "length"
    assert engine.pool.num_free == 10


def test_pool_too_large(subjects, monkeypatch):
    monkeypatch.setattr("engine.model.memory.available_bytes", lambda: 10**6)
    with pytest.raises(ModelError, match=r"pool of 1,000 blocks.*GB are free.*fewer blocks"):
        Engine(EngineConfig(num_blocks=1000), ModelRunner(subjects("tiny").loaded))
    with pytest.raises(ModelError, match=r"3,344,640 parameters.*smaller model"):
        load_model(DEFAULT_MODEL)


def test_sources_that_are_no_models(tmp_path):
    from transformers import BertConfig, BertModel

    with pytest.raises(ModelError, match="no model folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        load_model(tmp_path)
    BertModel(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    ).save_pretrained(tmp_path / "bert")
    with pytest.raises(ModelError, match="not a decoder-only model"):
        load_model(tmp_path / "bert")
    broken = layouts.save("qwen3", tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(broken)


def test_known_layouts_run_without_modules_and_give_the_modules_logits(tmp_path) -> None:
    tiny, qwen3 = load_model(DEFAULT_MODEL), load_model(layouts.save("qwen3", tmp_path / "qwen3"))
    for loaded in (tiny, qwen3):
        assert loaded.decoder is not None
        ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
        found = loaded.decoder(Dense(ids))
        with torch.inference_mode():
            expected = loaded.model(input_ids=ids, use_cache=False, paged=Dense(ids)).logits[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for layout in ("gemma2", "gpt2", "phi"):
        assert load_model(layouts.save(layout, tmp_path / layout)).decoder is None


def test_a_forward_that_differs_from_the_modules_is_not_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(LeanDecoder, "_angles", lambda self, x, at: (torch.ones(x.shape[0], 1, 20), torch.zeros(1)))
    assert load_model(layouts.save("qwen3", tmp_path / "qwen3")).decoder is None


@pytest.mark.parametrize("name", ["tiny", "qwen3"])
@pytest.mark.parametrize("width", [2, 4])
def test_beam_search_is_that_of_transformers(subjects, name, width):
    """Same sequences, scores within 1e-4; on a tight pool, beside others, with and without an end of text."""
    subject = subjects(name)
    for prompt, count in (((5, 6, 7, 8, 9), 12), ((40, 3), 20), ((17,), 1)):
        found = subject.reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=count,
            num_beams=width,
            num_return_sequences=width,
            do_sample=False,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        config = EngineConfig(num_blocks=40, block_size=3, max_num_seqs=6, max_num_batched_tokens=9, prefix="hash")
        engine = Engine(config, ModelRunner(subject.loaded))
        engine.submit(Request((9,) * 30, SamplingParams(max_tokens=30, ignore_eos=True)))
        rid = engine.submit(Request(prompt, SamplingParams(max_tokens=count, beam_width=width)))
        run_checked(engine)
        state = engine.requests[rid]
        expected = [row[len(prompt) :].tolist() for row in found.sequences]
        for output, wanted, score, other in zip(
            state.outputs, expected, state.scores, found.sequences_scores.tolist(), strict=True
        ):
            assert output == wanted[: len(output)]
            assert not any(wanted[len(output) :])  # padding
            assert abs(score - other) < 1e-4
