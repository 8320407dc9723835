"""Several processes: together they take the steps that one takes on the whole batch.

Run as a script, this file is those processes: ``test_distributed.py FOLDER`` measures every
system in worlds of 1, 2 and 4 and leaves what differed. They are forked, so that PyTorch is
imported once.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined] # it is there
from torch.multiprocessing.spawn import start_processes

from core.errors import Hyper3Error
from core.text import TextSpec, Tokenizer
from trainer.config import Recipe
from trainer.data.augment import normalise, to_float
from trainer.data.batch import Batch, Decoded, Links, collate, without_samples
from trainer.distributed import World, agree, exchange, join, spread
from trainer.model import DualEncoder
from trainer.objectives.loss import loss_terms
from trainer.optim import build_optimizer
from trainer.sections import DataSection
from trainer.step import Training, losses
from trainer.vocabulary import write_tokenizer

SIDE = 32

SYSTEMS: dict[str, dict[str, Any]] = {
    "hyper3": {"kind": "hyper3"},
    "hyper3, entropy and piecewise": {"kind": "hyper3", "entropy": True, "residual": "piecewise"},
    "hyper3, shuffled parents over weights": {
        "kind": "hyper3", "parents": "shuffled", "query_normaliser": "weight",
    },
    "hyper3, repeats masked": {"kind": "hyper3", "mask_repeats": True},
    "hyper3, sigmoid over mean nodes": {
        "kind": "hyper3", "contrast": "sigmoid", "visual_nodes": "mean",
        "query_normaliser": "images", "part_columns": "unique",
    },
    "uncha": {"kind": "uncha"},
    "hycoclip, repeats masked": {"kind": "hycoclip", "mask_repeats": True},
    "phyclip": {"kind": "phyclip", "factors": 4},
    "atmg": {"kind": "atmg"},
    "clip with queries": {"kind": "clip", "query_weight": 0.5},
}  # fmt: skip

SHARES = {1: (10,), 2: (2, 8), 4: (2, 3, 0, 5)}  # usable samples of each process of each world

CAPTIONS = (
    ("Sand", ()),  # neither part nor query in the first share
    ("Snow", ()),
    ("A dog runs after a red ball on the beach. It is fast.", ("a dog", "a red ball", "beach")),
    ("Two cats on a sofa", ("a cat", "another cat", "a sofa", "a dog")),
    ("A bus", ("bus",)),
    ("A man who reads a newspaper beside a lamp. The lamp is on. It is late.", ()),
    ("A dog runs after a red ball on the beach. It is fast.", ("a dog",)),  # of another process
    ("A bowl of fruit with three apples and a pear", ("an apple", "a pear")),
    ("Sand", ("beach", "a red ball", "sand", "a shell")),
    ("A street in the rain, with umbrellas", ()),
)
"""Phrases of one thing, and whole captions, stand in several processes."""


def samples() -> list[Decoded]:
    draw = np.random.default_rng(0)

    def picture() -> Any:
        return draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

    return [
        Decoded(picture(), caption, [picture() for _ in phrases], list(phrases),
                [phrase.split()[-1] for phrase in phrases])
        for caption, phrases in CAPTIONS
    ]  # fmt: skip


def recipe_of(objective: dict[str, Any]) -> Recipe:
    """A vision transformer: no batch norm, which on CPUs has statistics of each process."""
    return Recipe.model_validate({
        "name": "tiny",
        "data": {"train": "nowhere", "side": SIDE},
        "image_tower": {"kind": "timm", "name": "test_vit"},
        "text_tower": {"width": 32, "layers": 1, "heads": 2},
        "model": {"dim": 16, "pooling_heads": 4},
        "objective": objective,
        "optim": {"batch_size": 10, "steps": 1, "precision": "fp32"},
    })  # fmt: skip


def measure(rank: int, size: int, port: int, folder: Path) -> None:
    """One process: what it finds of every system; the first compares that with the whole batch."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the one that waits on this port already
    }  # fmt: skip
    tokenizer = Tokenizer(folder / "tokenizer.json", TextSpec(context_length=77))
    start, end = list(pairwise(accumulate(SHARES[size], initial=0)))[rank]
    found: dict[str, Any] = {}
    every, none = samples(), without_samples((f"of {rank}",), SIDE)
    with join("cpu") as world:
        for name, objective in SYSTEMS.items():
            recipe = recipe_of(objective)
            whole = collate(every, tokenizer, recipe.needed, ())
            own = none
            if end > start:
                own = collate(every[start:end], tokenizer, recipe.needed, none.skipped)
            found[name] = {
                kind: compare(recipe, fresh(recipe).to(dtype), whole, own, world)
                for kind, dtype in (("float64", torch.float64), ("float32", torch.float32))
            }
        found["no sample"] = complaint(exchange, none, world, query_images=True, stop=False)
        found["disagreement"] = complaint(agree, world, samples=24, step=rank)
        if rank < size - 1:  # the last one leaves
            found["loss of one"] = complaint(agree, world, samples=24)
    (folder / f"{size}-{rank}.json").write_text(json.dumps(found))


def complaint(call: Callable[..., Any], *given: Any, **named: Any) -> str | None:
    try:
        call(*given, **named)
    except Hyper3Error as error:
        return f"{type(error).__name__}: {error}"
    return None


def fresh(recipe: Recipe) -> DualEncoder:
    """Points well outside the region where cones are saturated, so that every term has a slope."""
    torch.manual_seed(0)
    model = DualEncoder(recipe)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("_alpha"):
                value.fill_(-1.0)
    return model


