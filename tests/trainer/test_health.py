"""Planted failures: each is named in a sentence, and what is not finite never gets further."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import nn

from core.errors import TrainingDiverged
from trainer import checkpoint
from trainer.config import Recipe
from trainer.health.watch import REPORTS_UNTIL_WELL, Watch
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.run import train
from trainer.saver import copied
from trainer.towers import ConvTower

BASE_STEP = 2
SYSTEMS: dict[str, dict[str, Any]] = {
    "clip": {},
    "clip with queries": {"kind": "clip", "query_weight": 1.0},
    "meru": {},
    "atmg": {},
    "hycoclip": {},
    "uncha": {},
    "phyclip": {"factors": 4},
    "hyper3": {},
    "sigmoid": {"kind": "hyper3", "contrast": "sigmoid"},
}


def of(recipe: Recipe, system: str, **changes: dict[str, Any]) -> Recipe:
    """The recipe with another system's objective, and with changed sections."""
    dump = recipe.model_dump() | {"objective": {"kind": system} | SYSTEMS[system]}
    for section, values in changes.items():
        dump[section] |= values
    return Recipe.model_validate(dump)


def said(recipe: Recipe) -> str:
    """All that a run tells."""
    console = Console(file=StringIO(), width=10_000)
    train(recipe, console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def lines(recipe: Recipe) -> list[dict[str, Any]]:
    text = (recipe.folder / "metrics.jsonl").read_text()
    rows = [json.loads(row) for row in text.splitlines()]
    return [row for row in rows if row["split"] == "train"]


@torch.no_grad()
def planted(
    recipe: Recipe,
    folder: Path,
    plant: Callable[[DualEncoder], object],
    system: str,
    **changes: Any,
) -> Recipe:
    """Two steps without held-out data that go on from a checkpoint with the planted weights."""
    changes["optim"] = {"steps": BASE_STEP + 2, "peak_lr": 1e-7} | changes.get("optim", {})
    recipe = of(recipe, system, **changes, data={"val": None})
    torch.manual_seed(0)
    model = DualEncoder(recipe)
    plant(model)
    tensors = copied(checkpoint.tensors_of(model, build_optimizer(model, recipe.optim)))
    position = checkpoint.Position(BASE_STEP, 24)
    base = checkpoint.write(folder / "base", position, recipe, tensors, {})
    return of(recipe, system, run={"base": base})


def all_on_one_axis(model: DualEncoder, text_radius: float) -> None:
    """Positive features times one direction; every text is the same point."""
    norm = model.text_tower.transformer.ln_final
    norm.weight.fill_(0)
    norm.bias.fill_(1)
    for projection in (model.image_proj, model.text_proj):
        projection.weight.fill_(0)
        projection.weight[0] = 0.2
    model.textual_alpha.fill_(math.log(text_radius / (0.2 * len(norm.bias))))


def same_radius(model: DualEncoder) -> None:
    for projection in (model.image_proj, model.text_proj):
        projection.weight.fill_(0)
        projection.bias.normal_()
        projection.bias.div_(projection.bias.norm() / 4)


def scale_at_clamp(name: str) -> Callable[[DualEncoder], object]:
    return lambda model: model.temperatures[name].log_scale.fill_(math.log(100))  # type: ignore[operator]


PLANTS: dict[str, tuple[str, Callable[[DualEncoder], object], dict[str, Any], list[str]]] = {
    "curvature at its lower bound": (
        "meru", lambda model: model.log_curv.fill_(math.log(0.1)), {},
        ["0.1;", "nearly flat", "model.learn_curvature=false"],
    ),
    "curvature at its upper bound": (
        "atmg", lambda model: model.log_curv.fill_(math.log(5)), {},
        ["5;", "model.curvature (now 1)"],
    ),
    "curvature of a factor at its lower bound": (
        "phyclip", lambda model: model.log_curv[1].fill_(math.log(0.1)), {},
        ["curvature at its lower bound: 0.1 in 1 of 4 factors"],
    ),
    "scale of the tangents at its bound": (
        "uncha", lambda model: model.visual_alpha.fill_(0), {},
        ["visual 1,", "of at most 1", "optim.peak_lr"],
    ),
    "global temperature at its clamp": (
        "clip", scale_at_clamp("whole"), {}, ["1/100", "optim.batch_size"],
    ),
    "local temperature at its clamp": ("uncha", scale_at_clamp("part"), {}, ["1/100"]),
    "global_local temperature at its clamp": ("sigmoid", scale_at_clamp("cross"), {}, ["1/100"]),
    "radius collapse": (
        "atmg", lambda model: model.textual_alpha.fill_(-9), {},
        ["mean radius of text", "under 0.02", "optim.peak_lr"],
    ),
    "radii without spread": (
        "hycoclip", same_radius, {"model": {"projection_bias": True}},
        ["1% is usual", "differ in detail"],
    ),
    "saturated cones": (
        "hyper3", lambda model: model.textual_alpha.fill_(-4), {},
        ["100% of text, 100% of part_text", "2K/√c = 0.2", "objective.entailment_weight (now 0.2)"],
    ),
    "vanishing entailment": (
        "meru", lambda model: all_on_one_axis(model, 0.5), {},
        ["100% of texts hold their own image, and of 100% another one", "one axis",
         "objective.entailment_weight (now 0.2)"],
    ),
    "vanishing entailment of wide cones": (
        "hyper3", lambda model: all_on_one_axis(model, 0.1), {},
        ["vanishing entailment", "they are 1.10 rad wide", "model.curvature (now 1)"],
    ),
    "identical visual nodes": (
        "hyper3", lambda model: model.pooling.text_query_proj.weight.fill_(0), {},  # type: ignore[union-attr]
        ["ignores its queries", "objective.query_weight (now 1)", 'visual_nodes="mean"'],
    ),
    "identical visual nodes on the sphere": (
        "clip with queries",
        lambda model: model.pooling.text_query_proj.weight.fill_(0), {},  # type: ignore[union-attr]
        ["identical visual nodes", "objective.query_weight (now 1)"],
    ),
    "image_tower without gradient": (
        "hyper3", lambda model: model.image_proj.weight.fill_(0), {},
        ["norm is 0", "optim.peak_lr"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_failure_is_named_once_with_what_to_try(
    recipe: Recipe, tmp_path: Path, name: str
) -> None:
    system, plant, changes, words = PLANTS[name]
    told = said(planted(recipe, tmp_path, plant, system, **changes))
    (sentence,) = [
        row for row in told.splitlines() if row.startswith("step 3: ") and words[0] in row
    ]
    for word in words:
        assert word in sentence
    assert "step 4: " not in told  # still wrong, and said already


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_healthy_run_warns_of_nothing_and_logs_its_signs(recipe: Recipe, system: str) -> None:
    clear = {"curvature": 4.0}  # of the border of saturation, after as few steps
    recipe = of(recipe, system, optim={"warmup_steps": 0, "steps": 3}, model=clear)
    told = said(recipe)
    assert "step 1: " not in told, told
    assert "reports, last at step" not in told, told
    signs = {name for name in lines(recipe)[-1] if name.startswith("health/")}
    expected = {"health/bad_steps", "health/gradient_image_tower", "health/gradient_text_tower"}
    assert expected <= signs
    on_sphere = system in {"clip", "clip with queries"}
    assert ("health/radius_spread" in signs) == (not on_sphere)
    assert ("health/satisfied_image_text" in signs) == (not on_sphere and system != "atmg")


def test_visual_nodes_that_are_means_are_identical_by_design(
    recipe: Recipe, tmp_path: Path
) -> None:
    mean = {"objective": {"visual_nodes": "mean"}}
    told = said(planted(recipe, tmp_path, DualEncoder.train, "hyper3", **mean))
    assert "identical visual nodes" not in told


def test_a_frozen_tower_has_no_gradient_and_nobody_minds(recipe: Recipe, tmp_path: Path) -> None:
    frozen = planted(recipe, tmp_path, DualEncoder.train, "clip", image_tower={"frozen": True})
    assert "without gradient" not in said(frozen)
    assert "health/gradient_image_tower" not in lines(frozen)[-1]


def test_a_warning_comes_again_only_after_it_was_gone(recipe: Recipe) -> None:
    watch = Watch(recipe)
    bad, well = {"scalar/global_scale": 100.0}, {"scalar/global_scale": 20.0}
    assert watch.look("train", 1, bad) == []  # of the warm-up
    assert "step 3: global temperature" in watch.look("train", 3, bad)[0]
    assert watch.look("val", 3, bad) == []
    assert [watch.look("train", 4, numbers) for numbers in (well, bad)] == [[], []]
    for _ in range(REPORTS_UNTIL_WELL):
        assert watch.look("train", 5, well) == []  # what is held out has it still
    told = [watch.look("val", 6, well) for _ in range(REPORTS_UNTIL_WELL)]
    assert told[-1] == ["step 6: no more global temperature at its clamp"]
    assert len(watch.look("train", 7, bad)) == 1
    assert "in 4 reports, last at step 7" in watch.summary()[0]


@contextmanager
def overflowing(*steps: int) -> Iterator[None]:
    """The image tower's feature is inf in the given calls, its batch norms' input as well."""
    calls = 0

    def spoil(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        nonlocal calls
        if isinstance(module, ConvTower) and not inputs[0].is_meta:  # where FLOPs are counted
            calls += 1
            if calls in steps:
                return (inputs[0] * torch.inf,)
        return None

    handle = nn.modules.module.register_module_forward_pre_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def test_one_step_that_is_not_finite_is_skipped_and_counted(recipe: Recipe) -> None:
    recipe = of(recipe, "hyper3", run={"save_every": 1, "keep": 9}, data={"val": None})
    with overflowing(3):
        told = said(recipe)
    assert "step 3: skipped, for its gradient is not finite (contrastive/" in told
    assert "skipped 1 steps" in told
    rows = lines(recipe)
    assert [row["health/bad_steps"] for row in rows] == [0, 0, 1, 1, 1, 1]
    assert rows[2]["loss"] is None
    assert all(math.isfinite(row["loss"]) for row in rows[3:])
    written = sorted(path.name for path in (recipe.folder / "checkpoints").iterdir())
    assert written == [f"0000000{step}" for step in (1, 2, 4, 5, 6)]  # none of a bad step
    weights = load_file(recipe.folder / "checkpoints" / written[-1] / "model.safetensors")
    assert all(value.isfinite().all() for value in weights.values())  # running statistics too


@pytest.mark.parametrize("system", ["meru", "atmg", "phyclip"])
def test_no_system_takes_a_step_on_points_that_are_not_finite(recipe: Recipe, system: str) -> None:
    recipe = of(recipe, system, optim={"steps": 2}, data={"val": None})
    with overflowing(1):
        told = said(recipe)
    assert "step 1: skipped, for its gradient is not finite (" in told
    assert lines(recipe)[-1]["health/bad_steps"] == 1


def test_a_row_of_bad_steps_ends_the_run_which_then_goes_on_from_its_last_good_checkpoint(
    recipe: Recipe, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"optim": {"max_bad_steps": 1}, "data": {"val": None}}
    every = {"save_every": 1, "eval_every": 1}
    whole = of(recipe, "hyper3", run=every | {"out": tmp_path / "whole"}, **changes)
    train(whole, Console(quiet=True))
    broken = of(recipe, "hyper3", run=every, **changes)
    with overflowing(3, 4), pytest.raises(TrainingDiverged) as caught:
        said(broken)
    for words in (
        "step 4: the gradient was not finite in 2 steps in a row", "optim.max_bad_steps 1",
        "optim.peak_lr (now 0.001)", "contrastive/global", "checkpoints/00000002",
    ):  # fmt: skip
        assert words in str(caught.value)
    said(broken)
    one, other = (
        load_file(run.folder / "checkpoints" / "00000006" / "model.safetensors")
        for run in (whole, broken)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_blew_up_leaves_no_checkpoint_of_it(recipe: Recipe) -> None:
    recipe = of(recipe, "hyper3", optim={"peak_lr": 1e30, "warmup_steps": 0})
    with pytest.raises(TrainingDiverged, match=r"in 5 steps in a row.* lower optim\.peak_lr"):
        said(recipe)  # twenty are borne, but a run does not end on a row of them
    assert checkpoint.newest(recipe.folder) is None


def test_weights_that_are_not_finite_are_named(recipe: Recipe, tmp_path: Path) -> None:
    def plant(model: DualEncoder) -> None:
        model.text_proj.weight[0, 0] = torch.nan

    spoilt = planted(recipe, tmp_path, plant, "clip", optim={"max_bad_steps": 0})
    with pytest.raises(TrainingDiverged, match=r"contrastive/global, loss, text_proj\.weight"):
        said(spoilt)


def test_running_statistics_that_are_not_finite_are_not_kept(
    recipe: Recipe, tmp_path: Path
) -> None:
    """In training a batch norm does not use them: nothing else would show it."""

    def plant(model: DualEncoder) -> None:
        model.image_tower.layers[1].running_var.fill_(torch.inf)  # type: ignore[index,union-attr]

    spoilt = planted(recipe, tmp_path, plant, "clip")
    with pytest.raises(TrainingDiverged, match=r"image_tower\.layers\.1\.running_var"):
        said(spoilt)
    assert checkpoint.newest(spoilt.folder) is None
