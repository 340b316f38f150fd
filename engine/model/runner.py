"""`ModelRunner`: executes step plans on a real model.

All tokens of a step go through the model in one forward, flattened to [1, T] with their positions; only attention sees
that they belong to different sequences. It writes keys and values by the plan's slot mapping and reads them through
the plan's block tables. A contiguous run is a table of consecutive ids, so every KV manager runs here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engine.errors import ModelError
from engine.model.attention import KVPool, PagedStep
from engine.model.host_store import HostStore
from engine.model.loading import LoadedModel, load_model
from engine.model.memory import require_memory
from engine.model.sampling import draw, greedy, number_of
from engine.plan import StepPlan
from engine.request import SamplingParams
from engine.runner import Candidate, Limits, Sampled

if TYPE_CHECKING:
    from engine.model.triton_backend import TritonBackend

__all__ = ["LoadedModel", "ModelRunner", "load_model"]


class ModelRunner:
    """Runs one engine's plans; owns the KV pool, shares the weights.

    Args:
        model: a loaded model, or where `load_model` finds it.
        seed: for requests without a seed of their own; their random numbers then also depend on the request's id.
        backend: "torch", or "triton" on a GPU (or in Triton's interpreter).

    Raises:
        ModelError: the model does not load, or the backend cannot run it.

    Attributes:
        loaded: the model.
        limits: its vocabulary and context.
        pool: the KV pool, None before the first plan or `prepare`.
    """

    def __init__(self, model: LoadedModel | str | Path, *, seed: int = 0, backend: str = "torch") -> None:
        self.loaded = model if isinstance(model, LoadedModel) else load_model(model)
        self.seed = seed
        self.limits = Limits(self.loaded.vocab_size, self.loaded.max_model_len)
        self.pool: KVPool | None = None
        self.kernels: TritonBackend | None = None
        if backend == "triton":
            from engine.model.triton_backend import TritonBackend

            self.kernels = TritonBackend(self.loaded, self._forward)
        self._store: HostStore | None = None

    def prepare(self, num_blocks: int, block_size: int) -> KVPool:
        """Make the pool, or return the one that is there.

        Raises:
            ModelError: it does not fit into the memory that is free, or there is one of another shape.
        """
        if self.pool is None:
            needed = KVPool.bytes_needed(self.loaded.layers, num_blocks, block_size, self.loaded.dtype.itemsize)
            what = f"a KV pool of {num_blocks:,} blocks of {block_size} tokens for {self.loaded.name}"
            on_gpu = self.loaded.device.type == "cuda"
            free = torch.cuda.mem_get_info(self.loaded.device)[0] if on_gpu else None
            require_memory(needed, what, "use fewer blocks", free)
            self.pool = KVPool(self.loaded.layers, num_blocks, block_size, self.loaded.dtype, self.loaded.device)
        if (self.pool.num_blocks, self.pool.block_size) != (num_blocks, block_size):
            raise ModelError(
                f"this runner has a pool of {self.pool.num_blocks} blocks of {self.pool.block_size}; "
                f"an engine with {num_blocks} of {block_size} needs a runner of its own"
            )
        return self.pool

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's KV, all layers."""
        return sum(layer.floats for layer in self.loaded.layers) * self.loaded.dtype.itemsize

    @property
    def swapped(self) -> HostStore | None:
        """What has been swapped, with the time it took; None before the first plan."""
        return self._store

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> dict[str, Sampled]:
        """Compute the plan's tokens and sample: {sequence id: result} for every entry of `plan.sampling`."""
        pool = self.prepare(plan.num_blocks, plan.block_size)
        store = self._store = self._store or HostStore(pool)
        for _, pairs in plan.swap_out:
            store.put(pairs, plan.host_blocks)
        if self.kernels is None:
            pool.copy_blocks(plan.copies)
        else:
            self.kernels.copy_blocks(pool, plan.copies)
        for _, pairs in plan.swap_in:
            store.get(pairs, plan.host_blocks)
        if self.kernels is None:
            step = PagedStep(plan, pool)
            logits = self._forward(step)[: step.num_samples]
        else:
            logits = self.kernels.logits(plan, pool)
        return self._sample(plan, logits)

    def _forward(self, step: Any) -> torch.Tensor:
        """Logits [S, V] at the step's `last`, in float32."""
        if self.loaded.decoder is not None:
            return self.loaded.decoder(step)
        found = self.loaded.model(
            input_ids=step.token_ids,
            position_ids=step.positions,
            use_cache=False,
            logits_to_keep=step.last,
            paged=step,
        )
        return found.logits[0].float()

    def _sample(self, plan: StepPlan, logits: torch.Tensor) -> dict[str, Sampled]:
        ids = list(plan.sampling)
        if not ids:
            return {}
        parents = [plan.forks.get(seq_id, seq_id) for seq_id in ids]
        if plan.forks:  # a new branch draws from the row it leaves
            rows = [seq_id for seq_id in ids if seq_id not in plan.forks]
            logits = logits[[rows.index(parent) for parent in parents]]
        tokens = greedy(logits)
        for row, (parent, (seq_id, params)) in enumerate(zip(parents, plan.sampling.items(), strict=True)):
            if params.temperature > 0:
                position = plan.num_computed_tokens[parent] + plan.num_scheduled_tokens[parent]
                tokens[row] = draw(logits[row], params, self._number(seq_id, params.seed, position))
        chosen = logits.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0] - logits.logsumexp(-1)
        ends = self.loaded.eos_token_ids
        return {
            seq_id: Sampled(token, logprob, token in ends, self._offer(row, plan.sampling[seq_id]))
            for seq_id, token, logprob, row in zip(ids, tokens, chosen.tolist(), logits, strict=True)
        }

    def _offer(self, logits: torch.Tensor, params: SamplingParams) -> tuple[Candidate, ...]:
        """A beam's candidates: 2W, or more where more tokens can end a text."""
        if params.beam_width is None:
            return ()
        ends = self.loaded.eos_token_ids
        count = max(2, 1 + len(ends | set(params.stop_token_ids))) * params.beam_width
        found = torch.log_softmax(logits, -1).topk(min(count, len(logits)))
        return tuple(
            Candidate(token, logprob, token in ends)
            for logprob, token in zip(found.values.tolist(), found.indices.tolist(), strict=True)
        )

    def _number(self, seq_id: str, seed: int | None, position: int) -> float:
        request_id, _, branch = seq_id.rpartition("/")
        return number_of(f"{self.seed}/{request_id}" if seed is None else seed, int(branch), position)
