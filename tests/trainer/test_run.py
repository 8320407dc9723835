"""A whole run: what it leaves, what it goes on from, and what it says when it cannot."""

import json
import multiprocessing
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from core.errors import CheckpointError, ConfigError, DataError, StorageError, TrainingDiverged
from core.lock import take_lock
from trainer import checkpoint
from trainer.config import Recipe, load_recipe
from trainer.data.sample import Sample
from trainer.data.shard_writer import write_shard
from trainer.run import train


def quiet() -> Console:
    return Console(file=StringIO(), width=200)


def lines(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["split"] == split]


def losses(folder: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in lines(folder)}


Changed = Callable[..., Recipe]


@pytest.fixture
def changed(recipe: Recipe) -> Changed:
    """The recipe with some keys of a section changed."""

    def change(section: str, **values: Any) -> Recipe:
        dump = recipe.model_dump()
        dump[section] |= values
        return Recipe.model_validate(dump)

    return change


def test_a_run_reports_every_part_of_the_objective_apart(recipe: Recipe) -> None:
    train(recipe, quiet())
    row = lines(recipe.folder)[-1]
    groups = {name.partition("/")[0] for name in row}
    assert {"contrastive", "entailment", "calibration", "query", "radius", "scalar"} <= groups
    terms = {name: value for name, value in row.items() if name.count("/") == 1}
    contrastive = sum(value for name, value in terms.items() if name.startswith("contrastive/"))
    others = sum(
        value
        for name, value in terms.items()
        if name.startswith(("entailment/", "calibration/", "query/"))
    )
    assert row["loss"] == pytest.approx(contrastive + 0.2 * others, rel=1e-5)
    held_out = lines(recipe.folder, "val")
    assert [row["step"] for row in held_out] == [3, 6]
    assert 0 <= held_out[0]["recall/text_to_image@10"] <= 100
    assert list((recipe.folder / "tensorboard").glob("events*"))


def test_a_run_learns(changed: Changed) -> None:
    recipe = changed("optim", steps=60, warmup_steps=5, peak_lr=3e-3)
    train(recipe, quiet())
    history = losses(recipe.folder)
    assert history[60] < history[1] - 0.5


def test_a_stopped_run_takes_the_very_steps_of_one_that_was_not(
    recipe: Recipe, changed: Changed, tmp_path: Path
) -> None:
    train(recipe, quiet())
    again = changed("run", out=tmp_path / "again")
    train(again, quiet())
    shutil.rmtree(again.folder / "checkpoints" / "00000006")
    (again.folder / "metrics.jsonl").unlink()
    train(again, quiet())
    whole = losses(recipe.folder)
    assert losses(again.folder) == {step: whole[step] for step in (4, 5, 6)}  # to the last bit
    one, other = (
        load_file(folder / "checkpoints" / "00000006" / "model.safetensors")
        for folder in (recipe.folder, again.folder)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_complete_run_is_left_as_it_is(recipe: Recipe) -> None:
    first = train(recipe, quiet())
    console = quiet()
    assert train(recipe, console) == first
    assert "nothing to do" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_best_checkpoint_is_kept_beside_the_newest_and_says_what_it_is(
    changed: Changed,
) -> None:
    recipe = changed("run", eval_every=2, save_every=4, keep=1, best="loss")
    console = quiet()
    train(recipe, console)
    found = {row["step"]: row["loss"] for row in lines(recipe.folder, "val")}
    least = min(found, key=lambda step: found[step])
    best = checkpoint.find(recipe.folder / "best")
    assert best.step == least
    assert checkpoint.held_out(best.path)["loss"] == found[least]
    assert {path.name for path in checkpoint.stored(recipe.folder)} == {best.path.name, "00000006"}
    assert f"best: {best.path} (loss {found[least]:.4g})" in console.file.getvalue()  # type: ignore[attr-defined]
    assert checkpoint.find(recipe.folder).position.epoch == 1  # of three batches each
    assert checkpoint.find(recipe.folder).position.batches == 3


def test_a_figure_that_no_evaluation_gives_ends_the_run_at_its_first_step(
    changed: Changed,
) -> None:
    recipe = changed("run", best="contrastive/locl")
    with pytest.raises(ConfigError, match=r"run\.best 'contrastive/locl'.*contrastive/local"):
        train(recipe, quiet())
    assert set(losses(recipe.folder)) == {1}
    assert checkpoint.newest(recipe.folder) is None


def test_other_data_under_a_run_that_goes_on_are_told(changed: Changed, shards: Path) -> None:
    train(changed("run", stop_at=2), quiet())
    first, second = sorted(shards.glob("*.tar"))
    first.rename(shards / "00002.tar")
    console = quiet()
    train(changed("run", stop_at=3), console)
    assert "other samples than it did, or in another order" in console.file.getvalue()  # type: ignore[attr-defined]
    second.unlink()
    console = quiet()
    train(changed("run", stop_at=4), console)
    assert "data.train holds 12 samples now, not 24" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_folder_of_another_recipe_is_refused(recipe: Recipe, changed: Changed) -> None:
    train(recipe, quiet())
    with pytest.raises(CheckpointError, match=r"optim\.peak_lr"):
        train(changed("optim", peak_lr=2e-3), quiet())


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_the_terms(
    changed: Changed,
) -> None:
    recipe = changed("optim", peak_lr=1e30, warmup_steps=0)
    with pytest.raises(TrainingDiverged, match=r"optim\.peak_lr.*contrastive/global"):
        train(recipe, quiet())


def test_samples_left_out_are_counted_and_named(recipe: Recipe, shards: Path) -> None:
    write_shard(shards / "00002.tar", [Sample("bad", b"no picture", "a caption", ())])
    console = quiet()
    train(recipe.model_copy(update={"optim": recipe.optim.model_copy(update={"batch_size": 25})}),
          console)  # fmt: skip
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "unreadable image" in said
    assert "00002.tar" in said
    assert lines(recipe.folder)[-1]["data/left_out"] == 6  # once in each of six epochs


def test_a_full_disk_is_named_and_earlier_checkpoints_stay(recipe: Recipe, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        size = recipe.model_copy(
            update={"run": recipe.run.model_copy(update={"out": small / "run"})}
        )
        with pytest.raises(StorageError, match=f"{small}.*disk is full"):
            train(size, quiet())
        left = list((small / "run" / "checkpoints").iterdir())
        assert all(checkpoint.read(path) for path in left)  # no half of a checkpoint stays
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.peak_ln=1", r"recipe\.toml:\n  optim\.peak_ln: unknown key; known here: .*peak_lr"),
        ("optim.peak_lr=-1", r"optim\.peak_lr: .*greater than 0"),
        ("optim.peak_lr", "section.key=value"),
        ("image_tower.kind=swin", "image_tower: .*conv"),
        ("image_tower.foo=3", r"image_tower\.foo: unknown key; known here: frozen, kind, widths"),
        ("run.seed=-1", r"run\.seed: .*greater than or equal to 0"),
        ("optim.betas=[1.0,0.98]", r"optim\.betas\.0: .*less than 1"),
        ("image_tower.widths=[0,3]", r"image_tower\.widths\.0: "),
        ("augment.crop_scale=[0.9,0.5]", "crop_scale"),
        ("augment.crop_scale=[-1,1]", r"augment\.crop_scale\.0: "),
        ("text_tower.heads=3", "text_tower.width 32 is not a multiple of text_tower.heads 3"),
    ],
)
def test_a_wrong_key_is_named_with_its_file(
    recipe: Recipe, tmp_path: Path, override: str, message: str
) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(_toml(recipe.model_dump(mode="json")))
    with pytest.raises(ConfigError, match=message):
        load_recipe(file, [override])


