"""`FakeRunner`: a model whose every answer depends on the KV read *through the block table*.

The KV cell of position i is a hash of cell i − 1 (read through the table), the token and i; the next token is a hash of
all cells read through the table. A wrong table, slot or chunk boundary therefore changes the text in a unit test, while
batch, step number and physical ids cannot.
"""

from __future__ import annotations

from engine.errors import ValidationError
from engine.plan import StepPlan
from engine.request import SamplingParams
from engine.runner import Sampled

_MASK = (1 << 64) - 1


class FakeRunner:
    """Deterministic text from hashes, on a real pool of cells.

    Args:
        vocab_size: tokens are drawn from 0 … vocab_size − 1; at least 50. There is no end-of-text token.
        seed: enters the hash only where a request's temperature is above 0 and it has no seed of its own.
    """

    def __init__(self, vocab_size: int = 1000, seed: int = 0) -> None:
        if vocab_size < 50:
            raise ValidationError(f"vocab_size must be at least 50, got {vocab_size}")
        self.vocab_size = vocab_size
        self.seed = seed
        self._cells: dict[int, int] = {}
        self._host: dict[int, list[int]] = {}

    def run(self, plan: StepPlan) -> dict[str, Sampled]:
        size, cells = plan.block_size, self._cells
        for _, pairs in plan.swap_out:
            for device, host in pairs:
                self._host[host] = [cells.get(device * size + offset, 0) for offset in range(size)]
        for source, destination in plan.copies:
            for offset in range(size):
                cells[destination * size + offset] = cells.get(source * size + offset, 0)
        for _, pairs in plan.swap_in:
            for device, host in pairs:
                for offset, cell in enumerate(self._host.pop(host)):
                    cells[device * size + offset] = cell
        sampled: dict[str, Sampled] = {}
        for seq_id, tokens in plan.token_ids.items():
            table, start = plan.block_tables[seq_id], plan.num_computed_tokens[seq_id]
            for i, (token, slot) in enumerate(zip(tokens, plan.slot_mapping[seq_id], strict=True), start):
                before = self._read(table, i - 1, size) if i else 0
                cells[slot] = _mix(before, token, i)
            if seq_id in plan.sampling:
                digest = 0
                for i in range(start + len(tokens)):
                    digest = _mix(digest, self._read(table, i, size), i)
                for branch in (seq_id, *(child for child, parent in plan.forks.items() if parent == seq_id)):
                    sampled[branch] = Sampled(self._token(digest, branch, plan.sampling[branch]))
        return sampled

    def _token(self, digest: int, seq_id: str, params: SamplingParams) -> int:
        if params.temperature > 0:
            digest = _mix(digest, self.seed if params.seed is None else params.seed, 1)
        if params.n > 1:
            digest = _mix(digest, int(seq_id.rpartition("/")[2]), 2)
        return digest % self.vocab_size

    def _read(self, table: tuple[int, ...], position: int, size: int) -> int:
        return self._cells.get(table[position // size] * size + position % size, 0)


def _mix(a: int, b: int, c: int) -> int:
    """64-bit hash of three integers (the finaliser of splitmix64 over a linear combination)."""
    x = (a * 0x9E3779B97F4A7C15 + b * 0xC2B2AE3D27D4EB4F + c * 0x165667B19E3779F9 + 0x27D4EB2F165667C5) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
