"""The checkpoints of a run: written beside it, and kept for a reason."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from core.errors import CheckpointError, ConfigError, StorageError
from trainer import checkpoint, saver
from trainer.checkpoint import Position, Tensors, tensors_of
from trainer.config import Recipe
from trainer.saver import Saver, copied

RECALL = "recall/text_to_image@1"


class Steps:
    """A linear map and AdamW, whose every step changes all there is to keep."""

    def __init__(self) -> None:
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.taken = 0

    def take(self) -> Position:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.taken += 1
        return Position(self.taken, samples=24)

    @property
    def tensors(self) -> Tensors:
        return tensors_of(self.model, self.optimizer)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def run(recipe: Recipe) -> Callable[..., Recipe]:
    """The recipe with other values of ``run``."""
    return lambda **values: Recipe.model_validate(
        recipe.model_dump() | {"run": recipe.run.model_dump() | {"save_every": 1} | values}
    )


def kept(recipe: Recipe) -> list[int]:
    return [int(path.name) for path in checkpoint.stored(recipe.folder)]


def save(recipe: Recipe, steps: Steps, figures: list[float | None], name: str = RECALL) -> Saver:
    """A step and its checkpoint for each held-out figure; None where nothing is evaluated."""
    saving = Saver(recipe, steps.taken)
    with saving as saver:
        for figure in figures:
            position = steps.take()
            values = {} if figure is None else {name: figure}
            if saver.note(steps.taken, values) | saver.is_due(steps.taken):
                saver.save(position, steps.tensors, values)
    return saving


def test_what_is_saved_is_the_state_at_that_moment_though_training_goes_on(
    recipe: Recipe, steps: Steps, writing: "Held"
) -> None:
    with Saver(recipe, 0) as saver:
        saver.save(steps.take(), steps.tensors, {})
        then = copied(steps.tensors)
        steps.take()  # in place, while nothing is written yet
        assert not checkpoint.stored(recipe.folder)
        writing.go_on()
    found = checkpoint.find(recipe.folder)
    assert found.step == 1
    again = Steps()
    checkpoint.load_model(found, again.model)
    assert not checkpoint.load_optimizer(found, again.model, again.optimizer)
    for file, named in again.tensors.items():
        assert named.keys() == then[file].keys()
        assert all(torch.equal(named[name], then[file][name]) for name in named)


def test_one_copy_of_the_state_serves_every_checkpoint(steps: Steps) -> None:
    steps.take()
    first = copied(steps.tensors)
    places = {tensor.data_ptr() for named in first.values() for tensor in named.values()}
    steps.take()
    second = copied(steps.tensors, first)
    assert places == {tensor.data_ptr() for named in second.values() for tensor in named.values()}
    assert all(
        torch.equal(tensor, second[file][name])
        for file, named in steps.tensors.items()
        for name, tensor in named.items()
    )


def test_a_second_checkpoint_waits_for_the_first(
    recipe: Recipe, steps: Steps, writing: "Held"
) -> None:
    with Saver(recipe, 0) as saver:
        saver.save(steps.take(), steps.tensors, {})
        threading.Timer(0.2, writing.go_on).start()
        saver.save(steps.take(), steps.tensors, {})
        assert kept(recipe) == [1]
    assert kept(recipe) == [1, 2]


def test_a_failure_of_the_writer_is_told_at_the_next_step(recipe: Recipe, steps: Steps) -> None:
    recipe.folder.mkdir()
    (recipe.folder / "checkpoints").write_text("a file where a folder is needed")
    saver = Saver(recipe, 0)
    saver.save(steps.take(), steps.tensors, {})
    with pytest.raises(StorageError, match="a file stands where a folder"):
        look_until_it_raises(saver)


def test_a_failure_of_the_last_write_is_told_at_the_end(recipe: Recipe, steps: Steps) -> None:
    recipe.folder.mkdir()
    (recipe.folder / "checkpoints").write_text("a file where a folder is needed")
    with pytest.raises(StorageError, match="a file stands where a folder"), Saver(recipe, 0) as it:
        it.save(steps.take(), steps.tensors, {})


def test_an_end_on_an_error_lets_the_write_finish(
    recipe: Recipe, steps: Steps, writing: "Held"
) -> None:
    saver = Saver(recipe, 0)
    saver.save(steps.take(), steps.tensors, {})
    threading.Timer(0.2, writing.go_on).start()
    with pytest.raises(KeyError), saver:
        raise KeyError
    assert kept(recipe) == [1]


def test_of_several_processes_one_writes(recipe: Recipe, steps: Steps) -> None:
    with Saver(recipe, 0, leads=False) as saver:
        saver.save(steps.take(), steps.tensors, {})
    assert not recipe.folder.exists()


@pytest.mark.parametrize(
    ("values", "figures", "left"),
    [
        ({"keep": 2}, [None] * 6, [5, 6]),
        ({"keep": 1, "keep_every": 2}, [None] * 7, [2, 4, 6, 7]),
        ({"keep": 1, "save_every": 4, "keep_every": 3}, [None] * 8, [3, 6, 8]),
        ({"keep": 1}, [10.0, 30.0, 20.0, 30.0, 5.0], [2, 5]),
        ({"keep": 1}, [10.0, None, float("nan"), None], [1, 4]),
        ({"keep": 2, "save_every": 5}, [1.0, 2.0, None, 3.0, 2.0, 1.0], [4, 5]),
        ({"keep": 1, "best": "loss"}, [3.0, 1.0, 2.0], [2, 3]),
        ({"keep": 1, "best": ""}, [3.0, 1.0, 2.0], [3]),
    ],
    ids=["newest", "interval", "interval-makes-due", "recall", "no-figure", "best-makes-due",
         "loss", "no-best"],
)  # fmt: skip
def test_the_newest_those_at_an_interval_and_the_best_are_kept(
    run: Callable[..., Recipe],
    steps: Steps,
    values: dict[str, Any],
    figures: list[float | None],
    left: list[int],
) -> None:
    recipe = run(**values)
    save(recipe, steps, figures, values.get("best") or RECALL)
    assert kept(recipe) == left


def test_the_best_is_found_by_its_name_and_stays_the_best_after_a_restart(
    run: Callable[..., Recipe], steps: Steps
) -> None:
    recipe = run(keep=1)
    save(recipe, steps, [10.0, 30.0, 20.0])
    saver = save(recipe, steps, [25.0, None])
    assert kept(recipe) == [2, 5]
    best = checkpoint.find(recipe.folder / "best")
    assert best.path == checkpoint.path_of(recipe.folder, 2)
    assert checkpoint.find(recipe.folder).step == 5
    assert saver.best == f"{best.path} ({RECALL} 30)"
    save(recipe, steps, [31.0])
    assert kept(recipe) == [6]
    assert checkpoint.find(recipe.folder / "best").step == 6
    moved = recipe.folder.rename(recipe.folder.with_name("moved"))
    assert checkpoint.find(moved / "best").path == checkpoint.path_of(moved, 6)


def test_another_figure_has_another_best_and_none_has_none(
    run: Callable[..., Recipe], steps: Steps
) -> None:
    recipe = run(keep=9)
    with Saver(recipe, 0) as saver:
        for recall, loss in ((1.0, 0.5), (2.0, 0.6)):
            position, figures = steps.take(), {RECALL: recall, "loss": loss}
            saver.note(position.step, figures)
            saver.save(position, steps.tensors, figures)
    save(run(keep=9, best="loss"), steps, [0.7], "loss")
    assert checkpoint.find(recipe.folder / "best").step == 1
    save(run(keep=9, best=""), steps, [None])
    with pytest.raises(CheckpointError, match=r"best: none is known .*/run means the newest"):
        checkpoint.find(recipe.folder / "best")


def test_the_best_stays_where_nothing_is_held_out_any_more(
    run: Callable[..., Recipe], steps: Steps
) -> None:
    recipe = run(keep=1)
    save(recipe, steps, [30.0, 25.0])
    dump = recipe.model_dump()
    dump["data"]["val"] = None
    save(Recipe.model_validate(dump), steps, [None])
    assert kept(recipe) == [1, 3]
    assert checkpoint.find(recipe.folder / "best").step == 1


def test_a_torn_checkpoint_beyond_the_start_is_not_the_best(
    run: Callable[..., Recipe], steps: Steps
) -> None:
    recipe = run(keep=9)
    save(recipe, steps, [1.0, 2.0])
    torn = checkpoint.path_of(recipe.folder, 2) / checkpoint.MODEL
    torn.write_bytes(torn.read_bytes()[:-1])
    steps.taken = 1
    assert save(recipe, steps, [1.5]).best.endswith(f"({RECALL} 1.5)")
    assert checkpoint.find(recipe.folder / "best").step == 2


@pytest.mark.parametrize("best", ["recall/text_to_text@1", "recall/text_to_image@3", "Loss"])
def test_a_best_that_can_be_no_figure_is_refused_with_the_recipe(
    run: Callable[..., Recipe], best: str
) -> None:
    with pytest.raises(ValueError, match=r"run\.best"):
        run(best=best)


def test_a_best_that_the_objective_lacks_is_refused_at_the_first_step(
    run: Callable[..., Recipe],
) -> None:
    terms = {"loss": torch.zeros(()), "contrastive/global": torch.zeros(())}
    with (
        Saver(run(best="entailment/global"), 0) as saver,
        pytest.raises(ConfigError, match=r"run\.best 'entailment/global'.*contrastive/global"),
    ):
        saver.check(terms)
    for best in (RECALL, "loss", ""):
        with Saver(run(best=best), 0) as saver:
            saver.check(terms)


def look_until_it_raises(saver: Saver) -> None:
    while True:
        saver.check({"loss": torch.zeros(())})


def test_the_checkpoint_just_written_stays_beside_newer_ones_that_are_torn(
    run: Callable[..., Recipe], steps: Steps
) -> None:
    recipe = run(keep=1)
    for other in ("00000020", "0notours"):
        (recipe.folder / "checkpoints" / other).mkdir(parents=True)
    save(recipe, steps, [None, None])
    assert checkpoint.find(recipe.folder).step == 2
    assert (recipe.folder / "checkpoints" / "0notours").exists()


def test_what_a_kill_left_behind_is_removed(run: Callable[..., Recipe], steps: Steps) -> None:
    recipe = run(keep=9)
    save(recipe, steps, [None])
    for name in (".00000002.tmp", ".00000001.old.tmp"):
        shutil.copytree(checkpoint.path_of(recipe.folder, 1), recipe.folder / "checkpoints" / name)
    found = checkpoint.newest(recipe.folder)
    assert found is not None
    assert found.step == 1
    save(recipe, steps, [None])
    names = {path.name for path in (recipe.folder / "checkpoints").iterdir()}
    assert names == {"00000001", "00000002"}


class Held:
    """A write that waits until it may go on."""

    def __init__(self) -> None:
        self._gate = threading.Event()

    def go_on(self) -> None:
        self._gate.set()

    def __call__(self, *args: Any) -> Path:
        assert self._gate.wait(10)
        return checkpoint.write(*args)


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """The disk, which takes nothing until it is told to."""
    held = Held()
    monkeypatch.setattr(saver, "write", held)
    yield held
    held.go_on()