def test_bfloat16_towers_lose_little(changed: Changed, tmp_path: Path) -> None:
    """The geometry and the loss stay in float32, so that only the features are rounded."""
    exact = changed("optim", steps=1)
    train(exact, quiet())
    rounded = exact.model_dump()
    rounded["optim"]["precision"], rounded["run"]["out"] = "bf16", tmp_path / "rounded"
    train(Recipe.model_validate(rounded), quiet())
    assert losses(tmp_path / "rounded")[1] == pytest.approx(losses(exact.folder)[1], rel=5e-3)


def test_a_worker_that_finds_nothing_usable_ends_the_run_with_one_message(
    changed: Changed, shards: Path
) -> None:
    for path in shards.glob("*.tar"):
        path.unlink()
    write_shard(shards / "0.tar", [Sample(f"{n}", b"none", "a caption", ()) for n in range(16)])
    with pytest.raises(DataError, match=r"no sample of a batch of 8 can be used: .*unreadable"):
        train(changed("data", workers=2), quiet())
    assert not [child for child in multiprocessing.active_children() if child.is_alive()]


def test_a_bad_held_out_sample_is_left_out_and_named(
    changed: Changed, shards: Path, tmp_path: Path
) -> None:
    held_out = tmp_path / "val"
    shutil.copytree(shards, held_out)
    write_shard(held_out / "00002.tar", [Sample("bad", b"none", "a caption", ())])
    recipe, console = changed("data", val=str(held_out)), quiet()  # 24 good: the last stands alone
    assert checkpoint.read(train(recipe, console)).step == 6
    assert "left out 1 held-out samples" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_second_training_in_the_folder_is_refused(recipe: Recipe) -> None:
    with closing(take_lock(recipe.folder)), pytest.raises(StorageError, match="in use by another"):
        train(recipe, quiet())


def test_missing_shards_are_named(changed: Changed) -> None:
    with pytest.raises(DataError, match="nowhere"):
        train(changed("data", train="nowhere/train"), quiet())


def _toml(values: dict[str, Any]) -> str:
    """Enough TOML for a recipe."""
    out = []
    for key, value in values.items():
        if not isinstance(value, dict):
            out.append(f"{key} = {json.dumps(value)}")
    for key, value in values.items():
        if isinstance(value, dict):
            out.append(f"[{key}]")
            out += [f"{k} = {json.dumps(v)}" for k, v in value.items() if v is not None]
    return "\n".join(out)
