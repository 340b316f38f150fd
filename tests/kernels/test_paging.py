"""Tables, lengths, slots and tensors that a kernel would read or write wrongly are errors before any launch."""

import pytest
import torch

from kernels.block_copy import block_copy
from kernels.contiguous import decode_contiguous
from kernels.decode import decode
from kernels.errors import KernelError
from kernels.kv_write import kv_write
from kernels.paging import Paging, check_slots
from kernels.prefill import prefill


def make(dtype=torch.float32, dim=16, blocks=10, size=4, kv_heads=2, heads=4, rows=1):
    keys = torch.zeros(blocks, size, kv_heads, dim, dtype=dtype)
    return torch.zeros(rows, heads, dim, dtype=dtype), keys, torch.zeros_like(keys)


def launch(kernel, query, keys, values, paging):
    if kernel == "decode":
        return decode(query, keys, values, paging)
    starts = torch.tensor([0, len(query)], dtype=torch.int32)
    return prefill(query, keys, values, paging, starts, len(query))


def test_position_to_slot_and_a_length_beyond_the_table():
    """b = 4, table [7, 2, 9]: twelve positions; the thirteenth is an error, not a read."""
    paging = Paging.checked([[7, 2, 9]], [12], 4, 10)
    assert paging.tables.tolist() == [[7, 2, 9]]
    assert (paging.longest, paging.total) == (12, 12)
    with pytest.raises(KernelError, match="length 13, its table has room for 12"):
        Paging.checked([[7, 2, 9]], [13], 4, 10)
    with pytest.raises(KernelError, match="sequence 1 has length 5, its table has room for 4"):
        Paging.checked([[7, 2, 9], [3]], [12, 5], 4, 10)
    with pytest.raises(KernelError, match="length -1"):
        Paging.checked([[7, 2, 9]], [-1], 4, 10)
    with pytest.raises(KernelError, match="1 tables for 2 lengths"):
        Paging.checked([[7, 2, 9]], [1, 1], 4, 10)


@pytest.mark.parametrize("block", [-1, 10, 2**30])
def test_block_ids_out_of_range(block):
    with pytest.raises(KernelError, match=f"entry 1 of table 0 is block {block}"):
        Paging.checked([[7, block, 9]], [5], 4, 10)
    stale = Paging.checked([[7, block, 9]], [4], 4, 10)  # behind the last block anything may stand
    assert stale.lengths.tolist() == [4]


def test_slots():
    check_slots(torch.tensor([28, 29, -1, 39, -1]), 40)
    for wrong in ([-2], [40]):
        with pytest.raises(KernelError, match=f"slot {wrong[0]}"):
            check_slots(torch.tensor(wrong), 40)
    with pytest.raises(KernelError, match="two tokens"):
        check_slots(torch.tensor([3, 3]), 40)


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_types_and_head_dimensions(kernel):
    paging = Paging.checked([[7, 2, 9]], [9], 4, 10)
    with pytest.raises(KernelError, match="float64: the kernels know float32, float16, bfloat16"):
        launch(kernel, *make(torch.float64), paging)
    for dim in (8, 24, 272):
        with pytest.raises(KernelError, match=f"head_dim {dim}"):
            launch(kernel, *make(dim=dim), paging)
    query, keys, values = make()
    with pytest.raises(KernelError, match="must agree"):
        launch(kernel, query.half(), keys, values, paging)
    with pytest.raises(KernelError, match="3 query heads cannot share 2"):
        launch(kernel, query[:, :3], keys, values, paging)
    with pytest.raises(KernelError, match="block size 300"):
        launch(kernel, *make(size=300), Paging.checked([[0]], [1], 300, 10))


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_unaligned_tensors(kernel):
    paging = Paging.checked([[7, 2, 9]], [9], 4, 10)
    query, keys, values = make()
    odd = torch.zeros(10, 4, 2, 24)[..., :16]  # heads lie 24 elements apart
    with pytest.raises(KernelError, match="keys has strides"):
        launch(kernel, query, odd, odd, paging)
    late = torch.zeros(10 * 4 * 2 * 16 + 1)[1:].view(10, 4, 2, 16)
    with pytest.raises(KernelError, match="values must begin at a multiple of 16 bytes"):
        launch(kernel, query, keys, late, paging)
    with pytest.raises(KernelError, match="query has strides"):
        launch(kernel, torch.zeros(1, 4, 24)[..., :16], keys, values, paging)
    with pytest.raises(KernelError, match="last dimension of query"):
        launch(kernel, torch.zeros(1, 16, 4).transpose(1, 2), keys, values, paging)
    with pytest.raises(KernelError, match="agree in shape, strides"):
        launch(kernel, query, keys, torch.zeros(10, 2, 4, 16).transpose(1, 2), paging)


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_shapes(kernel):
    query, keys, values = make()
    with pytest.raises(KernelError, match="query has shape"):
        launch(kernel, torch.zeros(1, 4, 32), keys, values, Paging.checked([[7]], [1], 4, 10))
    with pytest.raises(KernelError, match="keys has shape"):
        launch(kernel, query, keys, values, Paging.checked([[7]], [1], 8, 10))  # tables of another block size
    with pytest.raises(KernelError, match="has shape"):
        launch(kernel, query, keys, values, Paging.checked([[7], [2]], [1, 1], 4, 10))


def test_kv_write_refuses():
    _, keys, values = make()
    slots = torch.tensor([0, 1, 2])
    good = torch.zeros(3, 2, 16)
    with pytest.raises(KernelError, match="key has shape"):
        kv_write(good[:2], good, keys, values, slots)
    with pytest.raises(KernelError, match="value is torch"):
        kv_write(good, good.half(), keys, values, slots)
    with pytest.raises(KernelError, match="key has strides"):
        kv_write(torch.zeros(3, 2, 24)[..., :16], good, keys, values, slots)


def test_contiguous_refuses():
    query, _, _ = make()
    with pytest.raises(KernelError, match="keys has shape"):
        decode_contiguous(query, torch.zeros(2, 8, 2, 16), torch.zeros(2, 8, 2, 16), torch.tensor([8]))
    with pytest.raises(KernelError, match="values has shape"):
        decode_contiguous(query, torch.zeros(1, 8, 2, 16), torch.zeros(1, 9, 2, 16), torch.tensor([8]))


def test_block_copy_refuses():
    _, keys, _ = make()
    with pytest.raises(KernelError, match="destination blocks 1 to 10"):
        block_copy(keys, keys, [(0, 1), (0, 10)])
    with pytest.raises(KernelError, match="source blocks -1 to 0"):
        block_copy(keys, keys, [(-1, 1), (0, 2)])
    with pytest.raises(KernelError, match="written twice"):
        block_copy(keys, keys, [(0, 1), (2, 1)])
    with pytest.raises(KernelError, match=r"blocks \[1\] are both read and written"):
        block_copy(keys, keys, [(0, 1), (1, 2)])
    with pytest.raises(KernelError, match="agree in block shape"):
        block_copy(keys, torch.zeros(10, 8, 2, 16), [(0, 1)])
    block_copy(keys, keys, [])
