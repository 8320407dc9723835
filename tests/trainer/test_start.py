"""Where a run begins: at another run's step, with another run's towers, or afresh."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from core.errors import CheckpointError
from trainer.config import Recipe
from trainer.optim import learning_rate
from trainer.run import train

Make = Callable[..., Recipe]


@pytest.fixture
def make(recipe: Recipe, tmp_path: Path) -> Make:
    """A recipe in a folder of its own, with sections changed."""

    def build(name: str, **sections: dict[str, Any]) -> Recipe:
        values = recipe.model_dump(mode="json")
        values["name"] = name
        values["optim"] |= {"steps": 8}
        values["run"] |= {"out": str(tmp_path / name)}
        for section, changes in sections.items():
            before = {} if section == "objective" else values[section]
            values[section] = before | changes
        return Recipe.model_validate(values)

    return build


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def told(recipe: Recipe) -> tuple[Path, str]:
    out = StringIO()
    path = train(recipe, Console(file=out, width=200))
    return path, out.getvalue()


def checkpoint_state(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((path / "state.json").read_text())
    return state


NO_QUERIES = {"kind": "hyper3", "query_weight": 0.0}


def test_a_continuation_takes_the_steps_that_its_base_would_have_taken(make: Make) -> None:
    whole = train(make("whole", objective=NO_QUERIES), Console(quiet=True))
    base = train(make("base", objective=NO_QUERIES, run={"stop_at": 5}), Console(quiet=True))
    assert base.name == "00000005"
    rest, said = told(make("rest", objective=NO_QUERIES, run={"base": str(base.parent.parent)}))
    assert "steps 5 to 8" in said
    assert f"continues {base}" in said
    one, other = tensors(whole), tensors(rest)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_pooling_rests_until_a_loss_uses_it(make: Make) -> None:
    base = train(make("base", objective=NO_QUERIES, run={"stop_at": 5}), Console(quiet=True))
    again = train(make("again", objective=NO_QUERIES, run={"stop_at": 1}), Console(quiet=True))
    at_five, at_one = tensors(base), tensors(again)
    pooling = [name for name in at_five if name.startswith(("pooling.", "node_proj."))]
    assert len(pooling) > 8
    assert all(torch.equal(at_five[name], at_one[name]) for name in pooling)
    full, said = told(make("full", run={"base": str(base)}))
    assert "trained from here on: node_proj, pooling" in said
    assert any(not torch.equal(at_five[name], tensors(full)[name]) for name in pooling)


def test_an_idle_pooling_decays_where_the_recipe_says_so(make: Make) -> None:
    """Each step multiplies a matrix by 1 - rate * decay, and leaves vectors alone."""
    options = {"decay_idle_pooling": True, "weight_decay": 0.5}
    decaying = make("decaying", objective=NO_QUERIES, optim=options)
    resting = make("resting", objective=NO_QUERIES, optim=options | {"decay_idle_pooling": False})
    decayed, kept = (tensors(train(one, Console(quiet=True))) for one in (decaying, resting))
    factor = 1.0
    for step in range(8):
        factor *= 1 - 0.5 * learning_rate(step, decaying.optim)
    assert factor < 0.999
    weight, bias = "pooling.pool_mlp.0.weight", "pooling.pool_mlp.0.bias"
    torch.testing.assert_close(decayed[weight], factor * kept[weight], rtol=1e-6, atol=0)
    assert torch.equal(decayed[bias], kept[bias])


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"optim": {"peak_lr": 3e-3}}, "optim.peak_lr"),
        ({"optim": {"steps": 9}}, "optim.steps"),
        ({"run": {"seed": 5}}, "run.seed"),
        ({"data": {"max_parts": 1}}, "data.max_parts"),
        ({"model": {"dim": 32}}, "model.dim"),
    ],
)
def test_a_base_of_another_schedule_data_or_model_is_refused(
    make: Make, sections: dict[str, dict[str, Any]], named: str
) -> None:
    base = train(make("base", objective=NO_QUERIES, run={"stop_at": 3}), Console(quiet=True))
    sections["run"] = sections.get("run", {}) | {"base": str(base)}
    with pytest.raises(CheckpointError, match=rf"of another recipe \(differs in {named}\)"):
        train(make("rest", **sections), Console(quiet=True))


def test_a_base_that_is_missing_or_complete_is_named(make: Make, tmp_path: Path) -> None:
    for key, name, remedy in (
        ("base", "nowhere", "give the folder of another run"),
        ("init", "nowhere", "give the folder of another run"),
        ("base", "hyper3_vit_b16-ablation-base", "hyper3 train hyper3_vit_b16-ablation-base"),
    ):
        with pytest.raises(CheckpointError, match=rf"run\.{key} .*{name}: no whole .*{remedy}"):
            train(make("rest", run={key: str(tmp_path / name)}), Console(quiet=True))
    whole = train(make("whole"), Console(quiet=True))
    with pytest.raises(CheckpointError, match="nothing is left to continue"):
        train(make("rest", run={"base": str(whole)}), Console(quiet=True))


def test_a_base_on_its_way_is_refused_unless_its_step_is_meant(make: Make) -> None:
    base = make("base", objective=NO_QUERIES, run={"stop_at": 5})
    halfway = train(make("base", objective=NO_QUERIES, run={"stop_at": 2}), Console(quiet=True))
    values = checkpoint_state(halfway)
    values["recipe"] = base.model_dump(mode="json")  # as a run that was killed at step 2 has it
    (halfway / "state.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"at step 2 of its 5; finish it, or give .*00000002"):
        train(make("rest", run={"base": str(base.folder)}), Console(quiet=True))
    _, said = told(make("rest", run={"base": str(halfway)}))
    assert "steps 2 to 8" in said


def test_a_base_of_another_system_is_refused(make: Make) -> None:
    base = train(make("base", objective={"kind": "atmg"}, run={"stop_at": 3}), Console(quiet=True))
    with pytest.raises(CheckpointError, match=r"differs in objective\.kind"):
        train(
            make("rest", objective={"kind": "meru"}, run={"base": str(base)}), Console(quiet=True)
        )


def test_the_beginning_of_a_run_cannot_change_afterwards(make: Make) -> None:
    clip = {"kind": "clip"}
    first = train(make("first", objective=clip), Console(quiet=True))
    train(make("run", objective=clip, run={"stop_at": 3}), Console(quiet=True))
    for stop in (3, 8):  # complete, and to be continued
        again = make("run", objective=clip, run={"stop_at": stop, "init": str(first)})
        with pytest.raises(CheckpointError, match=r"differs in .*run\.init"):
            train(again, Console(quiet=True))
        assert json.loads((again.folder / "recipe.json").read_text())["run"]["init"] is None


def test_samples_that_were_added_since_the_base_are_told(make: Make, shards: Path) -> None:
    base = train(make("base", objective=NO_QUERIES, run={"stop_at": 5}), Console(quiet=True))
    (shards / "00002.tar").write_bytes((shards / "00001.tar").read_bytes())
    _, said = told(make("rest", run={"base": str(base)}))
    assert "data.train holds 36 samples now, not 24" in said


def test_settings_that_are_hardly_meant_are_told(make: Make) -> None:
    _, said = told(make("odd", optim={"warmup_steps": 9}, data={"max_queries": 1, "max_parts": 0}))
    assert "optim.warmup_steps 9 is not under optim.steps 8" in said
    assert "no query is trained" in said
    assert "the terms of hyper3 for parts are 0" in said


def test_steps_that_are_taken_again_are_reported_once(make: Make) -> None:
    recipe = make("run", run={"stop_at": 4})
    train(recipe, Console(quiet=True))
    file = recipe.folder / "metrics.jsonl"
    later = '{"split": "train", "step": 6, "loss": 1.0}\n{"split": "tr'
    file.write_text(file.read_text() + later)  # of a run that was killed on its way
    train(make("run"), Console(quiet=True))
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    assert [row["step"] for row in rows if row["split"] == "train"] == list(range(1, 9))


def test_a_locked_tower_is_the_one_that_was_given_and_stays(make: Make) -> None:
    clip = {"kind": "clip"}
    first = train(make("first", objective=clip), Console(quiet=True))
    frozen = {"image_tower": {"frozen": True}, "objective": clip}
    locked, said = told(make("locked", **frozen, run={"init": str(first), "seed": 7}))
    assert f"run.init {first}: tensors taken: image_tower 12 of 12, image_proj 1 of 1" in said
    before, after = tensors(first), tensors(locked)
    image = [name for name in before if name.startswith("image_tower.")]
    assert all(torch.equal(before[name], after[name]) for name in image)  # running means too
    text = [name for name in before if name.startswith("text_tower.")]
    assert any(not torch.equal(before[name], after[name]) for name in text)


def test_a_random_tower_that_is_locked_is_warned_of(make: Make) -> None:
    clip = {"kind": "clip"}
    _, said = told(make("locked", image_tower={"frozen": True}, objective=clip))
    assert "image_tower.frozen: its random weights stay" in said
    assert "run.init" in said


def test_a_tower_that_does_not_fit_is_warned_of_where_the_other_does(make: Make) -> None:
    other = train(make("other", text_tower={"width": 16}), Console(quiet=True))
    _, said = told(make("here", run={"init": str(other)}))
    assert "image_tower 12 of 12" in said
    assert "nothing of text_tower was taken" in said


def test_a_run_can_be_lengthened_to_a_later_stop(make: Make) -> None:
    whole = train(make("whole"), Console(quiet=True))
    train(make("slow", run={"stop_at": 2}), Console(quiet=True))
    rest = train(make("slow", run={"stop_at": None}), Console(quiet=True))
    one, other = tensors(whole), tensors(rest)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_base_and_init_exclude_each_other(make: Make) -> None:
    with pytest.raises(ValueError, match="give one"):
        make("both", run={"base": "a", "init": "b"})
