"""Signs of a run that goes wrong, as numbers to log and as sentences to read."""

import math

import torch
from torch import Tensor

from core.lorentz import MIN_RADIUS
from core.spaces import Euclidean
from trainer.config import Recipe
from trainer.model import MAX_LOG_SCALE, DualEncoder
from trainer.objectives.nodes import Nodes


@torch.no_grad()
def measure(model: DualEncoder, nodes: Nodes) -> dict[str, Tensor]:
    """The learned scalars, and the mean geodesic radius of every kind of node."""
    space = model.space
    kinds = {
        "image": nodes.images,
        "text": nodes.texts,
        "part_image": nodes.part_images,
        "part_text": nodes.part_texts,
        "query_image": nodes.query_images,
        "query_text": nodes.query_texts,
    }
    scalars = model.scalars()
    numbers = {
        "scalar/global_scale": scalars.whole.scale,
        "scalar/local_scale": scalars.part.scale,
        "scalar/global_local_scale": scalars.cross.scale,
    }
    if isinstance(space, Euclidean):
        return numbers
    radii = {
        f"radius/{kind}": space.radius(points).mean()
        for kind, points in kinds.items()
        if len(points)
    }
    return (
        numbers
        | radii
        | {
            "scalar/curvature": scalars.curvature.mean(),
            "scalar/visual_alpha": model.visual_alpha.exp().mean(),
            "scalar/textual_alpha": model.textual_alpha.exp().mean(),
        }
    )


def warnings(recipe: Recipe, numbers: dict[str, float]) -> list[str]:
    """What a person should look at, each with a remedy; empty when all is well.

    A learned curvature that comes to rest at its lower bound is the family's habit (meru#4),
    so it is said, not called a failure.
    """
    found = []
    curvature = numbers["scalar/curvature"]
    start = recipe.model.curvature
    if recipe.model.learn_curvature and curvature <= start / 10 * 1.001:
        found.append(
            f"curvature rests at its lower bound {curvature:.3g}: the space is nearly flat; "
            "fix it with model.learn_curvature=false if you need the cones"
        )
    if numbers["scalar/global_scale"] >= math.exp(MAX_LOG_SCALE) * 0.999:
        found.append(
            "the global temperature is at its limit of 1/100: a larger batch, or less training"
        )
    at_chance = 0.98 * math.log(recipe.optim.batch_size)
    if numbers["contrastive/global"] >= at_chance and numbers["entailment/image_text"] < 0.05:
        found.append(
            "all points lie on one axis: every cone is satisfied and nothing is told apart; "
            "start again with a lower objective.entailment_weight"
        )
    root = math.sqrt(curvature)
    found += [
        f"{kind} points lie within the saturated cones around the origin: "
        "entailment has no gradient there; lower objective.entailment_weight"
        for kind in ("image", "text")
        if math.sinh(root * numbers[f"radius/{kind}"]) <= 2 * MIN_RADIUS
    ]
    return found
