"""The demo data: what is drawn, what is written, and what is kept apart."""

import gc
import json
import random
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import webdataset as wds
from PIL import Image

from core.errors import DataError, StorageError
from trainer.scenes import art, write
from trainer.scenes.art import Sprite
from trainer.scenes.compose import (
    Backdrop,
    Plan,
    Scene,
    compose,
    draw_backdrop,
    draw_plan,
    overlap,
)
from trainer.scenes.palette import PALETTE
from trainer.scenes.write import SceneSettings, is_complete, scenes_of, write_scenes

SMALL = SceneSettings(train=30, val=8, test=12, seed=3)


@pytest.fixture(scope="module")
def sprites() -> dict[str, Sprite]:
    return {thing.name: art.load_sprite(thing, "twemoji") for thing in art.catalogue()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes")
    write_scenes(out, SMALL, 1, lambda _: None)
    return out


def first_scenes(split: str, count: int) -> list[Scene]:
    return [scene for _, scene in islice(scenes_of(SMALL, split, 0), count)]


def read_shard(path: Path) -> list[dict[str, bytes]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset does not close its file
        samples = list(wds.WebDataset(str(path), shardshuffle=False))
        gc.collect()
    return samples


def records_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_name_and_every_picture_is_used_once() -> None:
    things = art.catalogue()
    assert len(things) > 700
    assert len({thing.name for thing in things}) == len(things)
    assert len({thing.code for thing in things}) == len(things)


def test_no_name_holds_a_word_at_which_the_query_hierarchy_splits() -> None:
    splitters = {"and", "with", "near", "beside", "behind", "under", "above", "around"}
    for thing in art.catalogue():
        assert not splitters & set(thing.name.split()), thing.name


def test_every_group_keeps_most_of_its_things_for_training() -> None:
    trained, held_out = art.split_things(art.catalogue())
    assert {t.group for t in held_out} <= {t.group for t in trained}
    assert not {t.name for t in trained} & {t.name for t in held_out}
    assert 0.05 < len(held_out) / (len(held_out) + len(trained)) < 0.12


@pytest.mark.parametrize("kind", ["plain", "gradient", "stripes", "checks", "noise", "spots"])
def test_a_backdrop_shows_the_colours_it_is_named_after(kind: str) -> None:
    colours = ("blue",) if kind in {"plain", "noise"} else ("blue", "yellow")
    pixels = draw_backdrop(random.Random(0), Backdrop(kind, colours), 64)
    flat = pixels.reshape(-1, 3).astype(float)
    for name in colours:
        share = (np.linalg.norm(flat - PALETTE[name], axis=-1) < 60).mean()
        assert share > 0.05, name


def test_nothing_outside_the_boxes_differs_from_the_backdrop(sprites: dict[str, Sprite]) -> None:
    rng = random.Random(1)
    for seed in range(60):
        drawn = draw_plan(rng, art.catalogue(), sprites)
        plan = Plan(drawn.counts, Backdrop("plain", drawn.backdrop.colours[:1]))
        scene = compose(random.Random(seed), plan, sprites, 64)
        backdrop = draw_backdrop(random.Random(seed), plan.backdrop, 64)
        outside = np.ones((64, 64), bool)
        for group in scene.groups:
            for left, top, right, bottom in group.boxes:
                outside[top:bottom, left:right] = False
        assert (scene.pixels[outside] == backdrop[outside]).all()


def test_a_box_is_tight_and_inside_the_picture(sprites: dict[str, Sprite]) -> None:
    thing = next(thing for thing in art.catalogue() if thing.name == "red apple")
    plan = Plan(((thing, 1),), Backdrop("plain", ("white",)))
    for seed in range(50):
        scene = compose(random.Random(seed), plan, sprites, 64)
        ((left, top, right, bottom),) = scene.groups[0].boxes
        assert 0 <= left < right <= 64
        assert 0 <= top < bottom <= 64
        differs = np.abs(scene.pixels.astype(int) - scene.pixels[0, 0]).sum(-1) > 0
        rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
        if not differs[0, 0] and (left, top) != (0, 0):
            assert (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1) == (
                left,
                top,
                right,
                bottom,
            )


def test_things_hardly_cover_each_other() -> None:
    shares = [
        overlap(one, other)
        for scene in first_scenes("train", 300)
        for boxes in [[box for group in scene.groups for box in group.boxes]]
        for i, one in enumerate(boxes)
        for other in boxes[:i]
    ]
    assert np.mean(np.array(shares) > 0.06) < 0.03
    assert max(shares) < 0.6


def test_a_scene_holds_one_to_five_things_and_each_number_occurs() -> None:
    numbers = {sum(len(g.boxes) for g in scene.groups) for scene in first_scenes("train", 200)}
    assert numbers == {1, 2, 3, 4, 5}


def test_a_group_of_a_scene_is_a_thing_of_its_own() -> None:
    for scene in first_scenes("train", 200):
        assert len({group.thing.name for group in scene.groups}) == len(scene.groups)


def test_no_scene_of_one_split_shows_what_a_scene_of_another_shows() -> None:
    keys = {
        split: {
            Plan(tuple((g.thing, len(g.boxes)) for g in scene.groups), scene.backdrop).key
            for scene in first_scenes(split, 400)
        }
        for split in ("train", "val", "test")
    }
    assert not keys["train"] & keys["val"]
    assert not keys["train"] & keys["test"]
    assert not keys["val"] & keys["test"]


def test_the_bytes_do_not_depend_on_the_number_of_workers(folder: Path, tmp_path: Path) -> None:
    write_scenes(tmp_path, SMALL, 2, lambda _: None)
    ours = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert ours == sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    for path in ours:
        assert (tmp_path / path).read_bytes() == (folder / path).read_bytes(), path


def test_another_seed_gives_other_scenes() -> None:
    (_, one), (_, other) = (
        next(scenes_of(SceneSettings(seed=seed), "train", 0)) for seed in (0, 1)
    )
    assert (one.pixels != other.pixels).any()


def test_webdataset_reads_the_shards(folder: Path) -> None:
    samples = read_shard(folder / "train" / "00000.tar")
    assert len(samples) == SMALL.train
    for sample in samples:
        about = json.loads(sample["json"])
        parts = int(sample["numparents.txt"])
        assert len(about["names"]) == parts >= 1
        assert all(f"parent{index:03d}.txt" in sample for index in range(parts))
    assert len({json.loads(sample["json"])["photo"] for sample in samples}) == SMALL.train


def test_the_tests_of_a_folder_have_distinct_captions_and_lossless_pictures(folder: Path) -> None:
    for split in ("test", "test_unseen_style", "test_unseen_things"):
        records = records_of(folder / f"{split}.jsonl")
        captions = [record["captions"][0] for record in records]  # type: ignore[index]
        assert len(captions) == len(set(captions)) == SMALL.test
        with Image.open(folder / str(records[0]["image"])) as image:
            assert image.format == "PNG"
            assert image.size == (SMALL.side, SMALL.side)


def test_unseen_things_are_seen_in_no_other_split(folder: Path) -> None:
    names = json.loads((folder / "names.json").read_text())
    held_out = {item["name"] for item in names["held_out"]}
    tested = {
        box["name"]
        for record in records_of(folder / "test_unseen_things.jsonl")
        for box in record["boxes"]  # type: ignore[attr-defined]
    }
    assert tested <= held_out
    for split in ("train", "val"):
        for sample in read_shard(folder / split / "00000.tar"):
            assert not held_out & set(json.loads(sample["json"])["names"])


def test_the_manifest_counts_what_is_there_and_credits_both_artists(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    sizes = {name: split["samples"] for name, split in manifest["splits"].items()}
    assert (sizes["train"], sizes["val"], sizes["test"]) == (30, 8, 12)
    credit = " ".join(manifest["attribution"])
    assert "Twemoji" in credit
    assert "OpenMoji" in credit


def test_a_folder_is_complete_for_its_own_settings_alone(folder: Path) -> None:
    (folder / "sheet.png").touch()  # the command draws it
    assert is_complete(folder, SMALL)
    assert not is_complete(folder, SceneSettings(train=31, val=8, test=12, seed=3))
    assert not is_complete(folder / "nowhere", SMALL)


def test_a_folder_of_something_else_is_never_cleared(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine.tar").write_bytes(b"years of work")
    with pytest.raises(DataError, match="no scenes"):
        write_scenes(tmp_path, SMALL, 1, lambda _: None)
    assert (tmp_path / "train" / "mine.tar").read_bytes() == b"years of work"


def test_a_file_in_the_place_of_the_folder_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match="name another folder"):
        write_scenes(tmp_path / "data" / "scenes", SMALL, 1, lambda _: None)


def test_the_share_of_general_phrases_is_about_eight_percent() -> None:
    job = write._Job("train", 0, 400)
    texts = [part.text for sample in write._samples(SMALL, job) for part in sample.parts]
    general = {t.group_phrase for t in art.catalogue()} | {
        t.kingdom_phrase for t in art.catalogue()
    }
    assert 0.04 < np.mean([text in general for text in texts]) < 0.12
