"""Signs of a run that goes wrong, as numbers to log."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from core import lorentz
from core.lorentz import MIN_RADIUS
from core.spaces import Euclidean
from trainer.model import DualEncoder
from trainer.objectives.entailment import ACROSS_MODALITIES, WITHIN_MODALITY
from trainer.objectives.nodes import Nodes
from trainer.objectives.options import AtmgObjective, MeruObjective

AT_BOUND = 1e-3
"""Relative distance from its bound within which a learned scalar rests there: about a step."""

_SCALES = {"whole": "global", "part": "local", "cross": "global_local"}


@torch.no_grad()
def measure(model: DualEncoder, nodes: Nodes) -> dict[str, Tensor]:
    """Learned scalars, mean radii by kind of node, and signs of failure; scalars on the device.

    What a system does not have is left out: in Euclidean space all that is curved, without an
    entailment term the cones, and the diversity of visual nodes that are means by design.
    """
    scalars, space = model.scalars(), model.space
    numbers = {
        f"scalar/{_SCALES[name]}_scale": getattr(scalars, name).scale for name in model.temperatures
    }
    if model.objective.needs_pooling and len(nodes.query_images) > 1:
        numbers["health/query_diversity"] = _query_diversity(model, nodes)
    numbers |= {
        f"health/alignment_{kind}": _alignment(
            points if isinstance(space, Euclidean) else points[..., 1:]
        )
        for kind, points in (("image", nodes.images), ("text", nodes.texts))
    }
    if isinstance(space, Euclidean):
        return numbers
    numbers |= _learned(model) | _mean_radii(radii(model, nodes))
    if not isinstance(model.objective, AtmgObjective):
        numbers |= _cones(model, nodes)
    return numbers


@torch.no_grad()
def gradients(model: DualEncoder) -> dict[str, Tensor]:
    """Norm of each trained tower's gradient in the last step, after clipping.

    Not of towers that processes share, of which none has the whole gradient.
    """
    towers = {"image_tower": model.image_tower, "text_tower": model.text_tower}
    found = {
        name: [value.grad for value in tower.parameters() if value.grad is not None]
        for name, tower in towers.items()
        if not any(isinstance(value, DTensor) for value in tower.parameters())
    }
    return {
        f"health/gradient_{name}": nn.utils.get_total_norm(values)
        for name, values in found.items()
        if values
    }


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold an inf or a nan; one wait for the device.

    Of tensors that processes share, this one's share is looked at.
    """
    floating = {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in tensors.items()
        if value.is_floating_point()
    }
    if not floating:
        return []
    finite = torch.stack([value.detach().isfinite().all() for value in floating.values()])
    return [name for name, well in zip(floating, finite.tolist(), strict=True) if not well]


def _alignment(vectors: Tensor) -> Tensor:
    """Length of the mean direction: 1 where all lie on one axis, near 0 where they spread."""
    return lorentz.length(lorentz.unit(vectors.flatten(1)).mean(0))


def _learned(model: DualEncoder) -> dict[str, Tensor]:
    """Curvature and scales of the modalities, and how many of them rest at a bound."""
    curvature, (low, high) = model.curvature, model.curvature_bounds
    visual, textual = model.visual_alpha.exp(), model.textual_alpha.exp()
    numbers = {
        "scalar/curvature": curvature.mean(),
        "scalar/visual_alpha": visual.mean(),
        "scalar/textual_alpha": textual.mean(),
        "health/alphas_at_bound": (torch.stack([visual, textual]) >= 1 - AT_BOUND).float().sum(),
    }
    if curvature.ndim:
        numbers["scalar/curvature_lowest"] = curvature.amin()
        numbers["scalar/curvature_highest"] = curvature.amax()
    if model.log_curv.requires_grad:
        numbers["health/curvature_at_lower"] = (curvature <= low * (1 + AT_BOUND)).float().sum()
        numbers["health/curvature_at_upper"] = (curvature >= high * (1 - AT_BOUND)).float().sum()
    return numbers


