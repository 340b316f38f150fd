"""`FakeRunner`: a model whose every answer depends on the KV read *through the block table*.

The KV cell of position i is a hash of cell i − 1 (read through the table), the token and i; the next token is a hash of
all cells read through the table. A wrong table, slot or chunk boundary therefore changes the text in a unit test, while
batch, step number and physical ids cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.errors import ValidationError
from engine.plan import StepPlan
from engine.request import SamplingParams
from engine.runner import Candidate, Sampled

_EMPTY = (0, 0)
_MASK = (1 << 64) - 1


class FakeRunner:
    """Deterministic text from hashes, on a real pool of cells.

    Args:
        vocab_size: tokens are drawn from 0 … vocab_size − 1; at least 50. There is no end-of-text token.
        logprobs: stages every choice: from all tokens so far, read through the table, to {token: log-probability}.
        seed: enters the hash only where a request's temperature is above 0 and it has no seed of its own.
    """

    def __init__(
        self,
        vocab_size: int = 1000,
        seed: int = 0,
        logprobs: Callable[[tuple[int, ...]], Mapping[int, float]] | None = None,
    ) -> None:
        if vocab_size < 50:
            raise ValidationError(f"vocab_size must be at least 50, got {vocab_size}")
        self.vocab_size = vocab_size
        self.seed = seed
        self.logprobs = logprobs
        self._cells: dict[int, tuple[int, int]] = {}  # slot → (hash, token)
        self._host: dict[int, list[tuple[int, int]]] = {}

    def run(self, plan: StepPlan) -> dict[str, Sampled]:
        size, cells = plan.block_size, self._cells
        for _, pairs in plan.swap_out:
            for device, host in pairs:
                self._host[host] = [cells.get(device * size + offset, _EMPTY) for offset in range(size)]
        for source, destination in plan.copies:
            for offset in range(size):
                cells[destination * size + offset] = cells.get(source * size + offset, _EMPTY)
        for _, pairs in plan.swap_in:
            for device, host in pairs:
                for offset, cell in enumerate(self._host.pop(host)):
                    cells[device * size + offset] = cell
        sampled: dict[str, Sampled] = {}
        for seq_id, tokens in plan.token_ids.items():
            table, start = plan.block_tables[seq_id], plan.num_computed_tokens[seq_id]
            for i, (token, slot) in enumerate(zip(tokens, plan.slot_mapping[seq_id], strict=True), start):
                before = self._read(table, i - 1, size)[0] if i else 0
                cells[slot] = (_mix(before, token, i), token)
            if seq_id in plan.sampling:
                read = [self._read(table, i, size) for i in range(start + len(tokens))]
                digest = 0
                for i, (cell, _) in enumerate(read):
                    digest = _mix(digest, cell, i)
                known = tuple(token for _, token in read)
                for branch in (seq_id, *(child for child, parent in plan.forks.items() if parent == seq_id)):
                    sampled[branch] = self._sample(digest, known, branch, plan.sampling[branch])
        return sampled

    def _sample(self, digest: int, known: tuple[int, ...], seq_id: str, params: SamplingParams) -> Sampled:
        if self.logprobs is not None:
            staged = sorted(self.logprobs(known).items(), key=lambda entry: -entry[1])
            offer = tuple(Candidate(token, logprob) for token, logprob in staged)
        elif params.beam_width is not None:
            drawn = [_mix(digest, place, 3) for place in range(2 * params.beam_width)]
            scores = {number % self.vocab_size: -0.05 - number % 4093 / 1000 for number in drawn}
            offer = tuple(Candidate(token, scores[token]) for token in sorted(scores, key=lambda t: -scores[t]))
        else:
            return Sampled(self._token(digest, seq_id, params))
        width = params.beam_width
        return Sampled(offer[0].token_id, offer[0].logprob, candidates=offer[: 2 * width] if width else ())

    def _token(self, digest: int, seq_id: str, params: SamplingParams) -> int:
        if params.temperature > 0:
            digest = _mix(digest, self.seed if params.seed is None else params.seed, 1)
        if params.n > 1:
            digest = _mix(digest, int(seq_id.rpartition("/")[2]), 2)
        return digest % self.vocab_size

    def _read(self, table: tuple[int, ...], position: int, size: int) -> tuple[int, int]:
        return self._cells.get(table[position // size] * size + position % size, _EMPTY)


def _mix(a: int, b: int, c: int) -> int:
    """64-bit hash of three integers (the finaliser of splitmix64 over a linear combination)."""
    x = (a * 0x9E3779B97F4A7C15 + b * 0xC2B2AE3D27D4EB4F + c * 0x165667B19E3779F9 + 0x27D4EB2F165667C5) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