def compare(
    recipe: Recipe, model: DualEncoder, whole: Batch, own: Batch, world: World
) -> dict[str, Any]:
    """What the processes find together; by the first, beside what it finds alone."""
    alone: dict[str, Tensor] = {}
    if world.leads:
        nodes = model.nodes(model(whole, pictures(whole, model)), whole.links)
        alone = loss_terms(nodes, model.scalars(), recipe.objective)
        (alone["loss"] + model.anchor()).backward()
    expected = gradients(model)

    model.zero_grad(set_to_none=True)
    wrapped = spread(model) if world.size > 1 else model
    training = Training(recipe, model, wrapped, build_optimizer(model, recipe.optim), world)
    shares = exchange(
        own, world, query_images=recipe.objective.needs_visual_nodes, stop=world.rank == 1
    )
    together, _ = losses(training, own, pictures(own, model), shares)
    (together["loss"] + model.anchor()).backward()
    got = gradients(model)
    values = [value.detach().numpy().tobytes() for value in [*together.values(), *got.values()]]
    return {
        "terms": {name: [together[name].item(), term.item()] for name, term in alone.items()},
        # Of each gradient, its largest entry and the largest error of an entry.
        "gradients": {
            name: [float(value.abs().max()), float((got[name] - value).abs().max())]
            for name, value in expected.items()
        },
        "names": list(got),
        "digest": hashlib.sha256(b"".join(values)).hexdigest(),
        "same links": same_links(shares.links, whole.links),
        "stop": shares.stop,
        "skipped": shares.skipped,
    }


def pictures(batch: Batch, model: DualEncoder) -> Tensor:
    assert isinstance(batch.pictures, Tensor)
    return normalise(to_float(batch.pictures), DataSection(train="shards")).to(
        model.image_proj.weight.dtype
    )


def gradients(model: DualEncoder) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {name: value.grad.clone() for name, value in named if value.grad is not None}


def same_links(one: Links, other: Links) -> bool:
    """All fields but the rows of texts: each process numbers its own."""
    rows = {"caption", "part_text", "query_text", "query_parent"}
    names = {field.name for field in fields(Links)} - rows
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def main(folder: Path) -> None:
    """Fork the processes of each world, which meet at a port that the system chose."""
    for size in SHARES:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        start_processes(measure, (size, store.port, folder), nprocs=size, start_method="fork")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What each process of each world found."""
    folder = tmp_path_factory.mktemp("processes")
    write_tokenizer(folder / "tokenizer.json")
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        size: [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)]
        for size in SHARES
    }


Measured = dict[int, list[dict[str, Any]]]
worlds = pytest.mark.parametrize("size", SHARES)
systems = pytest.mark.parametrize("system", SYSTEMS)


@worlds
@systems
def test_terms_and_gradients_are_those_of_one_process(
    measured: Measured, system: str, size: int
) -> None:
    exact = measured[size][0][system]["float64"]
    for name, (together, alone) in exact["terms"].items():
        assert together == pytest.approx(alone, rel=1e-10, abs=1e-10), name
    assert exact["names"] == list(exact["gradients"])
    for name, (largest, error) in exact["gradients"].items():
        assert largest > 0, name
        assert error <= 1e-10 * largest, name


@worlds
@systems
def test_so_they_are_in_float32_to_a_millionth_of_the_largest_gradient(
    measured: Measured, system: str, size: int
) -> None:
    rounded = measured[size][0][system]["float32"]
    for name, (together, alone) in rounded["terms"].items():
        assert together == pytest.approx(alone, rel=1e-6, abs=1e-6), name
    scale = max(largest for largest, _ in rounded["gradients"].values())
    for name, (_, error) in rounded["gradients"].items():
        assert error <= 1e-6 * scale, name


@worlds
@systems
def test_all_processes_have_them_to_the_last_bit(
    measured: Measured, system: str, size: int
) -> None:
    """So that their weights never part."""
    for kind in ("float64", "float32"):
        assert len({found[system][kind]["digest"] for found in measured[size]}) == 1


@worlds
def test_every_process_knows_the_links_of_all_and_what_any_left_out_or_was_asked(
    measured: Measured, size: int
) -> None:
    for found in measured[size]:
        of_all = found["hyper3"]["float64"]
        assert of_all["same links"]
        assert of_all["skipped"] == [f"of {rank}" for rank in range(size)]
        assert of_all["stop"] == (size > 1)  # the second was asked


@worlds
def test_all_end_with_one_message_when_none_has_a_sample(measured: Measured, size: int) -> None:
    message = f"DataError: no sample of a batch of {size} can be used: of 0"
    assert {found["no sample"] for found in measured[size]} == {message}


@pytest.mark.parametrize("size", [2, 4])
def test_processes_of_different_files_are_told_so(measured: Measured, size: int) -> None:
    steps = ", ".join(map(str, range(size)))
    for found in measured[size]:
        assert found["disagreement"].startswith(
            f"ConfigError: step differs between the processes ({steps})"
        )


@pytest.mark.parametrize("size", [2, 4])
def test_the_others_end_with_one_message_when_one_has_ended(measured: Measured, size: int) -> None:
    for found in measured[size][:-1]:
        assert found["loss of one"].startswith("ProcessLost: another process of this run has ended")
        assert "gloo" not in found["loss of one"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
