"""Samples to batches."""

from pathlib import Path

import numpy as np
import pytest
import torch

from core.queries import build_queries
from core.text import TextSpec, Tokenizer
from trainer.config import Recipe
from trainer.data.batch import Batch, Decoded, collate
from trainer.data.loader import BatchDataset, Schedule, load_batches, reason, validation_rows
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import encode_jpeg, write_shard
from trainer.data.shards import find_shards, index_shards
from trainer.sections import DataSection
from trainer.vocabulary import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    write_tokenizer(file)
    return file


def decoded(caption: str, *phrases: str) -> Decoded:
    square = np.zeros((8, 8, 3), np.uint8)
    return Decoded(square, caption, [square for _ in phrases], list(phrases), list(phrases))


def text_rows(batch: Batch, tokenizer: Tokenizer, rows: torch.Tensor) -> list[list[int]]:
    """The token ids that some rows of the distinct texts stand for."""
    texts = [row.tolist() for group in batch.tokens for row in group]
    end = tokenizer.vocabulary_size - 1
    return [texts[row][: texts[row].index(end) + 1] for row in rows.tolist()]


def test_every_node_points_at_its_own_text(tokenizer_file: Path) -> None:
    tokenizer = Tokenizer(tokenizer_file, TextSpec())
    samples = [
        decoded("Two dogs and a red car on a street. It rains.", "two dogs", "a red car"),
        decoded("A cat.", "a cat"),
        decoded("two dogs"),
    ]
    options = DataSection(train="unused", side=16)
    batch = collate(samples, tokenizer, options, ())

    def ids(texts: list[str]) -> list[list[int]]:
        return [entry.ids for entry in tokenizer.encode(texts)]

    assert text_rows(batch, tokenizer, batch.links.caption) == ids([s.caption for s in samples])
    phrases = [phrase for s in samples for phrase in s.phrases]
    assert text_rows(batch, tokenizer, batch.links.part_text) == ids(phrases)
    assert batch.links.part_owner.tolist() == [0, 0, 1]
    assert batch.links.part_count.tolist() == [2, 1, 0]
    queries = [build_queries(s.caption, s.phrases) for s in samples]
    active = [(o, q, qs) for o, qs in enumerate(queries) for q in qs if q.weight > 0]
    assert text_rows(batch, tokenizer, batch.links.query_text) == ids(
        [q.text for _, q, _ in active]
    )
    parents = [qs[q.parent].text for _, q, qs in active]
    assert text_rows(batch, tokenizer, batch.links.query_parent) == ids(parents)
    assert batch.links.query_owner.tolist() == [o for o, _, _ in active]
    assert batch.links.query_weight.tolist() == [q.weight for _, q, _ in active]
    slots = batch.query_slot.tolist()
    assert len(set(slots)) == len(slots)
    assert [slot // batch.query_slots for slot in slots] == batch.links.query_owner.tolist()


def test_each_distinct_text_is_encoded_once(tokenizer_file: Path) -> None:
    tokenizer = Tokenizer(tokenizer_file, TextSpec())
    samples = [decoded("a dog and a cat", "a dog"), decoded("a dog", "a dog", "a cat")]
    batch = collate(samples, tokenizer, DataSection(train="unused", side=16), ())
    rows = [tuple(row.tolist()) for group in batch.tokens for row in group]
    assert len(rows) == len(set(rows)) == 3
    assert batch.links.caption[1] == batch.links.part_text[0] == batch.links.part_text[1]


def test_what_is_the_same_has_the_same_id_in_every_batch(tokenizer_file: Path) -> None:
    tokenizer = Tokenizer(tokenizer_file, TextSpec())
    options = DataSection(train="unused", side=16)
    one = collate([decoded("a dog", "a paw", "a nose")], tokenizer, options, ())
    other = collate([decoded("a cat", "a nose"), decoded("a dog")], tokenizer, options, ())
    assert one.links.caption_id[0] == other.links.caption_id[1]
    assert one.links.part_text_id[1] == other.links.part_text_id[0]
    assert len({*one.links.part_text_id.tolist(), *other.links.caption_id.tolist()}) == 4


def test_processes_share_a_batch_without_a_gap(shards: Path) -> None:
    index = index_shards(find_shards(str(shards)))
    whole = [row for _, row in Schedule(index, 7, 0, 0, 5)]
    shares = [[row for _, row in Schedule(index, 7, 0, 0, 5, rank, 3)] for rank in range(3)]
    for row, *parts in zip(whole, *shares, strict=True):
        assert sorted(number for part in parts for number in part) == sorted(row)


def test_a_query_without_a_parent_says_so(tokenizer_file: Path) -> None:
    batch = collate(
        [decoded("ab", "a long enough phrase")],
        Tokenizer(tokenizer_file, TextSpec()),
        DataSection(train="unused", side=16),
        (),
    )
    assert batch.links.query_has_parent.tolist() == [0.0]


def test_bad_samples_are_left_out_and_counted(tmp_path: Path, tokenizer_file: Path) -> None:
    good = encode_jpeg(np.zeros((16, 16, 3), np.uint8))
    rows = [
        Sample("1", good, "a good one", ()),
        Sample("2", b"not a picture", "a caption", ()),
        Sample("3", good, "   ", ()),
        Sample("4", good[: len(good) // 2], "cut off", ()),
        Sample("5", good, "its part is broken", (Part(b"?", "part"),)),
    ]
    write_shard(tmp_path / "0.tar", rows)
    index = index_shards([tmp_path / "0.tar"])
    options = DataSection(train="unused", side=16)
    batch = BatchDataset(index, tokenizer_file, TextSpec(), options, 0)[(0, range(5))]
    assert isinstance(batch, Batch)
    assert len(batch) == 1
    assert all("0.tar: sample" in reason for reason in batch.skipped)
    assert sorted(map(reason, batch.skipped)) == ["empty caption"] + 3 * ["unreadable image"]


def test_the_parts_beyond_the_cap_are_left_out_at_random_and_in_order(
    tmp_path: Path, tokenizer_file: Path
) -> None:
    jpeg = encode_jpeg(np.zeros((16, 16, 3), np.uint8))
    parts = tuple(Part(jpeg, f"part {part}") for part in range(9))
    write_shard(tmp_path / "0.tar", [Sample("1", jpeg, "a caption", parts)])
    index = index_shards([tmp_path / "0.tar"])
    options = DataSection(train="unused", side=16, max_parts=4)
    dataset = BatchDataset(index, tokenizer_file, TextSpec(), options, 0)
    tokenizer = Tokenizer(tokenizer_file, TextSpec())
    seen = set()
    for epoch in range(20):
        batch = dataset[(epoch, [0])]
        assert isinstance(batch, Batch)
        numbers = [row[2] for row in text_rows(batch, tokenizer, batch.links.part_text)]
        assert len(numbers) == 4
        assert numbers == sorted(numbers)
        seen.update(numbers)
    assert len(seen) == 9


def test_a_stopped_run_goes_on_with_the_batches_it_would_have_had(shards: Path) -> None:
    index = index_shards(find_shards(str(shards)))
    whole = list(Schedule(index, 5, 0, 0, 11))
    assert list(Schedule(index, 5, 0, 7, 11)) == whole[7:]
    assert {epoch for epoch, _ in whole} == {0, 1, 2}


def test_worker_processes_change_nothing(
    recipe: Recipe, shards: Path, tokenizer_file: Path
) -> None:
    index = index_shards(find_shards(str(shards)))
    dataset = BatchDataset(index, tokenizer_file, TextSpec(), recipe.data, 0)
    schedule = Schedule(index, 8, 0, 0, 4)
    here, there = (list(load_batches(dataset, schedule, workers)) for workers in (0, 2))
    for one, other in zip(here, there, strict=True):
        assert isinstance(one, Batch)
        assert isinstance(other, Batch)
        assert isinstance(one.pictures, torch.Tensor)
        assert isinstance(other.pictures, torch.Tensor)
        assert torch.equal(one.pictures, other.pictures)
        assert torch.equal(one.links.query_text_id, other.links.query_text_id)
        assert all(map(torch.equal, one.tokens, other.tokens))


def test_validation_takes_each_photo_once(tmp_path: Path) -> None:
    rows = [Sample(f"photo/{number % 5}", b"i", f"caption {number}", ()) for number in range(15)]
    write_shard(tmp_path / "0.tar", rows)
    index = index_shards([tmp_path / "0.tar"])
    assert [len(row) for _, row in validation_rows(index, 2)] == [2, 2, 1]