@torch.no_grad()
def radii(model: DualEncoder, nodes: Nodes) -> dict[str, Tensor]:
    """The geodesic radius of every node by its kind; nothing in Euclidean space."""
    space = model.space
    if isinstance(space, Euclidean):
        return {}
    kinds = {
        "image": nodes.images,
        "text": nodes.texts,
        "part_image": nodes.part_images,
        "part_text": nodes.part_texts,
        "query_image": nodes.query_images,
        "query_text": nodes.query_texts,
    }
    return {kind: space.radius(points) for kind, points in kinds.items() if len(points)}


def _mean_radii(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The mean radius of each kind of node, and the deviation of all over their mean."""
    every = torch.cat(list(found.values()))
    means = {f"radius/{kind}": values.mean() for kind, values in found.items()}
    return means | {"health/radius_spread": every.std() / every.mean()}


def _cones(model: DualEncoder, nodes: Nodes) -> dict[str, Tensor]:
    """Of the nodes that have cones, how many are saturated; of cones, how many are satisfied.

    Beside the share of cones that hold their own specific side stands the share that hold the
    one of another image. A term at 0 is learned where they differ, and says nothing where both
    are 1: all points may lie on one axis, or the apertures be half-spaces.
    """
    curvature = model.curvature
    numbers = {}
    general = {
        "text": nodes.texts,
        "part_image": nodes.part_images,
        "part_text": nodes.part_texts,
        "query_image": nodes.query_images,
        "query_text": nodes.query_texts,
    }
    for kind, points in general.items():
        if len(points):
            scaled = curvature**0.5 * lorentz.length(points[..., 1:])
            numbers[f"health/saturated_{kind}"] = (scaled <= 2 * MIN_RADIUS).float().mean()
    for name, cones, own, others, scale in _relations(model, nodes):
        aperture = (scale * lorentz.half_aperture(cones, curvature)).clamp(max=torch.pi)
        numbers |= {
            f"health/aperture_{name}": aperture.mean(),
            f"health/satisfied_{name}": _within(cones, own, curvature, aperture),
            f"health/satisfied_by_others_{name}": _within(cones, others, curvature, aperture),
        }
    return numbers


def _within(general: Tensor, specific: Tensor, curvature: Tensor, aperture: Tensor) -> Tensor:
    angle = lorentz.exterior_angle(general, specific, curvature)
    return (angle <= aperture).float().mean()


def _relations(
    model: DualEncoder, nodes: Nodes
) -> Iterator[tuple[str, Tensor, Tensor, Tensor, float]]:
    """Name, cones, specific side, that of another image, and scale of the apertures."""
    if len(nodes.images) < 2:
        return
    across = 1.0 if isinstance(model.objective, MeruObjective) else ACROSS_MODALITIES
    owner = nodes.part_owner
    other = (owner + 1) % len(nodes.images)
    images, texts = nodes.images, nodes.texts
    yield "image_text", texts, images, images.roll(1, 0), across
    if len(owner):
        yield "image_part", nodes.part_images, images[owner], images[other], WITHIN_MODALITY
        yield "text_part", nodes.part_texts, texts[owner], texts[other], WITHIN_MODALITY


def _query_diversity(model: DualEncoder, nodes: Nodes) -> Tensor:
    """Mean distance of visual nodes of one image over that of nodes of different images.

    Queries stand image after image: neighbours make the pairs within, rows half of all queries
    apart those between. 1 where there are no such pairs.
    """
    points, owner = nodes.query_images, nodes.query_owner

    def mean_distance(shift: int, *, within: bool) -> Tensor:
        chosen = ((owner == owner.roll(shift, 0)) == within).float()
        apart = _distance(model, points, points.roll(shift, 0))
        return (apart * chosen).sum() / chosen.sum()

    ratio = mean_distance(1, within=True) / mean_distance(max(len(owner) // 2, 1), within=False)
    return ratio.where(ratio.isfinite(), 1.0)


def _distance(model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
    """Of points row by row: along the hyperboloid, or straight between unit vectors."""
    if isinstance(model.space, Euclidean):
        return lorentz.length(x - y)
    return lorentz.distance(x, y, model.curvature)
