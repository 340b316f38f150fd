"""The number of splits: none where the GPU is full or contexts are short, never a cliff in between."""

import pytest

from kernels.splits import FULL_ENOUGH, MAX_SPLITS, MIN_TILES, choose_splits

PLACES = 264


def test_none_if_the_gpu_is_full_or_the_context_short():
    assert choose_splits(64, 8, 64, PLACES) == 1
    assert choose_splits(1, 8, 2 * MIN_TILES - 1, PLACES) == 1
    assert choose_splits(1, 8, 2 * MIN_TILES, PLACES) == 2


@pytest.mark.parametrize("tiles", [8, 64, 128, 512])
def test_splits_fill_the_last_wave_and_keep_a_least_size(tiles):
    for sequences in range(1, 257):
        splits = choose_splits(sequences, 8, tiles, PLACES)
        blocks = sequences * 8
        assert 1 <= splits <= MAX_SPLITS
        if blocks >= FULL_ENOUGH * PLACES:
            assert splits == 1
        else:
            assert splits == 1 or tiles // splits >= MIN_TILES
            wanted = min(tiles // MIN_TILES, PLACES // blocks)
            assert blocks * splits >= 0.7 * min(blocks * wanted, PLACES)


def test_one_long_sequence_among_short_ones_is_split_as_if_alone():
    lengths = [32768] + [16] * 31
    alone = choose_splits(1, 8, 512, PLACES)
    assert choose_splits(sum(lengths) / max(lengths), 8, 512, PLACES) == alone > 1
