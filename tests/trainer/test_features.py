"""A frozen tower's features, kept on disk: what they save must not change what is trained."""

import json
import os
import re
import signal
import subprocess
import threading
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessExitedException, start_processes

from core.errors import DataError, StorageError
from core.lock import take_lock
from trainer.config import Recipe
from trainer.data.augment import normalise, to_float
from trainer.data.batch import Seen
from trainer.data.pictures import pictures
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import write_shard
from trainer.data.shards import ShardIndex, find_shards, index_shards, read_sample
from trainer.features.precompute import Used, stored_features
from trainer.features.store import Features, known_pictures, look_through
from trainer.features.table import Table, Writer
from trainer.model import DualEncoder
from trainer.run import train

CPU = torch.device("cpu")


def console() -> Console:
    return Console(file=StringIO(), width=300)


def said(told: Console) -> str:
    assert isinstance(told.file, StringIO)
    return told.file.getvalue()


def rows(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == split]


def losses(folder: Path, split: str = "train") -> list[float]:
    return [row["loss"] for row in rows(folder, split)]


def changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    dump = recipe.model_dump()
    for section, values in sections.items():
        dump[section] = dump[section] | values if "kind" not in values else values
    return Recipe.model_validate(dump)


@pytest.fixture
def frozen(recipe: Recipe) -> Recipe:
    """A frozen tower and no augmentation, without stored features."""
    return changed(
        recipe,
        image_tower={"kind": "conv", "widths": (8, 16), "frozen": True},
        augment={
            "crop_scale": (1.0, 1.0), "jitter_probability": 0.0, "grayscale_probability": 0.0,
        },
    )  # fmt: skip


@pytest.fixture
def kept(frozen: Recipe, tmp_path: Path) -> Recipe:
    """The same, with stored features and another folder."""
    return changed(frozen, data={"features": tmp_path / "features"}, run={"out": tmp_path / "kept"})


