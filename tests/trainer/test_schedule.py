"""Which samples make which batch: exact for any stop, and any number of shards or processes."""

import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from core.errors import DataError
from core.text import TextSpec
from trainer.config import Recipe
from trainer.data.batch import Batch
from trainer.data.loader import BatchDataset, Schedule, load_batches
from trainer.data.sample import Sample
from trainer.data.shard_writer import write_shard
from trainer.data.shards import ShardIndex, find_shards, index_shards
from trainer.vocabulary import write_tokenizer


def one_shard(folder: Path, samples: int, captions: int = 1) -> ShardIndex:
    """An index of a single shard; some captions share a photo."""
    rows = [Sample(f"photo/{number // captions}", b"i", "a text", ()) for number in range(samples)]
    write_shard(folder / "00000.tar", rows)
    return index_shards([folder / "00000.tar"])


def batches(index: ShardIndex, first: int, last: int, ranks: int = 1) -> list[tuple[int, set[int]]]:
    """Epoch and samples of each batch, put together from the shares of all processes."""
    shares = [list(Schedule(index, 6, 3, first, last, rank, ranks)) for rank in range(ranks)]
    return [
        (step[0][0], {number for _, numbers in step for number in numbers})
        for step in zip(*shares, strict=True)
    ]


@pytest.mark.parametrize("captions", [1, 3])
@pytest.mark.parametrize("samples", [18, 20, 23])
def test_a_run_that_stops_anywhere_goes_on_with_any_number_of_processes(
    tmp_path: Path, samples: int, captions: int
) -> None:
    index = one_shard(tmp_path, samples, captions)
    whole = batches(index, 0, 14)
    assert all(len(numbers) == 6 for _, numbers in whole)
    for stop, ranks in [(1, 4), (2, 2), (3, 6), (4, 1), (6, 5), (9, 3), (13, 2)]:
        assert batches(index, stop, 14, ranks) == whole[stop:]


def test_an_epoch_ends_where_no_batch_can_be_filled_and_the_next_has_another_order(
    tmp_path: Path,
) -> None:
    index = one_shard(tmp_path, 20)
    steps = batches(index, 0, 9)
    assert [epoch for epoch, _ in steps] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    seen = [set().union(*(numbers for _, numbers in steps[start : start + 3])) for start in (0, 3)]
    assert [len(numbers) for numbers in seen] == [18, 18]  # none of them twice
    assert seen[0] != seen[1]  # others are left out


def test_samples_for_one_batch_make_one_an_epoch_and_one_sample_less_makes_none(
    tmp_path: Path,
) -> None:
    exactly = one_shard(tmp_path / "exactly", 6)
    assert batches(exactly, 0, 3) == [(epoch, set(range(6))) for epoch in range(3)]
    one_more = batches(one_shard(tmp_path / "more", 7), 0, 40)
    assert set().union(*(numbers for _, numbers in one_more)) == set(range(7))
    with pytest.raises(DataError, match="5 photos cannot fill a batch of 6"):
        batches(one_shard(tmp_path / "less", 5), 0, 1)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker")
@pytest.mark.parametrize("pinned", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_one_shard_and_many_workers_neither_hang_nor_repeat(
    recipe: Recipe, shards: Path, tmp_path: Path, *, pinned: bool
) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    index = index_shards(find_shards(str(shards / "00000.tar")))
    dataset = BatchDataset(index, tmp_path / "tokenizer.json", TextSpec(), recipe.data, 0)
    schedule = Schedule(index, 5, 0, 0, 7)  # three epochs of two batches, and one batch
    made = list(load_batches(dataset, schedule, 4, pinned=pinned))
    assert len(made) == 7
    for batch, (epoch, numbers) in zip(made, schedule, strict=True):
        expected = dataset[epoch, numbers]
        assert isinstance(expected, Batch)
        assert isinstance(batch.pictures, torch.Tensor)
        assert isinstance(expected.pictures, torch.Tensor)
        assert torch.equal(batch.pictures, expected.pictures)
        assert torch.equal(batch.links.caption_id, expected.links.caption_id)
        assert batch.pictures.is_pinned() == pinned


def test_workers_end_when_the_loop_is_left_early(
    recipe: Recipe, shards: Path, tmp_path: Path
) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    index = index_shards(find_shards(str(shards)))
    dataset = BatchDataset(index, tmp_path / "tokenizer.json", TextSpec(), recipe.data, 0)
    made = load_batches(dataset, Schedule(index, 5, 0, 0, 1000), 2)
    assert [len(batch) for batch in islice(made, 2)] == [5, 5]
    start = time.monotonic()
    made.close()
    assert time.monotonic() - start < 60
    assert torch.multiprocessing.active_children() == []


def test_every_sample_of_a_long_run_is_met_equally_often(tmp_path: Path) -> None:
    index = one_shard(tmp_path, 21, captions=3)
    met = np.zeros(21, int)
    for _, numbers in batches(index, 0, 700):
        met[list(numbers)] += 1
    assert met.sum() == 4200
    assert np.abs(met - 200).max() < 30
