"""What is compared: words, comparisons and their systems, before anything is trained."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from trainer.compare.plan import read_plan, rows, runs, shipped
from trainer.config import Recipe, load_recipe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe, and a comparison of two systems."""
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\ndata.train = "train"\nimage_tower.kind = "conv"\n'
    )
    (tmp_path / "two.toml").write_text(
        'recipe = "tiny.toml"\n[systems]\n'
        'clip.objective.kind = "clip"\nmeru.objective.kind = "meru"\n'
    )
    return tmp_path


def test_recipes_are_compared_without_a_comparison(folder: Path) -> None:
    other = (folder / "tiny.toml").read_text().replace('"tiny"', '"other"')
    (folder / "other.toml").write_text(other + 'objective = { kind = "clip" }\n')
    plan = read_plan([str(folder / "tiny.toml"), str(folder / "other.toml"), "optim.steps=3"])
    assert [contender.name for contender in plan.contenders] == ["tiny", "other"]
    planned = runs(plan, folder / "out", 2)
    assert [(one.contender.name, one.seed) for one in planned] == [
        ("tiny", 0), ("other", 0), ("tiny", 1), ("other", 1),
    ]  # fmt: skip
    assert {one.recipe.optim.steps for one in planned} == {3}
    assert planned[3].folder == folder / "out" / "runs" / "other" / "seed-1"
    assert planned[3].recipe.run.seed == 1


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ([], "name what to compare: a comparison (ablation, "),
        (["nothing-of-that-name"], "no such file, and no recipe of that name"),
        (["scenes", "ablation"], "give one comparison alone"),
        (["demo", "demo.toml"], "the name of two recipes"),
    ],
)
def test_words_that_mean_nothing_are_named(what: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        runs(read_plan(what), Path("out"), 1)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ('[systems."../out"]', "'../out': no name for a system"),
        ('[systems."/tmp/x"]', "'/tmp/x': no name for a system"),
        ('[systems.""]', "'': no name for a system"),
        (f"[systems.{'x' * 81}]", "at most 80"),
        ('[systems.a]\nrun.out = "elsewhere"', 'a: run.out="elsewhere": .* give --out'),
        ("[systems.a]\nrun.seed = 3", "a: run.seed=3: .* give --seeds"),
        ('[systems.a]\nobjectiv.kind = "clip"', r"a: .*tiny.toml:\n.*objectiv: unknown key"),
        (
            '[systems.a]\nobjective.kind = "clip"\nrun.base = "b"\n[systems.b]\nrun.base = "a"',
            "run.base: a -> b -> a: each continues the next",
        ),
    ],
)
def test_systems_that_cannot_stand_side_by_side_are_named(
    folder: Path, systems: str, message: str
) -> None:
    (folder / "wrong.toml").write_text(f'recipe = "tiny.toml"\n{systems}\n')
    with pytest.raises(ConfigError, match=message):
        runs(read_plan([str(folder / "wrong.toml")]), folder / "out", 1)


def test_a_base_is_a_system_only_where_it_is_named_as_one(folder: Path) -> None:
    text = 'recipe = "tiny.toml"\nsystems = {{ a = {{}}, b = {{ run = {{ base = "{}" }} }} }}\n'
    for base, expected in (("a", True), ("runs/a", True), ("/other/a", False), ("other/a", False)):
        (folder / "base.toml").write_text(text.format(base))
        _, planned = runs(read_plan([str(folder / "base.toml")]), folder / "out", 1)
        assert planned.base == (folder / "out/runs/a/seed-0" if expected else None)
        assert str(planned.recipe.run.base).endswith("a/seed-0" if expected else base)


def test_systems_may_differ_in_their_data_or_their_end_alone(folder: Path) -> None:
    for line in ('data.train = "other"', "run.stop_at = 2"):
        (folder / "two.toml").write_text(
            f'recipe = "tiny.toml"\n[systems.a]\n[systems.b]\n{line}\n'
        )
        assert len(runs(read_plan([str(folder / "two.toml")]), folder / "out", 1)) == 2


def test_two_systems_that_are_one_training_are_refused(folder: Path) -> None:
    text = (folder / "two.toml").read_text()
    (folder / "two.toml").write_text(text + '\n[systems.again.objective]\nkind = "clip"\n')
    with pytest.raises(ConfigError, match="clip and again are the same training"):
        runs(read_plan([str(folder / "two.toml")]), folder / "out", 1)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_comparison_differs_in_its_systems_alone(name: str) -> None:
    """Same steps, batches, data, towers and rates in every row; parts may be as published."""
    plan = read_plan([name])
    planned = runs(plan, Path("out"), plan.seeds)
    compared = [one.recipe for one in planned if one.contender.name in rows(planned)]
    assert len(compared) >= 2 * plan.seeds
    assert plan.baseline in rows(planned)
    assert {alike(recipe) for recipe in compared if recipe.run.seed == 0} == {alike(compared[0])}
    assert all(load_recipe(one.contender.path) for one in planned)


def alike(recipe: Recipe) -> str:
    return recipe.model_dump_json(
        exclude={"objective": True, "data": {"max_parts"}, "run": {"out", "base", "seed"}}
    )