def tower_of(recipe: Recipe, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return DualEncoder(recipe).image_tower


def used_by(recipe: Recipe) -> Used:
    index = index_shards(find_shards(recipe.data.train))
    return Used(index, np.arange(len(index)))


def fill(recipe: Recipe, tower: nn.Module | None = None, told: Console | None = None) -> Features:
    """What is kept for the training shards."""
    tower = tower or tower_of(recipe)
    (features,) = stored_features(recipe, tower, CPU, [used_by(recipe)], told or console())
    return features


def in_place(recipe: Recipe, tower: nn.Module, index: ShardIndex, number: int) -> Seen:
    """What the tower gives for the whole and the parts of a sample."""
    sample = read_sample(index, number)
    squares = torch.from_numpy(np.stack(pictures(sample, sample.parts, recipe.data)))
    with torch.inference_mode():
        return Seen(*tower(normalise(to_float(squares), recipe.data)))


@pytest.mark.parametrize(
    ("objective", "precision"),
    [("hyper3", "fp32"), ("hyper3", "bf16"), ("hycoclip", "fp32"), ("clip", "fp32")],
)
def test_a_run_on_stored_features_takes_the_steps_of_one_that_runs_its_tower(
    frozen: Recipe, kept: Recipe, objective: str, precision: str
) -> None:
    plain, stored = (
        changed(one, objective={"kind": objective}, optim={"precision": precision})
        for one in (frozen, kept)
    )
    train(plain, console())
    train(stored, console())
    # A feature is rounded to 11 bits; without, bfloat16 rounds it to 8 in the tower of a CPU.
    tolerance = {"fp32": 1e-3, "bf16": 5e-3}[precision]
    for split in ("train", "val"):
        assert losses(stored.folder, split) == pytest.approx(
            losses(plain.folder, split), rel=tolerance
        )


@pytest.mark.parametrize("boxes", [False, True])
def test_stored_features_are_what_the_tower_gives(kept: Recipe, shards: Path, boxes: bool) -> None:
    if boxes:
        in_boxes(shards)
    features, tower, index = fill(kept), tower_of(kept), used_by(kept).index
    for number in range(len(index)):
        count = len(read_sample(index, number).parts)
        expected = in_place(kept, tower, index, number)
        found, patches = features.of(number, range(count))
        np.testing.assert_allclose(np.stack(found), expected.feature, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(patches, expected.patches[0], rtol=1e-3, atol=1e-5)


def in_boxes(shards: Path) -> None:
    """The same shards, but that parts are boxes of their whole."""
    index = index_shards(sorted(shards.glob("*.tar")))
    samples = [read_sample(index, number) for number in range(len(index))]
    for path in shards.glob("*.tar"):
        path.unlink()
    write_shard(
        shards / "boxes.tar",
        [
            Sample(
                one.photo, one.jpeg, one.text,
                tuple(
                    Part(None, part.text, part.name, (0.1 * place, 0.0, 0.5 + 0.1 * place, 0.7))
                    for place, part in enumerate(one.parts)
                ),
            )
            for one in samples
        ],
    )  # fmt: skip


def test_parts_that_are_boxes_train_as_without_stored_features(
    frozen: Recipe, kept: Recipe, shards: Path
) -> None:
    in_boxes(shards)
    for one in (frozen, kept):
        train(changed(one, data={"max_parts": 1, "workers": 1}), console())
    assert losses(kept.folder) == pytest.approx(losses(frozen.folder), rel=1e-3)


def test_captions_of_one_photo_share_its_row_and_a_second_run_computes_nothing(
    kept: Recipe, shards: Path
) -> None:
    index = index_shards(sorted(shards.glob("*.tar")))
    first = read_sample(index, 3)
    more = [Sample(first.photo, first.jpeg, f"caption {n}", first.parts) for n in range(5)]
    write_shard(shards / "more.tar", more)
    told = console()
    features = fill(kept, told=told)
    # 24 wholes and 0 + 1 + 2 + 3 parts of every four of them.
    assert len(features.feature.table.keys()) == 24 + 36
    assert features.patches is not None
    assert len(features.patches.table.keys()) == 24
    assert "60 were computed now" in said(told)
    fill(kept, told=(again := console()))
    assert "60 pictures is in" in said(again)
    assert "0 were computed now" in said(again)


def test_new_shards_cost_only_their_own_pictures(kept: Recipe, shards: Path) -> None:
    fill(kept)
    index = index_shards(sorted(shards.glob("*.tar")))
    one, other = read_sample(index, 3), read_sample(index, 8)
    mixed = Sample("new", one.jpeg, "a caption", (Part(other.jpeg, "a thing"), *one.parts))
    black = Part(one.jpeg[:-2] + b"\0\0\xff\xd9", "another file")
    write_shard(shards / "more.tar", [mixed, Sample("x", other.jpeg, "a caption", (black,))])
    fill(kept, told=(told := console()))
    assert "1 were computed now" in said(told)


def test_shards_of_other_pictures_are_looked_through_though_size_and_time_are_kept(
    kept: Recipe, tmp_path: Path
) -> None:
    index, counts = used_by(kept).index, list[int]()
    look_through(index, tmp_path / "features", counts.append)
    assert counts[-1] == len(index)
    assert known_pictures(index, tmp_path / "features")
    (first, _) = index.shards
    before = first.stat()
    first.write_bytes(first.read_bytes())
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert known_pictures(index, tmp_path / "features") is None

    def replaced(done: int) -> None:
        os.utime(first, ns=(done, done))

    with pytest.raises(DataError, match="were replaced while"):
        look_through(index, tmp_path / "features", replaced)
    assert known_pictures(index, tmp_path / "features") is None


def test_a_tower_that_has_changed_meets_nothing_of_another(kept: Recipe) -> None:
    before = fill(kept)
    keys = before.feature.table.keys().tolist()
    after = fill(kept, tower_of(kept, seed=1))
    assert after.feature.table.folder != before.feature.table.folder
    assert before.feature.table.keys().tolist() == keys
    larger = fill(changed(kept, data={"side": 48}))
    assert larger.feature.table.folder not in {
        before.feature.table.folder, after.feature.table.folder,
    }  # fmt: skip


def test_patches_are_stored_once_a_system_needs_them(kept: Recipe) -> None:
    clip = changed(kept, objective={"kind": "clip", "query_weight": 0.0})
    features = fill(clip)
    assert features.patches is None
    assert len(features.feature.table.keys()) == 24  # no parts either
    whole = fill(kept, told=(told := console()))
    assert whole.feature.table.folder == features.feature.table.folder
    assert "60 were computed now" in said(told)  # 24 for their patches, 36 parts
    index, tower = used_by(kept).index, tower_of(kept)
    np.testing.assert_allclose(
        whole.of(5, ())[1], in_place(kept, tower, index, 5).patches[0], rtol=1e-3, atol=1e-5
    )


class Deadly(nn.Module):
    """A tower whose process is killed at its n-th call."""

    def __init__(self, tower: nn.Module, calls: int) -> None:
        super().__init__()
        self.tower, self.calls = tower, calls

    def forward(self, images: Tensor) -> Seen:
        self.calls -= 1
        if not self.calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return Seen(*self.tower(images))

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.tower.state_dict()


def killed(_rank: int, recipe: Recipe, calls: int) -> None:
    """Filling in a process of its own, which does not see its end."""
    torch.set_num_threads(1)  # threads do not survive a fork
    fill(recipe, Deadly(tower_of(recipe), calls))


def test_a_filling_that_was_killed_goes_on_where_it_was(kept: Recipe, shards: Path) -> None:
    index = index_shards(sorted(shards.glob("*.tar")))
    base = read_sample(index, 0).jpeg
    many = [  # bytes behind the end of a JPEG make another file of the same picture
        Sample(f"{n}", base + n.to_bytes(2, "big"), "a caption", ()) for n in range(700)
    ]
    write_shard(shards / "more.tar", many)
    with pytest.raises(ProcessExitedException, match="SIGKILL"):
        start_processes(killed, (kept, 12), nprocs=1, start_method="fork")
    (folder,) = [path.parent for path in (shards.parent / "features").glob("*/feature.keys")]
    assert (folder / "feature.f16").stat().st_size % (2 * 32) == 0
    done = len(Table(folder, "feature", (32,)).keys())
    assert done == 512  # at the eighth batch of 64, and lost what came behind
    features = fill(kept, told=(told := console()))
    assert f"{60 + 700 - done} were computed now" in said(told)
    seen = in_place(kept, tower_of(kept), index, 7)
    np.testing.assert_allclose(features.of(7, ())[0][0], seen.feature[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("torn", [1, 15, 17])
def test_rows_that_were_torn_are_not_used(tmp_path: Path, torn: int) -> None:
    table = Table(tmp_path, "feature", (4,))
    values = np.arange(12, dtype=np.float16).reshape(3, 4)
    keys = [bytes([n]) * 15 + b"\0" for n in (7, 3, 9)]  # numpy hides the zero
    with Writer(table) as writer:
        writer.append(keys[:2], values[:2])
        writer.commit()
        writer.append(keys[2:], values[2:])  # and then the power fails
    with table.file("keys").open("ab") as file:
        file.write(b"x" * torn)
    with table.file("f16").open("r+b") as file:
        file.truncate(2 * 8 + torn % 8)
    assert len(table.keys()) == 2
    with Writer(table) as writer:
        writer.append(keys[2:], values[2:])
        writer.commit()
    found = table.find(np.array([*keys, b"absent"], "S16"))
    assert found.tolist() == [0, 1, 2, -1]
    np.testing.assert_array_equal(table.values(3), values)


def test_a_second_process_waits_for_the_one_that_fills_and_says_so(kept: Recipe) -> None:
    told, found = console(), []
    folder = kept.data.features
    assert folder is not None
    with closing(take_lock(folder)):
        waiting = threading.Thread(target=lambda: found.append(fill(kept, told=told)))
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        assert f"{folder}: process {os.getpid()} is filling it" in said(told)
    waiting.join(60)
    assert len(found) == 1


def filled_by_one(_rank: int, recipe: Recipe, folder: Path) -> None:
    torch.set_num_threads(1)
    told = console()
    fill(recipe, told=told)
    (folder / f"{os.getpid()}").write_text(said(told))


def test_two_processes_at_once_share_the_work(kept: Recipe, tmp_path: Path) -> None:
    (out := tmp_path / "said").mkdir()
    start_processes(filled_by_one, (kept, out), nprocs=2, start_method="fork")
    every = [re.findall(r"(\d+) were computed now", path.read_text()) for path in out.iterdir()]
    assert sorted(every) == [["0"], ["60"]]


def test_broken_pictures_are_left_out_and_counted_as_ever(
    frozen: Recipe, kept: Recipe, shards: Path
) -> None:
    index = index_shards(sorted(shards.glob("*.tar")))
    good = read_sample(index, 3)
    bad = [
        Sample("bad", b"no picture", "a caption", ()),
        Sample("part", good.jpeg, "a caption", (Part(good.jpeg[:100], "a phrase"),)),
        Sample("mute", good.jpeg, "", ()),
        Sample("fine", good.jpeg, "a caption", (Part(b"never looked at", ""), *good.parts)),
    ]
    write_shard(shards / "more.tar", bad)
    told = {}
    for one in (frozen, kept):
        whole = changed(one, optim={"batch_size": 28, "steps": 2})
        train(whole, out := console())
        told[one.folder] = [line for line in said(out).splitlines() if "left out" in line]
        assert rows(one.folder)[-1]["data/left_out"] == 6
    assert told[kept.folder] == told[frozen.folder]
    assert any("unreadable image" in line for line in told[kept.folder])
    train(changed(kept, optim={"batch_size": 28, "steps": 2}, run={"out": kept.folder / "again"}),
          out := console())  # fmt: skip
    assert "0 were computed now" in said(out)  # what is broken is remembered
    assert "2 pictures cannot be decoded" in said(out)


def test_a_disk_that_cannot_hold_the_features_is_named_before_anything_is_computed(
    kept: Recipe, tmp_path: Path
) -> None:
    (small := tmp_path / "small").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        with pytest.raises(StorageError, match=r"60 pictures take .* free there: make room"):
            fill(changed(kept, data={"features": small}))
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_features_without_a_frozen_tower_or_with_augmentation_are_refused(recipe: Recipe) -> None:
    with pytest.raises(ValueError, match=r"set image_tower\.frozen=true, augment\.crop_scale"):
        changed(recipe, data={"features": Path("features")})


def test_a_feature_that_half_precision_cannot_hold_is_an_error(kept: Recipe) -> None:
    tower = tower_of(kept)
    with torch.no_grad():
        for name, value in tower.named_parameters():
            if name.endswith("weight"):
                value.mul_(1e6)
    with pytest.raises(DataError, match="over 65,504"):
        fill(kept, tower)
