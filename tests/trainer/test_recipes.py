"""The recipes that ship: what they share, what sets them apart, and that each one trains."""

import json
import math
from collections.abc import Iterator
from contextlib import chdir
from io import StringIO
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from core.cli import build_app
from core.config import Section
from core.errors import ConfigError
from trainer import checkpoint
from trainer.config import RECIPES, Recipe, load_recipe
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import encode_jpeg, write_shard
from trainer.objectives.options import Objective
from trainer.run import train

NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))
LARGE = [name for name in NAMES if not name.endswith("-smoke")]
TWINS = [name for name in NAMES if name.endswith("-smoke")]
SYSTEMS = ["clip", "meru", "atmg", "hycoclip", "uncha", "phyclip", "hyper3"]
BASE = "hyper3_vit_b16-ablation-base"
ABLATION = [
    "no-query", "image-text", "visual-hierarchy", "text-hierarchy", "full", "mean-pooled",
    "reversed", "shuffled",
]  # fmt: skip
SWEEP = {"2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "all": 64}


def recipe(name: str) -> Recipe:
    return load_recipe(Path(name))


def differing(one: Section, other: Section) -> set[str]:
    """The keys in which two recipes, or sections, differ."""
    first, second = one.model_dump(), other.model_dump()
    return {key for key in first | second if first.get(key) != second.get(key)}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_bears_the_name_of_its_file_and_begins_by_saying_what_it_is(name: str) -> None:
    assert recipe(name).name == name
    first, second = (RECIPES / f"{name}.toml").read_text().splitlines()[:2]
    assert first.startswith("# ")
    assert second == "#" or not second.startswith("#")


@pytest.mark.parametrize("name", LARGE)
def test_every_recipe_has_a_twin_of_the_same_objective(name: str) -> None:
    large, twin = recipe(name), recipe(f"{name}-smoke")
    assert differing(large.objective, twin.objective) <= {"factors"}
    assert large.image_tower.frozen == twin.image_tower.frozen
    assert differing(large.data, twin.data) <= {"train", "val", "features", "side", "workers"}
    assert twin.optim.steps <= 20
    assert bool(large.run.base) == bool(twin.run.base)
    assert (large.last_step < large.optim.steps) == (twin.last_step < twin.optim.steps)


def test_every_twin_is_one_of_a_recipe() -> None:
    assert {f"{name}-smoke" for name in LARGE} == set(TWINS)


def test_every_system_has_a_recipe_of_its_name() -> None:
    kinds = {choice.model_fields["kind"].annotation for choice in get_args(Objective)}
    assert {get_args(kind)[0] for kind in kinds} == set(SYSTEMS)
    assert [recipe(f"{kind}_vit_b16").objective.kind for kind in SYSTEMS] == SYSTEMS


@pytest.mark.parametrize("kind", SYSTEMS)
def test_every_system_is_trained_by_the_same_loop_on_the_same_shards(kind: str) -> None:
    own, paper = recipe(f"{kind}_vit_b16"), recipe("hyper3_vit_b16")
    assert differing(own, paper) <= {"name", "objective", "augment", "data"}
    assert differing(own.data, paper.data) <= {"max_parts"}


def test_systems_see_the_parts_and_the_colours_that_their_own_code_shows_them() -> None:
    seen = {kind: recipe(f"{kind}_vit_b16") for kind in SYSTEMS}
    parts = {kind: each.needed.max_parts for kind, each in seen.items()}
    assert parts == {
        "clip": 0, "meru": 0, "atmg": 0, "hycoclip": 1, "phyclip": 1, "uncha": 64, "hyper3": 5,
    }  # fmt: skip
    for kind, each in seen.items():
        jittered = kind in {"uncha", "hyper3"}
        assert each.augment.jitter_probability == (0.8 if jittered else 0.0)
        assert each.augment.grayscale_probability == (0.2 if jittered else 0.0)
        assert each.augment.crop_scale == ((0.8, 1.0) if jittered else (0.5, 1.0))


def test_the_options_differ_from_clip_in_nothing_else() -> None:
    clip = recipe("clip_vit_b16")
    for name, section in [("beta-clip", "objective"), ("siglip", "objective"),
                          ("lit", "image_tower")]:  # fmt: skip
        assert differing(recipe(f"{name}_vit_b16"), clip) == {"name", section}
    assert differing(recipe("phyclip-l2_vit_b16"), recipe("phyclip_vit_b16")) == {
        "name", "objective",
    }  # fmt: skip


@pytest.mark.parametrize("twin", ["", "-smoke"])
def test_ablations_continue_one_base_under_its_schedule(twin: str) -> None:
    base = recipe(BASE + twin)
    assert base.objective.model_dump()["query_weight"] == 0
    variants = [recipe(f"hyper3_vit_b16-ablation-{name}{twin}") for name in ABLATION]
    for variant in variants:
        assert differing(variant, base) <= {"name", "objective", "run"}
        assert differing(variant.run, base.run) == {"base", "stop_at"}
        assert variant.run.base == base.folder
        assert base.last_step < variant.last_step == base.optim.steps
    objectives = [variant.objective.model_dump_json() for variant in variants]
    assert len(set(objectives)) == len(variants)
    assert variants[ABLATION.index("full")].objective == recipe("hyper3_vit_b16").objective
    assert variants[ABLATION.index("no-query")].objective == base.objective


def test_the_ablation_is_that_of_the_paper() -> None:
    base = recipe(BASE)
    assert (base.run.stop_at, base.optim.steps) == (80_000, 100_000)
    assert differing(base.optim, recipe("hyper3_vit_b16").optim) == {"steps"}


@pytest.mark.parametrize(("name", "parts"), SWEEP.items())
def test_the_sweep_varies_the_parts_per_image_alone(name: str, parts: int) -> None:
    one, another = recipe(f"hyper3_vit_b16-parts-{name}"), recipe("hyper3_vit_b16-parts-5")
    assert differing(one, another) <= {"name", "data"}
    assert differing(one.data, another.data) <= {"max_parts"}
    assert one.data.max_parts == parts
    assert one.optim.steps == 10_000


def test_a_recipe_is_found_by_its_bare_name_and_those_near_a_wrong_one_are_told() -> None:
    assert load_recipe(Path("demo.toml")) == recipe("demo")
    with pytest.raises(ConfigError, match=r"near it: meru_vit_b16, meru_vit_b16-smoke$"):
        recipe("meru")
    with pytest.raises(ConfigError, match=r"near it: phyclip_vit_b16"):
        recipe("phycilp_vit_b16")
    with pytest.raises(ConfigError, match=r"`hyper3 recipes` lists those that ship$"):
        recipe("no such thing")
    with pytest.raises(ConfigError, match="no recipe of that name"):
        recipe("parts")


def test_the_command_lists_every_recipe_and_no_twin() -> None:
    listed = CliRunner().invoke(build_app(), ["recipes"], env={"COLUMNS": "160"})
    assert listed.exit_code == 0, listed.output
    rows = [line.split(maxsplit=1) for line in listed.output.splitlines()]
    shown = {row[0]: row[1].strip() for row in rows if len(row) == 2 and row[0] in NAMES}
    assert list(shown) == LARGE
    for name, described in shown.items():
        assert (RECIPES / f"{name}.toml").read_text().splitlines()[0] == f"# {described}"


def test_the_command_shows_all_that_a_recipe_decides() -> None:
    shown = CliRunner().invoke(build_app(), ["recipes", "uncha_vit_b16"])
    assert Recipe.model_validate_json(shown.output) == recipe("uncha_vit_b16")
    changed = CliRunner().invoke(build_app(), ["recipes", "uncha_vit_b16", "optim.steps=7"])
    assert Recipe.model_validate_json(changed.output).optim.steps == 7


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards where the twins look for the smoke scenes."""
    place = tmp_path_factory.mktemp("recipes")
    for split, count in (("train", 64), ("val", 32)):
        samples = [square(number, split) for number in range(count)]
        write_shard(place / "data" / "smoke" / split / "00000.tar", samples)
    return place


def square(number: int, split: str) -> Sample:
    """A square of a colour of its own on another, and up to three parts of it."""
    generator = np.random.default_rng(number)
    outer, inner = generator.integers(0, 256, (2, 3))
    pixels = np.broadcast_to(outer.astype(np.uint8), (64, 64, 3)).copy()
    pixels[16:48, 16:48] = inner
    jpeg = encode_jpeg(pixels)
    parts = tuple(
        Part(encode_jpeg(pixels[8 * n : 8 * n + 32, 8 * n : 8 * n + 32]), f"corner {n} of {number}")
        for n in range(number % 4)
    )
    text = f"A square, number {number}. It lies on the ground, with {len(parts)} corners."
    return Sample(f"{split}/{number}", jpeg, text, parts)


def trained(name: str, place: Path) -> checkpoint.Checkpoint:
    """The last checkpoint of a recipe, trained as its command would in that folder."""
    with chdir(place):
        console = Console(file=StringIO(), width=200)
        return checkpoint.read(place / train(load_recipe(Path(name), ["run.device=cpu"]), console))


@pytest.fixture(scope="module")
def base(place: Path) -> checkpoint.Checkpoint:
    """The base twin, which the twins of the ablation continue."""
    return trained(f"{BASE}-smoke", place)


def test_the_base_of_the_ablation_stops_on_its_way(base: checkpoint.Checkpoint) -> None:
    assert base.step == base.recipe.run.stop_at


@pytest.mark.parametrize("name", [name for name in TWINS if name != f"{BASE}-smoke"])
def test_every_twin_trains(name: str, place: Path, request: pytest.FixtureRequest) -> None:
    first = 1
    if recipe(name).run.base:
        first += request.getfixturevalue("base").step
    last = trained(name, place)
    assert last.step == last.recipe.optim.steps
    reports = list(train_reports(place / "runs" / name))
    assert reports[0]["step"] in {first, last.recipe.run.log_every}
    assert reports[-1]["step"] == last.step
    assert all(math.isfinite(value) for report in reports for value in report.values())


def train_reports(folder: Path) -> Iterator[dict[str, float]]:
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        report = json.loads(line)
        if report.pop("split") == "train":
            yield report
