"""Every value that a shipped recipe trains with, written out, with where it is from.

The systems' papers leave most of these open, so that "code" below is what their authors published.
A recipe's twin has the same objective and parts (test_recipes).
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.image import IMAGENET_MEAN, IMAGENET_STD
from trainer.config import RECIPES, Recipe, load_recipe

LARGE = sorted(path.stem for path in RECIPES.glob("*.toml") if not path.stem.endswith("-smoke"))

Values = dict[str, Any]

CLIP: Values = {
    "kind": "clip",
    "contrast": "softmax",
    "mask_repeats": False,
    "query_weight": 0.0,
}

# MERU's code: one relation, of an image below its caption.
MERU: Values = {
    "kind": "meru",
    "contrast": "softmax",
    "mask_repeats": False,
    "entailment_weight": 0.2,
}

# ATMG's code: angles, no entailment beside them.
ATMG: Values = {
    "kind": "atmg",
    "contrast": "softmax",
    "mask_repeats": False,
}

# HyCoCLIP's code.
HYCOCLIP: Values = {
    "kind": "hycoclip",
    "contrast": "softmax",
    "mask_repeats": False,
    "entailment_weight": 0.2,
}

# PHyCLIP's code: 512 dimensions as 64 hyperboloids of 8, the mean of their distances.
PHYCLIP: Values = {
    "kind": "phyclip",
    "contrast": "softmax",
    "mask_repeats": False,
    "entailment_weight": 0.2,
    "factors": 64,
    "norm": "l1",
}

# UNCHA's code: half of every inter-modal and a quarter of every intra-modal relation, a tenth of
# the angle as constant pull, the entropy with its gradient, a column per part.
UNCHA: Values = {
    "kind": "uncha",
    "contrast": "softmax",
    "mask_repeats": False,
    "entailment_weight": 0.2,
    "part_columns": "repeated",
    "residual": "piecewise",
    "relation_weights": (0.5, 0.5, 0.25, 0.25),
    "entropy": True,
}

# Hyper3-CLIP: cone violations (its paper); unweighted relations, no entropy, columns, and query
# terms divided by the number of queries (its code).
HYPER3: Values = {
    "kind": "hyper3",
    "contrast": "softmax",
    "mask_repeats": False,
    "entailment_weight": 0.2,
    "part_columns": "repeated",
    "residual": "hinge",
    "relation_weights": (1.0, 1.0, 1.0, 1.0),
    "entropy": False,
    "query_weight": 1.0,
    "relations": ("image_text", "visual_hierarchy", "text_hierarchy"),
    "query_normaliser": "count",
    "visual_nodes": "pooled",
    "visual_order": "forward",
    "parents": "own",
}

# Table 5 of Hyper3-CLIP's paper: each variant changes one thing.
ABLATION: dict[str, Values] = {
    "no-query": HYPER3 | {"query_weight": 0.0},
    "image-text": HYPER3 | {"relations": ("image_text",)},
    "visual-hierarchy": HYPER3 | {"relations": ("visual_hierarchy",)},
    "text-hierarchy": HYPER3 | {"relations": ("text_hierarchy",)},
    "full": HYPER3,
    "mean-pooled": HYPER3 | {"visual_nodes": "mean"},
    "reversed": HYPER3 | {"visual_order": "reversed"},
    "shuffled": HYPER3 | {"parents": "shuffled"},
}

# Ours, after what trained well: names recur within a batch of few samples, and the cones of a
# short run on photos must wait for the contrast.
DEMO = HYPER3 | {"mask_repeats": True}
FLICKR8K = HYPER3 | {"mask_repeats": True, "entailment_weight": 0.02}

# Large crops and colours (UNCHA's and Hyper3-CLIP's code); torchvision's ColorJitter(.4, .4, .4,
# .1) in eight of ten pictures, grey ones in two.
COLOURS: Values = {
    "crop_scale": (0.8, 1.0),
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "jitter_probability": 0.8,
    "grayscale_probability": 0.2,
}

# Smaller crops alone (MERU's, HyCoCLIP's and PHyCLIP's code).
CROPS = COLOURS | {
    "crop_scale": (0.5, 1.0),
    "jitter_probability": 0.0,
    "grayscale_probability": 0.0,
}

# Hyper3-CLIP's code; the schedule of the others is its own here, so that the objective differs
# alone. Their code has the same rate, betas and decay.
OPTIM: Values = {
    "batch_size": 768,
    "steps": 500_000,
    "warmup_steps": 4000,
    "peak_lr": 5e-4,
    "betas": (0.9, 0.98),
    "eps": 1e-8,
    "weight_decay": 0.2,
    "max_grad_norm": 1.0,
    "precision": "bf16",
    "decay_idle_pooling": False,
    "max_bad_steps": 20,
}

SMALL_OPTIM = OPTIM | {"batch_size": 128, "warmup_steps": 100, "precision": "fp32"}


class Expected(NamedTuple):
    """What a recipe must say; the defaults are those of the ViT-B/16 recipes."""

    objective: Values
    max_parts: int = 5  # Hyper3-CLIP's paper
    augment: Values = COLOURS
    optim: Values = OPTIM
    base: Path | None = None
    stop_at: int | None = None
    seed: int = 31  # Hyper3-CLIP's code
    frozen: bool = False


CONTINUED = OPTIM | {"steps": 100_000}
BASE = Path("runs/hyper3_vit_b16-ablation-base")

RECIPES_EXPECTED: dict[str, Expected] = {
    "clip_vit_b16": Expected(CLIP, augment=CROPS),
    "beta-clip_vit_b16": Expected(CLIP | {"query_weight": 1.0}, augment=CROPS),
    "siglip_vit_b16": Expected(CLIP | {"contrast": "sigmoid"}, augment=CROPS),
    "lit_vit_b16": Expected(CLIP, augment=CROPS, frozen=True),
    "meru_vit_b16": Expected(MERU, augment=CROPS),
    "atmg_vit_b16": Expected(ATMG, augment=CROPS),
    # One part of each image, drawn anew on each visit (HyCoCLIP's and PHyCLIP's code).
    "hycoclip_vit_b16": Expected(HYCOCLIP, max_parts=1, augment=CROPS),
    "phyclip_vit_b16": Expected(PHYCLIP, max_parts=1, augment=CROPS),
    "phyclip-l2_vit_b16": Expected(PHYCLIP | {"norm": "l2"}, max_parts=1, augment=CROPS),
    # All parts (UNCHA's code): no image of GRIT has more than 20.
    "uncha_vit_b16": Expected(UNCHA, max_parts=64),
    "hyper3_vit_b16": Expected(HYPER3),
    # 80,000 steps of 100,000 without query terms, the rest once for each variant.
    "hyper3_vit_b16-ablation-base": Expected(
        HYPER3 | {"query_weight": 0.0}, optim=CONTINUED, stop_at=80_000
    ),
    **{
        f"hyper3_vit_b16-ablation-{name}": Expected(objective, optim=CONTINUED, base=BASE)
        for name, objective in ABLATION.items()
    },
    # Figure 2 of Hyper3-CLIP's paper: 10,000 steps stand for a run.
    **{
        f"hyper3_vit_b16-parts-{name}": Expected(
            HYPER3, max_parts=parts, optim=OPTIM | {"steps": 10_000}
        )
        for name, parts in {"2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "all": 64}.items()
    },
    "demo": Expected(
        DEMO,
        augment=CROPS | {"crop_scale": (1.0, 1.0)},
        optim=SMALL_OPTIM | {"steps": 750, "peak_lr": 4e-3, "weight_decay": 0.05},
        seed=0,
    ),
    "flickr8k": Expected(
        FLICKR8K,
        max_parts=3,
        augment=CROPS | {"crop_scale": (0.8, 1.0)},
        optim=SMALL_OPTIM | {"steps": 700, "peak_lr": 2e-3, "weight_decay": 0.1},
        seed=0,
    ),
    "flickr8k-pretrained": Expected(
        DEMO,
        augment=CROPS | {"crop_scale": (1.0, 1.0)},
        optim=SMALL_OPTIM | {"steps": 600, "peak_lr": 1e-3},
        seed=0,
        frozen=True,
    ),
}


def recipe(name: str) -> Recipe:
    return load_recipe(Path(name))


def test_the_table_has_every_recipe() -> None:
    assert sorted(RECIPES_EXPECTED) == LARGE


@pytest.mark.parametrize("name", LARGE)
def test_every_objective_is_the_one_that_its_system_is_known_by(name: str) -> None:
    assert recipe(name).objective.model_dump() == RECIPES_EXPECTED[name].objective


@pytest.mark.parametrize("name", LARGE)
def test_every_recipe_reads_of_a_sample_what_its_system_reads(name: str) -> None:
    expected, one = RECIPES_EXPECTED[name], recipe(name)
    assert one.data.max_parts == expected.max_parts
    assert one.data.max_queries == 6  # the root and five, Hyper3-CLIP's paper
    assert one.data.phrase_parent == "first"  # the same
    assert not one.data.phrases_end_at_sentences  # the same
    assert one.augment.model_dump() == expected.augment


@pytest.mark.parametrize("name", LARGE)
def test_every_optimiser_and_schedule_is_the_one_that_was_meant(name: str) -> None:
    expected, one = RECIPES_EXPECTED[name], recipe(name)
    assert one.optim.model_dump() == expected.optim
    assert (one.run.base, one.run.init) == (expected.base, None)
    assert (one.run.stop_at, one.run.seed) == (expected.stop_at, expected.seed)


@pytest.mark.parametrize("name", LARGE)
def test_every_space_and_every_lock_is_the_one_that_was_meant(name: str) -> None:
    one = recipe(name)
    assert one.model.model_dump() == {
        "dim": 512 if "vit_b16" in name else 256,
        "projection_bias": False,  # MERU's code; Hyper3-CLIP's has biases
        "curvature": 1.0,
        "learn_curvature": True,
        "pooling_heads": 8,
    }
    assert one.image_tower.frozen == RECIPES_EXPECTED[name].frozen
    assert not one.text_tower.frozen


@pytest.mark.parametrize("name", [name for name in LARGE if "vit_b16" in name])
def test_every_tower_is_the_one_of_the_papers(name: str) -> None:
    """ViT-B/16 at 224 pixels; CLIP's text transformer as MERU's code starts it."""
    one = recipe(name)
    assert one.data.side == 224
    assert one.image_tower.model_dump(exclude={"frozen"}) == {
        "kind": "timm",
        "name": "vit_base_patch16_224",
        "heads": None,
        "form": "meru",
        "norm": False,
        "weights": None,
        "patch_dropout": 0.0,
    }
    assert (one.data.mean, one.data.std) == (IMAGENET_MEAN, IMAGENET_STD)
    assert one.text_tower.model_dump(exclude={"frozen"}) == {
        "width": 512,
        "layers": 12,
        "heads": 8,
        "context_length": 77,
        "activation": "gelu",
        "init": "meru",
    }
