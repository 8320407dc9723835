"""Where each system's learned values start, what it trains, and which nodes a batch gives."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.spaces import Euclidean, Lorentz, Product
from core.text import TextSpec, Tokenizer
from trainer.config import Recipe
from trainer.data.batch import Batch, Decoded, collate
from trainer.model import DualEncoder
from trainer.objectives.loss import loss_terms
from trainer.sections import DataSection
from trainer.vocabulary import write_tokenizer

DIM, FACTORS, SIDE = 256, 8, 32

SYSTEMS: dict[str, dict[str, Any]] = {
    "clip": {"kind": "clip"},
    "clip with queries": {"kind": "clip", "query_weight": 1.0},
    "siglip": {"kind": "clip", "contrast": "sigmoid"},
    "meru": {"kind": "meru"},
    "meru of single pairs": {"kind": "meru", "contrast": "sigmoid"},
    "atmg": {"kind": "atmg"},
    "hycoclip": {"kind": "hycoclip"},
    "phyclip": {"kind": "phyclip", "factors": FACTORS},
    "phyclip-l2": {"kind": "phyclip", "factors": FACTORS, "norm": "l2"},
    "uncha": {"kind": "uncha"},
    "hyper3": {"kind": "hyper3"},
    "hyper3 of means": {"kind": "hyper3", "visual_nodes": "mean"},
    "hyper3 without queries": {"kind": "hyper3", "query_weight": 0.0},
    "hyper3 of texts": {"kind": "hyper3", "relations": ["text_hierarchy"]},
    "hyper3 of single pairs": {"kind": "hyper3", "contrast": "sigmoid"},
}
CURVED = [name for name in SYSTEMS if not name.startswith(("clip", "siglip"))]
HYPER3 = [name for name in SYSTEMS if name.startswith("hyper3")]

WHOLE = {"whole": 1 / 0.07}  # CLIP's start, which all have
THREE = WHOLE | {"part": 1 / 0.05, "cross": 1 / 0.06}  # UNCHA's code
TEMPERATURES: dict[str, dict[str, float]] = {
    **dict.fromkeys(SYSTEMS, WHOLE),
    "clip with queries": WHOLE | {"part": 1 / 0.07},
    "siglip": {"whole": 10.0},  # SigLIP's paper
    "meru of single pairs": {"whole": 10.0},
    "uncha": THREE,
    **dict.fromkeys(HYPER3, THREE),
    "hyper3 of single pairs": {"whole": 10.0, "part": 10.0, "cross": 10.0},
}
# SigLIP's -10 lets a cosine of 1 start at the logit 0, where a distance of 0 is by itself.
BIASES = {"siglip": -10.0, "meru of single pairs": 0.0, "hyper3 of single pairs": 0.0}

# What no loss of a system reaches.
IDLE: dict[str, tuple[str, ...]] = {
    "hyper3 of means": ("pooling.",),
    "hyper3 without queries": ("pooling.", "node_proj."),
    "hyper3 of texts": ("pooling.", "node_proj."),
}


def made(system: str, **sections: Any) -> DualEncoder:
    """A small model, of 32 image and 64 text features."""
    torch.manual_seed(0)
    values = {
        "name": "tiny",
        "data": {"train": "unused", "side": SIDE},
        "image_tower": {"kind": "conv", "widths": [8, 16]},
        "text_tower": {"width": 64, "layers": 1, "heads": 2},
        "model": {"dim": DIM, "pooling_heads": 4},
        "objective": SYSTEMS[system],
    }
    for name, changes in sections.items():
        values[name] = {**values.get(name, {}), **changes}  # type: ignore[dict-item]
    return DualEncoder(Recipe.model_validate(values))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    write_tokenizer(file)
    return Tokenizer(file, TextSpec())


def decoded(caption: str, *phrases: str) -> Decoded:
    rng = np.random.default_rng(len(caption))
    pixels = rng.integers(0, 256, (1 + len(phrases), SIDE, SIDE, 3), dtype=np.uint8)
    return Decoded(pixels[0], caption, list(pixels[1:]), list(phrases), list(phrases))


def batch_of(tokenizer: Tokenizer, *samples: Decoded) -> Batch:
    return collate(samples, tokenizer, DataSection(train="unused", side=SIDE), ())


@pytest.fixture(scope="module")
def batch(tokenizer: Tokenizer) -> Batch:
    """Three images with two, none and one part, and with five, none and one query."""
    return batch_of(
        tokenizer,
        decoded("Two dogs run. It rains on them.", "two dogs", "rain"),
        decoded("A cat"),
        decoded("One bird of many", "a bird"),
    )


def pictures(batch: Batch) -> Tensor:
    assert isinstance(batch.pictures, Tensor)
    return batch.pictures.permute(0, 3, 1, 2).float() / 255


@pytest.mark.parametrize("system", SYSTEMS)
def test_temperatures_start_where_the_systems_code_has_them(system: str) -> None:
    model = made(system)
    assert set(model.temperatures) == set(TEMPERATURES[system])
    scalars, starts = model.scalars(), TEMPERATURES[system]
    for name in ("whole", "part", "cross"):  # a system with one has it everywhere
        temperature = getattr(scalars, name)
        assert temperature.scale.item() == pytest.approx(starts.get(name, starts["whole"]))
        if system in BIASES:
            assert temperature.bias.item() == BIASES[system]
        else:
            assert temperature.bias is None


@pytest.mark.parametrize("system", CURVED)
def test_scales_start_at_one_over_the_root_of_the_dimensions_of_a_hyperboloid(system: str) -> None:
    model = made(system)
    factors = FACTORS if system.startswith("phyclip") else 1
    shape = (FACTORS,) if factors > 1 else ()
    for alpha in (model.visual_alpha, model.textual_alpha):
        assert alpha.shape == shape
        torch.testing.assert_close(alpha.exp(), torch.full(shape, (DIM / factors) ** -0.5))
    assert model.curvature.shape == shape
    torch.testing.assert_close(model.curvature, torch.ones(shape))


@pytest.mark.parametrize("start", [1.0, 2.0])
@pytest.mark.parametrize("system", CURVED)
def test_the_curvature_is_learned_within_ten_times_its_start_and_atmg_s_within_five(
    system: str, start: float
) -> None:
    model = made(system, model={"curvature": start})
    span = 5 if system == "atmg" else 10
    for far, bound in ((-20.0, start / span), (20.0, start * span)):
        with torch.no_grad():
            model.log_curv.fill_(far)
        model.clamp_scalars()
        torch.testing.assert_close(model.curvature, torch.full_like(model.log_curv, bound))
    assert model.log_curv.requires_grad
    fixed = made(system, model={"curvature": start, "learn_curvature": False})
    assert not fixed.log_curv.requires_grad


@pytest.mark.parametrize("system", SYSTEMS)
def test_points_lie_in_the_space_of_their_system(system: str) -> None:
    model = made(system)
    space, names = model.space, dict(model.named_parameters())
    if system not in CURVED:
        assert isinstance(space, Euclidean)
        assert model.curvature == 0
        assert not names.keys() & {"visual_alpha", "textual_alpha", "log_curv"}
    elif system.startswith("phyclip"):
        assert isinstance(space, Product)
        assert space.norm == ("l2" if system == "phyclip-l2" else "l1")
    else:
        assert isinstance(space, Lorentz)
        assert space.score == ("angle" if system == "atmg" else "distance")


@pytest.mark.parametrize("system", SYSTEMS)
def test_projections_start_as_wide_as_their_inputs_ask(system: str) -> None:
    model = made(system)
    for projection, width in ((model.image_proj, 32), (model.text_proj, 64)):
        assert projection.weight.shape == (DIM, width)
        assert projection.weight.std().item() == pytest.approx(width**-0.5, rel=0.04)
        assert projection.bias is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_pooling_is_there_for_queries_and_for_every_hyper3(system: str) -> None:
    assert (made(system).pooling is not None) == (system in {*HYPER3, "clip with queries"})


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_no_loss_reaches_rests_unless_it_is_to_decay(system: str) -> None:
    idle = IDLE.get(system, ())
    names = dict(made(system).named_parameters())
    resting = {name for name, value in names.items() if not value.requires_grad}
    assert resting == {name for name in names if name.startswith(tuple(idle))}
    assert bool(resting) == bool(idle)
    decaying = made(system, optim={"decay_idle_pooling": True})
    assert all(value.requires_grad for value in decaying.parameters())


def backward(model: DualEncoder, batch: Batch) -> dict[str, Tensor | None]:
    """The gradients of a training step, by the names of their parameters."""
    nodes = model.nodes(model(batch, pictures(batch)), batch.links)
    loss = loss_terms(nodes, model.scalars(), model.objective)["loss"]
    (loss + model.anchor()).backward()
    return {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_value_that_trains_gets_a_gradient(system: str, decays: bool, batch: Batch) -> None:
    model = made(system, optim={"decay_idle_pooling": decays})
    found = backward(model, batch)
    missing = {name for name, gradient in found.items() if gradient is None}
    zero = {name for name, gradient in found.items() if gradient is not None and not gradient.any()}
    idle = {name for name in found if name.startswith(tuple(IDLE.get(system, ())))}
    assert (missing, zero) == ((set(), idle) if decays else (idle, set()))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_batch_without_parts_and_queries_leaves_no_gradient_out(
    system: str, tokenizer: Tokenizer
) -> None:
    """Else a process that meets one would leave the others waiting."""
    batch = batch_of(tokenizer, decoded("A cat"), decoded("Two red dogs"))
    assert not len(batch.links.part_text)
    assert not len(batch.links.query_text)
    model = made(system)
    found = backward(model, batch)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert {name for name, gradient in found.items() if gradient is not None} == trained


@pytest.mark.parametrize("locked", [("image",), ("text",), ("image", "text")])
def test_a_frozen_tower_stays_in_eval_and_takes_no_gradient(
    locked: tuple[str, ...], batch: Batch
) -> None:
    sections = {f"{tower}_tower": {"frozen": True} for tower in locked}
    model = made("clip", **sections)
    towers = {"image": model.image_tower, "text": model.text_tower}
    statistics = [buffer.clone() for buffer in model.image_tower.buffers()]
    for mode in (model, model.eval().train()):  # as built, and after an evaluation
        assert mode.training
        for name, tower in towers.items():
            training = {module.training for module in tower.modules()}
            assert training == {name not in locked}
    found = backward(model, batch)
    missing = {name.split("_tower.")[0] for name, gradient in found.items() if gradient is None}
    assert missing == set(locked)
    moved = [
        not torch.equal(before, after)
        for before, after in zip(statistics, model.image_tower.buffers(), strict=True)
    ]
    assert any(moved) == ("image" not in locked)


@pytest.mark.parametrize("system", ["hyper3", "hyper3 of means"])
@torch.no_grad()
def test_the_visual_node_of_a_query_is_of_its_own_image(system: str, batch: Batch) -> None:
    """Against one query at a time, whose image is the only one."""
    model = made(system).eval()
    images, links = pictures(batch), batch.links
    texts = [row[None] for group in batch.tokens for row in group]
    expected = []
    for owner, text in zip(links.query_owner, links.query_text, strict=True):
        patches = model.image_tower(images[owner : owner + 1]).patches
        assert model.pooling is not None
        if system == "hyper3":
            state = model.text_tower(texts[text])
            node = model.pooling(patches, state, torch.tensor([0]), 1)
        else:
            node = patches.mean(1)
        expected.append(model.image_tangents(model.node_proj(node)))
    found = model(batch, images).query_images
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-6)
    assert links.query_owner.unique().tolist() == [0, 2]
    assert (found[0] - found[-1]).abs().max() > 1e-4  # else a swap of their images would not show


@torch.no_grad()
def test_wholes_parts_and_texts_come_back_in_their_order(batch: Batch) -> None:
    model = made("hyper3").eval()
    images = pictures(batch)
    found = model(batch, images)
    for rows, one in ((found.images, images[:3]), (found.part_images, images[3:])):
        alone = torch.cat([model.encode_images(picture[None]) for picture in one])
        torch.testing.assert_close(rows, alone, rtol=1e-4, atol=1e-6)
    alone = torch.cat([model.encode_texts(row[None]) for group in batch.tokens for row in group])
    torch.testing.assert_close(found.texts, alone, rtol=1e-4, atol=1e-6)
