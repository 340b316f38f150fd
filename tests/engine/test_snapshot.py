"""SnapshotIndex: where states are kept, and hits as the minimum of blocks and states. See also test_hash_chain."""

import pytest

from engine.errors import ValidationError
from engine.snapshot import SnapshotIndex
from tests.engine.test_hash_chain import entered


@pytest.mark.parametrize("every", [0, -4, 6, 2, True, 4.0, "4"])
def test_states_stand_between_blocks(every):
    with pytest.raises(ValidationError, match="snapshot_tokens"):
        SnapshotIndex(4, every)


def test_a_hit_ends_at_the_last_state():
    index = entered(SnapshotIndex(4, 12), range(28), list(range(7)))
    assert index.snapshots == {2: 12, 5: 24}
    found = index.match((*range(20), 99))
    assert (found.blocks, found.stopped_at, found.why) == ((0, 1, 2), 3, "snapshot")
    found = index.match((*range(24), 99))
    assert (found.blocks, found.why) == (tuple(range(6)), "partial")
    found = index.match((*range(12), 99, 99, 99, 99, 99))
    assert (found.blocks, found.why) == ((0, 1, 2), "absent")
    found = index.match((*range(8), 99))
    assert (found.blocks, found.why) == ((), "snapshot")


def test_the_second_to_part_at_a_place_leaves_a_state_there():
    index = entered(SnapshotIndex(4, 100), (*range(8), 1, 1, 1, 1), [0, 1, 2])
    second = (*range(8), 2, 2, 2, 2)
    assert index.match(second).why == "snapshot"
    assert not index.snapshots
    index.publish("b", second[:4], [3])
    assert not index.snapshots
    index.publish("b", second, [3, 4, 5])
    assert index.snapshots == {1: 8}
    index.forget("b")
    assert index.match((*range(8), 3, 3, 3, 3)).blocks == (0, 1)


def test_no_state_is_left_without_a_look_up_that_wanted_it():
    index = entered(SnapshotIndex(4, 100), (*range(8), 1, 1, 1, 1), [0, 1, 2])
    entered(index, (*range(8), 2, 2, 2, 2), [3, 4, 5])
    assert not index.snapshots


def test_who_hit_beyond_a_branch_point_has_no_state_to_leave_there():
    index = entered(SnapshotIndex(4, 12), range(12), [0, 1, 2])
    assert index.match((*range(8), 99)).why == "snapshot"
    longer = (*range(12), 5)
    assert index.match(longer).blocks == (0, 1, 2)
    entered(index, longer, [0, 1, 2, 3], "b")
    assert index.snapshots == {2: 12}
    entered(index, (*range(8), 99), [4, 5, 6], "c")
    assert index.snapshots == {2: 12, 1: 8}


def test_a_state_goes_with_its_block():
    index = entered(SnapshotIndex(4, 4), range(12), [0, 1, 2])
    assert index.drop(1) == (1,)
    assert index.snapshots == {0: 4, 2: 12}
    assert index.match(range(13)).blocks == (0,)
    entered(index, range(8), [0, 7])
    assert index.snapshots == {0: 4, 7: 8, 2: 12}
    assert index.match(range(13)).blocks == (0, 7, 2)


def test_branch_points_go_with_their_blocks():
    index = entered(SnapshotIndex(4, 100), range(12), [0, 1, 2])
    for length in (5, 9, 13):
        assert index.match(range(length)).why == "snapshot"
    for block in (2, 1, 0):
        index.drop(block)
    entered(index, range(12), [0, 1, 2], "b")
    entered(index, range(12), [3, 4, 5], "c")
    assert not index.snapshots
