"""The invariants of an engine between two steps, each checked from the books themselves, not from counters alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from engine.contiguous import ContiguousKV
from engine.errors import InvariantError
from engine.kv import blocks_for
from engine.paged import PagedKV
from engine.request import Status

if TYPE_CHECKING:
    from engine.engine import Engine


def check_engine(engine: Engine) -> None:
    """Verify that pool, tables, queues and statuses agree.

    Raises:
        InvariantError: with the first disagreement found.
    """
    _check_pool(engine)
    _check_index(engine)
    _check_tables(engine)
    _check_queues(engine)
    _check_plan(engine)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantError(message)


def _check_pool(engine: Engine) -> None:
    pool = engine.pool
    free = pool.free_ids()
    _require(len(free) == len(set(free)), f"the free queue holds a block twice: {free}")
    _require(
        len(free) == pool.num_free, f"{len(free)} blocks stand in the free queue, the counter says {pool.num_free}"
    )
    held = Counter(block for state in engine.requests.values() for s in state.sequences for block in s.block_table)
    for block_id in range(pool.num_blocks):
        count = pool.ref(block_id)
        _require(count == held[block_id], f"block {block_id} is counted {count} times, tables hold it {held[block_id]}")
        _require((count == 0) == pool.is_free(block_id), f"block {block_id} with count {count} is on the wrong side")
    _require(set(free) == {i for i in range(pool.num_blocks) if pool.ref(i) == 0}, "free queue and counts disagree")
    host = engine.host
    away = Counter(block for state in engine.requests.values() for s in state.sequences for block in s.host_table)
    away.update(host.free_ids())
    _require(away == Counter(range(host.host_blocks + host.disk_blocks)), f"host blocks are lost or held twice: {away}")
    if isinstance(engine.kv, ContiguousKV):
        runs = [block for start, length in engine.kv.free_runs for block in range(start, start + length)]
        _require(runs == sorted(free), f"the free runs {engine.kv.free_runs} are not the free blocks")
        ends = [start + length for start, length in engine.kv.free_runs]
        starts = [start for start, _ in engine.kv.free_runs]
        _require(not set(ends) & set(starts), f"neighbouring free runs are not joined: {engine.kv.free_runs}")


def _check_index(engine: Engine) -> None:
    """An entry belongs to a full block whose tokens, and all before them, are those that its holders have there."""
    if not isinstance(engine.kv, PagedKV) or engine.kv.index is None:
        return
    index, pool, size = engine.kv.index, engine.pool, engine.config.block_size
    entered = [block for block in range(pool.num_blocks) if block in index]
    _require(len(entered) == len(index), f"the index has {len(index)} entries for {len(entered)} blocks")
    cached = sum(pool.is_free(block) for block in entered)
    _require(cached == engine.kv.num_cached_free, f"{cached} free blocks are cached, not {engine.kv.num_cached_free}")
    for seq in engine.scheduler.running:
        for place, block in enumerate(seq.block_table):
            if block in index:
                known, content = tuple(seq.token_ids[: (place + 1) * size]), index.content(block)
                _require(
                    content == known and len(known) <= seq.num_computed_tokens,
                    f"the index takes block {block} of {seq.id} for {content}",
                )


def _check_tables(engine: Engine) -> None:
    size = engine.config.block_size
    for state in engine.requests.values():
        for seq in state.sequences:
            table = seq.block_table
            if seq.status is not Status.RUNNING:
                _require(not table, f"{seq.id} is {seq.status} and holds blocks {table}")
                away = blocks_for(seq.num_computed_tokens, size) if seq.status is Status.SWAPPED else 0
                _require(len(seq.host_table) == away, f"{seq!r} has {len(seq.host_table)} blocks on the host")
                continue
            if isinstance(engine.kv, ContiguousKV):
                whole = list(range(table[0], table[0] + engine.kv.demand(seq.request))) if table else None
                _require(table == whole, f"{seq.id} should hold one run of its reservation, has {table}")
            else:
                due = blocks_for(seq.num_computed_tokens, size)
                _require(
                    len(table) == due, f"{seq.id} has KV for {seq.num_computed_tokens} tokens in {len(table)} blocks"
                )
            computable = seq.num_tokens - (seq.offer is None)
            _require(0 <= seq.num_computed_tokens <= computable, f"{seq!r} has computed all or less than nothing")


def _check_queues(engine: Engine) -> None:
    running, waiting = engine.scheduler.running, list(engine.scheduler.waiting)
    future = set(engine.future_requests)
    slots = [slot for seq in running for slot in (seq.slot, *seq.spare_slots)]
    _require(len(slots) <= engine.config.max_num_seqs, f"{len(slots)} sequences run in fewer slots")
    _require(len(set(slots)) == len(slots) and None not in slots, f"two sequences share a slot, or have none: {slots}")
    _require(all(seq.status is Status.RUNNING for seq in running), "somebody runs with another status")
    _require(
        all(seq.status in (Status.WAITING, Status.PREEMPTED, Status.SWAPPED) for seq in waiting),
        "somebody waits with another status",
    )
    places = Counter(seq.id for seq in (*running, *waiting))
    for state in engine.requests.values():
        for seq in state.sequences:
            due = 0 if seq.status.is_final or (state.id in future and seq.order < 0) else 1
            _require(places[seq.id] == due, f"{seq.id} ({seq.status}) stands in {places[seq.id]} queues")
            _require((seq.finish_reason is not None) == seq.status.is_final, f"{seq!r} ends with {seq.finish_reason}")
            limit = seq.request.params.max_tokens
            _require(seq.num_output_tokens <= limit, f"{seq!r} wrote more than {limit} tokens")


def _check_plan(engine: Engine) -> None:
    plan, budget = engine.last_plan, engine.config.max_num_batched_tokens
    if plan is None:
        return
    _require(budget is None or plan.num_tokens <= budget, f"the plan has {plan.num_tokens} tokens, the budget {budget}")
    _require(len(plan.num_scheduled_tokens) <= engine.config.max_num_seqs, "the plan has more sequences than slots")
    slots = [slot for mapping in plan.slot_mapping.values() for slot in mapping]
    _require(len(slots) == len(set(slots)), "two tokens of one step are written to the same slot")
    holders = Counter(block for table in plan.block_tables.values() for block in set(table))
    shared = {slot // plan.block_size for slot in slots if holders[slot // plan.block_size] > 1}
    _require(not shared, f"blocks {shared} are written while several tables hold them")
    for seq in engine.scheduler.running:
        table = plan.block_tables.get(seq.id)
        if table is not None and not seq.is_beam:  # beams change tables after the forward
            _require(
                list(table) == seq.block_table[: len(table)], f"the runner saw {table}, {seq.id} has another table"
            )
