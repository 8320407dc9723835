"""Shared weights, and pieces in several processes: the steps of one process on the whole batch.

Run as a script, this file is two processes: ``test_sharding.py FOLDER`` takes steps in every way
and leaves what differed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined] # it is there
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import start_processes

from core.text import TextSpec, Tokenizer
from trainer.checkpoint import MODEL, OPTIMIZER, Tensors, tensors_of
from trainer.config import Recipe
from trainer.data.batch import Batch, Decoded, collate
from trainer.distributed import World, exchange, join
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.saver import copied
from trainer.speed import ready
from trainer.step import Training, train_step
from trainer.vocabulary import write_tokenizer

SIDE = 32
SIZE, SHARE = 2, 2  # processes, and samples of the first

WAYS: dict[str, dict[str, Any]] = {
    "spread": {},
    "in pieces": {"micro_batch": 3},
    "shared": {"shard": True},
    "shared, in pieces, recomputed": {"shard": True, "micro_batch": 3, "checkpointing": True},
}

CAPTIONS = (
    ("Sand", ()),  # neither part nor query in the first share
    ("Snow", ()),
    ("A dog runs after a red ball on the beach. It is fast.", ("a dog", "a red ball", "beach")),
    ("Two cats on a sofa", ("a cat", "another cat", "a sofa", "a dog")),
    ("A bus", ("bus",)),
    ("A man who reads a newspaper beside a lamp. The lamp is on. It is late.", ()),
)


def samples() -> list[Decoded]:
    draw = np.random.default_rng(0)

    def picture() -> Any:
        return draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

    return [
        Decoded(picture(), caption, [picture() for _ in names], list(names), list(names))
        for caption, names in CAPTIONS
    ]


def recipe_of(**speed: Any) -> Recipe:
    """A vision transformer without augmentation: nothing depends on the number of processes."""
    return Recipe.model_validate({
        "name": "tiny",
        "data": {"train": "nowhere", "side": SIDE},
        "augment": {
            "crop_scale": [1.0, 1.0], "jitter_probability": 0.0, "grayscale_probability": 0.0,
        },
        "image_tower": {"kind": "timm", "name": "test_vit"},
        "text_tower": {"width": 32, "layers": 2, "heads": 2},
        "model": {"dim": 16, "pooling_heads": 4},
        "optim": {"batch_size": 6, "steps": 4, "warmup_steps": 1, "precision": "fp32"},
        "speed": speed,
    })  # fmt: skip


def steps(way: dict[str, Any], own: Batch, world: World, before: Tensors | None) -> Any:
    """Two steps behind those of another run: what they tell, and the state that they leave."""
    recipe = recipe_of(**way)
    torch.manual_seed(0)
    model = DualEncoder(recipe)
    optimizer = build_optimizer(model, recipe.optim)
    if before:
        put(before, model, optimizer)
    training = Training(recipe, model, model, optimizer, world)
    training = ready(training, torch.device("cpu"))
    told = []
    for number in range(2):
        shares = exchange(own, world, query_images=True, stop=False)
        generator = torch.Generator().manual_seed(number)
        result = train_step(training, own, shares, generator)
        told += [float(result.terms["loss"]), float(result.grad_norm)]
    shared = [name for name, value in model.named_parameters() if isinstance(value, DTensor)]
    return told, tensors_of(model, optimizer), shared


def put(state: Tensors, model: DualEncoder, optimizer: torch.optim.Optimizer) -> None:
    """As a checkpoint is loaded, before weights are shared."""
    model.load_state_dict(state[MODEL])
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for value in group["params"]:
            kinds = ("step", "exp_avg", "exp_avg_sq")
            optimizer.state[value] = {
                kind: state[OPTIMIZER][f"{names[value]}/{kind}"].clone() for kind in kinds
            }


def measure(rank: int, port: int, folder: Path) -> None:
    """One process: what it finds in every way; the first compares with one on the whole batch."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(SIZE),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the one that waits on this port already
    }  # fmt: skip
    tokenizer = Tokenizer(folder / "tokenizer.json", TextSpec(context_length=77))
    every, needed = samples(), recipe_of().needed
    own = collate(every[:SHARE] if rank == 0 else every[SHARE:], tokenizer, needed, ())
    whole = collate(every, tokenizer, needed, ())
    found: dict[str, Any] = {}
    with join("cpu") as world:
        _, before, _ = steps({}, whole, World(), None)
        before = copied(before)
        told, after, _ = steps({}, whole, World(), before)
        after = copied(after)
        for name, way in WAYS.items():
            same, state, shared = steps(way, own, world, before)
            found[name] = {
                "told": [same, told],
                "shared": shared,
                "state": difference(state, after) if world.leads else None,
            }
    (folder / f"{rank}.json").write_text(json.dumps(found))


def difference(found: Tensors, expected: Tensors) -> dict[str, list[float]]:
    """Of each tensor, the largest error of an entry, and the largest entry."""
    assert [list(kind) for kind in found.values()] == [list(kind) for kind in expected.values()]
    return {
        name: [float((found[file][name] - value).abs().max()), float(value.abs().max())]
        for file, named in expected.items()
        for name, value in named.items()
        if value.numel()
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found."""
    folder = tmp_path_factory.mktemp("processes")
    write_tokenizer(folder / "tokenizer.json")
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]


ways = pytest.mark.parametrize("way", WAYS)


@ways
def test_every_way_tells_the_losses_and_norms_of_one_process(
    measured: list[dict[str, Any]], way: str
) -> None:
    for found in measured:
        told, alone = found[way]["told"]
        assert told == pytest.approx(alone, rel=3e-6)
        spread, _ = found["spread"]["told"]
        assert told == pytest.approx(spread, rel=3e-6)


@ways
def test_every_way_goes_on_from_and_leaves_the_state_of_one_process(
    measured: list[dict[str, Any]], way: str
) -> None:
    state = measured[0][way]["state"]
    assert any(name.endswith("/exp_avg_sq") for name in state)
    for name, (error, largest) in state.items():
        # AdamW goes by the sign of a gradient that is all but 0: a tenth of what a step may move.
        bound = 1e-3 * max(largest, 1e-4) if "/" in name else 5e-5
        assert error <= bound, name


def test_what_is_shared_are_the_weights_of_both_towers_and_nothing_else(
    measured: list[dict[str, Any]],
) -> None:
    model = DualEncoder(recipe_of())
    towers = [n for n, _ in model.named_parameters() if n.startswith(("image_tower", "text_tower"))]
    for way, options in WAYS.items():
        assert measured[0][way]["shared"] == (towers if options.get("shard") else [])


def main(folder: Path) -> None:
    """Fork the processes, which meet at a port that the system chose."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start_processes(measure, (store.port, folder), nprocs=SIZE, start_method="fork")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
