"""Every kernel against the float64 reference, in pools where any wrong read is NaN."""

import pytest
import torch

from kernels import cases, reference
from kernels.decode import decode
from kernels.paging import Paging
from kernels.prefill import prefill
from tests.kernels.conftest import DEVICE

ALL = list(cases.cases(DEVICE))


@pytest.mark.kernel
@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_the_reference(case, device):
    assert cases.run(case, device) <= cases.TOLERANCE[case.dtype]


def test_the_cases_cover_what_the_kernels_promise():
    assert {case.kernel for case in ALL} == {"decode", "contiguous", "prefill", "kv_write", "block_copy"}
    for kernel in ("decode", "prefill"):
        mine = [case for case in ALL if case.kernel == kernel]
        assert {case.dtype for case in mine} == set(cases.TOLERANCE)
        assert {16, 80, 96, 112, 128, 256} <= {case.head_dim for case in mine}
        assert {1, 256} <= {case.block_size for case in mine}
    assert {1, 15, 16, 17, 31, 300, 0} <= {length for case in ALL if case.kernel == "decode" for length in case.lengths}


@pytest.mark.kernel
def test_offsets_past_the_32_bit_limit(device):
    assert cases.far_apart(device) <= cases.TOLERANCE[torch.float16]


@pytest.mark.kernel
@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("dtype", cases.TOLERANCE, ids=str)
def test_neighbours_contents_change_no_bit(dtype, chunk, device):
    assert cases.neighbours(dtype, device, chunk)


def test_the_pool_is_hostile():
    case = cases.Case("decode", torch.float32, lengths=(5, 33))
    context = cases.make_context(case)
    assert context.keys[0].isnan().all()
    assert 0 not in [block for table in context.tables for block in table]
    assert int(context.keys[..., 0, 0].isfinite().sum()) == 38
    assert context.padded_tables()[0, -1] == cases.STALE


@pytest.mark.kernel
def test_positions_and_slots(device):
    """b = 4, table [7, 2, 9]: positions 0 to 9 lie in slots 28 to 31, 8 to 11, 36, 37; position 4 is in slot 8."""
    slots = [28, 29, 30, 31, 8, 9, 10, 11, 36, 37]
    values = torch.arange(40.0, device=device)[:, None].repeat(1, 16).view(10, 4, 1, 16)  # every slot holds its number
    keys = torch.zeros_like(values)
    assert reference.gather(values, [7, 2, 9], 10)[:, 0, 0].tolist() == slots
    query = torch.zeros(6, 1, 16, device=device)  # looks at all positions alike: the answer is their mean
    paging = Paging.checked([[7, 2, 9]], [10], 4, 10, device)
    assert decode(query[:1], keys, values, paging)[0, 0, 0].item() == pytest.approx(sum(slots) / 10)
    starts = torch.tensor([0, 6], dtype=torch.int32, device=device)
    found = prefill(query, keys, values, paging, starts, 6)[:, 0, 0].tolist()
    assert found == pytest.approx([sum(slots[:n]) / n for n in range(5, 11)])
