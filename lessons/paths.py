"""Source paths: how a figure names the quantity that it shows, without this package knowing the engine.

A path is one atom, or atoms joined by " + ", " - ", " * ", " / " (with blanks; * and / bind tighter). Atoms, all about
the lesson's workload (the 64 real replies, all there from the start) unless they begin with `anchor`:

    workload.count | min | max | sum           over the reply lengths
    workload.length.K                          length of request K, counted from 1
    POLICY.B.steps                             steps of the whole run; POLICY is static, continuous or prefill_first
    POLICY.B.utilisation                       useful cells / (B x steps), 0 to 1
    POLICY.B.useful_cells | cells | idle_cells cells = B x steps; idle = cells - useful
    POLICY.B.first_idle                        first step, as shown (from 1), in which some slot generates nothing
    POLICY.B.enter.R | leave.R                 the step, as shown, of request R's first and last token
    POLICY.B.slot.R                            the slot of request R, as shown (from 1)
    batch.B.count                              static batches of at most B
    batch.B.K.size                             requests in static batch K, from 1
    batch.B.K.steps | second                   its longest and second longest reply
    batch.B.K.alone                            steps - second: how long the longest writes alone
    batch.B.K.useful_cells | cells             its tokens; B x its steps
    anchor.KEY                                 a key of engine.anchor.figures()
    board.request.R.length | limit             request R of lesson 3's scene: its prompt, and prompt + reply at most
    board.K.SIDE.QUANTITY                      after K actions of that scene; SIDE is contiguous or paged, QUANTITY
                                               live, tail_waste, reserved, hole, free, live_share, pool_slots, unused
                                               (hole + free), largest_run, step (steps done)
    board.K.SIDE.written.R | block.R.L         slots that request R has written; physical block of its logical block L
    split.RULE.QUANTITY                        lesson 2's run under max, pow2, oracle or paged: steps, preemptions,
                                               recomputed_tokens, live_share, live_share_saturated, and the averages
                                               live, tail_waste, reserved, hole, free as shares of the pool
    split.prompt | limit | pool | slots        what those runs are set up with
    example.WAY                                the example of four requests: max, pow2, oracle (reserved), paged (blocks
                                               for prompt + reply), held, live (an engine's, at the last token)
    copies.N.P                                 slots that N requests with one prompt of P tokens hold twice or more
    fill.B.L.blocks | waste | last             a prompt of L tokens in blocks of B: blocks, tail, tokens in the last
    sizes.B.waste | table | lost               a row of the chart of block sizes (app/charts.py)

`POLICY.B.…@max` (also @pow2, @oracle) is the same run with contiguous KV memory instead of paged. Quantities of time
are seconds, of memory bytes; the figure's `format` turns them into units.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lessons.errors import LessonError

_ATOMS = [
    re.compile(pattern)
    for pattern in (
        r"workload\.(count|min|max|sum)",
        r"workload\.length\.([1-9]\d*)",
        r"(static|continuous|prefill_first)\.([1-9]\d*)\.(steps|utilisation|useful_cells|cells|idle_cells|first_idle)",
        r"(static|continuous|prefill_first)\.([1-9]\d*)\.(enter|leave|slot)\.([1-9]\d*)",
        r"batch\.([1-9]\d*)\.count",
        r"batch\.([1-9]\d*)\.([1-9]\d*)\.(size|steps|second|alone|useful_cells|cells)",
        r"anchor\.([a-z0-9_]+)",
        r"board\.request\.([1-9]\d*)\.(length|limit)",
        r"board\.(\d+)\.(contiguous|paged)\."
        r"(live|tail_waste|reserved|hole|free|live_share|pool_slots|unused|largest_run|step)",
        r"board\.(\d+)\.(contiguous|paged)\.(written\.([1-9]\d*)|block\.([1-9]\d*)\.(\d+))",
        r"fill\.([1-9]\d*)\.([1-9]\d*)\.(blocks|waste|last)",
        r"sizes\.([1-9]\d*)\.(waste|table|lost)",
        r"split\.(max|pow2|oracle|paged)\.(steps|preemptions|recomputed_tokens|live_share|live_share_saturated"
        r"|live|tail_waste|reserved|hole|free)",
        r"split\.(prompt|limit|pool|slots)",
        r"example\.(max|pow2|oracle|paged|held|live)",
        r"copies\.([1-9]\d*)\.([1-9]\d*)",
    )
]
_VARIANT = re.compile(r"(?P<path>.*)@(?P<kv>max|pow2|oracle)")
_OPERATOR = re.compile(r" ([-+*/]) ")


@dataclass(frozen=True)
class Atom:
    """One quantity: the path's parts with numbers as int, and the KV manager it is counted under.

    `Atom(("batch", 8, 1, "alone"), "paged")`
    """

    parts: tuple[str | int, ...]
    kv: str = "paged"


def parse(path: str) -> list[Atom | str]:
    """The path as atoms and operators in turn; LessonError if an atom is none of the list above."""
    pieces = _OPERATOR.split(path)
    return [piece if index % 2 else _atom(piece) for index, piece in enumerate(pieces)]


def evaluate(path: str, resolve: Callable[[Atom], float]) -> float:
    """The path's value, with `resolve` giving the value of each atom (ints stay ints where nothing is divided)."""
    total: float = 0
    sign, product = 1, None
    operator = "+"
    for piece in parse(path):
        if isinstance(piece, str):
            operator = piece
        elif product is None or operator in "+-":
            total += sign * (product or 0)
            sign, product = (-1 if operator == "-" else 1), resolve(piece)
        else:
            product = product * resolve(piece) if operator == "*" else product / resolve(piece)
    return total + sign * (product or 0)


def _atom(text: str) -> Atom:
    variant = _VARIANT.fullmatch(text)
    path, kv = (variant["path"], variant["kv"]) if variant else (text, "paged")
    known = any(pattern.fullmatch(path) for pattern in _ATOMS)
    if not known or (variant and not path.startswith(("static.", "continuous.", "prefill_first."))):
        raise LessonError(f"unknown source path '{text}': the paths are listed in lessons/paths.py")
    return Atom(tuple(int(part) if part.isdigit() else part for part in path.split(".")), kv)
