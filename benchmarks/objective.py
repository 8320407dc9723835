"""The objective of Hyper3-CLIP, forward and backward, against the plain formulas.

Both take the points of 768 images, 1,460 parts and 4,000 queries (512 dimensions, float32) and
give the loss and the gradients of all points, of the curvature and of the temperatures. The plain
side is the textbook: acosh of the Lorentz product for distances, acos for angles, once for each
direction of each term, and an image's column once for each of its parts. Losses and gradients are
checked equal first, in float64, as the textbook loses digits in float32.

    python -m benchmarks.objective
    python -m benchmarks.objective --images 64 --parts 120 --queries 330 --rounds 2
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import alternate, arguments, report, tabulate, worst_difference
from trainer.allocator import keep_freed_memory
from trainer.objectives.hyper3 import hyper3_objective
from trainer.objectives.nodes import Nodes, Scalars, Temperature
from trainer.objectives.options import Hyper3Objective

TOLERANCE = 1e-6  # of the largest value, in float64
OPTIONS = Hyper3Objective()
POINTS = (
    "images", "texts", "part_images", "part_texts", "query_images", "query_texts", "query_parents",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Points and scalars, leaves of the gradient."""

    nodes: Nodes
    scalars: Scalars

    @property
    def leaves(self) -> dict[str, Tensor]:
        """All that gets a gradient."""
        found = {name: getattr(self.nodes, name) for name in POINTS}
        found["curvature"] = self.scalars.curvature
        scales = {name: getattr(self.scalars, name).scale for name in ("whole", "part", "cross")}
        return found | scales


def make_case(
    images: int, parts: int, queries: int, dim: int, seed: int, dtype: torch.dtype
) -> Case:
    """Random points with space norms about 1; parts and queries fall on images at random."""
    draw = torch.Generator().manual_seed(seed)

    def points(count: int) -> Tensor:
        space = torch.randn((count, dim), generator=draw, dtype=torch.float64)
        space = space * (0.5 + torch.rand((count, 1), generator=draw, dtype=torch.float64))
        space = space / dim**0.5
        time = (1 + space.square().sum(1, keepdim=True)).sqrt()
        return torch.cat([time, space], 1).to(dtype).requires_grad_()

    def owners(count: int) -> Tensor:
        return torch.randint(images, (count,), generator=draw).sort().values

    def ids(count: int) -> Tensor:
        return torch.arange(count)

    def scalar(value: float) -> Tensor:
        return torch.tensor(value, dtype=dtype, requires_grad=True)

    part_owner, query_owner = owners(parts), owners(queries)
    kinds = torch.tensor([1.0, 0.75, 0.5], dtype=dtype)
    nodes = Nodes(
        images=points(images), texts=points(images), text_id=ids(images),
        part_images=points(parts), part_texts=points(parts), part_owner=part_owner,
        part_count=torch.bincount(part_owner, minlength=images), part_id=ids(parts),
        part_text_id=ids(parts), query_images=points(queries), query_texts=points(queries),
        query_text_id=ids(queries), query_parents=points(queries), query_owner=query_owner,
        query_weight=kinds[torch.randint(3, (queries,), generator=draw)],
        query_has_parent=torch.ones(queries, dtype=dtype),
    )  # fmt: skip
    scales = (Temperature(scalar(value)) for value in (1 / 0.07, 1 / 0.05, 1 / 0.06))
    return Case(nodes, Scalars(scalar(1.0), *scales))


def ours(case: Case) -> Tensor:
    """The loss as training has it."""
    return hyper3_objective(case.nodes, case.scalars, OPTIONS)["loss"]


def plain(case: Case) -> Tensor:
    """The loss by the formulas of the papers, as they stand."""
    nodes, scalars, c = case.nodes, case.scalars, case.scalars.curvature
    owner = nodes.part_owner
    contrast = plain_pairs(nodes.images, nodes.texts, scalars.whole, c)
    contrast = contrast + plain_pairs(nodes.part_images, nodes.part_texts, scalars.part, c)
    for part, whole in ((nodes.part_images, nodes.texts), (nodes.part_texts, nodes.images)):
        confidence = torch.exp(-plain_uncertainty(part).detach() / 2).clamp(0.1, 10)
        logits = -scalars.cross.scale * confidence[:, None] * plain_distances(part, whole[owner], c)
        contrast = contrast + functional.cross_entropy(logits, torch.arange(len(part))) / 2
    cones = plain_residual(nodes.texts, nodes.images, c, 0.7).mean()
    cones = cones + plain_residual(nodes.part_texts, nodes.part_images, c, 0.7).mean()
    for general, specific in (
        (nodes.part_images, nodes.images[owner]),
        (nodes.part_texts, nodes.texts[owner]),
    ):
        violation = plain_residual(general, specific, c, 1.2)
        cones = cones + (violation + plain_calibration(general, violation)).mean()
    weight = nodes.query_weight / len(nodes.query_weight)
    violation = plain_residual(nodes.query_texts, nodes.query_images, c, 0.7)
    cones = cones + (weight * violation).sum()
    for general, specific in (
        (nodes.query_images, nodes.images[nodes.query_owner]),
        (nodes.query_texts, nodes.query_parents),
    ):
        violation = plain_residual(general, specific, c, 1.2)
        cones = cones + (weight * (violation + plain_calibration(general, violation))).sum()
    return contrast + OPTIONS.entailment_weight * cones


def plain_pairs(a: Tensor, b: Tensor, temperature: Temperature, c: Tensor) -> Tensor:
    """Half the cross-entropies of rows and of columns, each with distances of its own."""
    own = torch.arange(len(a))
    there = functional.cross_entropy(-temperature.scale * plain_distances(a, b, c), own)
    back = functional.cross_entropy(-temperature.scale * plain_distances(b, a, c), own)
    return (there + back) / 2


def plain_distances(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """``acosh(-c <x, y>) / sqrt(c)`` of all pairs; time follows from space."""
    product = a[:, 1:] @ b[:, 1:].T - plain_time(a, c)[:, None] * plain_time(b, c)
    return torch.acosh((-c * product).clamp(min=1 + 1e-8)) / c**0.5


def plain_time(point: Tensor, c: Tensor) -> Tensor:
    """``sqrt(1/c + |x|²)``."""
    return (1 / c + point[:, 1:].square().sum(1)).sqrt()


def plain_residual(general: Tensor, specific: Tensor, c: Tensor, scale: float) -> Tensor:
    """``max(φ - sΘ, 0)`` with the angle as an acos and the aperture as an asin."""
    a0, b0 = plain_time(specific, c), plain_time(general, c)
    product = c * ((general[:, 1:] * specific[:, 1:]).sum(1) - a0 * b0)
    norm = general[:, 1:].norm(dim=1)
    below = norm * (product.square() - 1).clamp(min=1e-12).sqrt() + 1e-12
    angle = torch.acos(((a0 + product * b0) / below).clamp(-1 + 1e-12, 1 - 1e-12))
    aperture = torch.asin((0.2 / (norm * c**0.5)).clamp(max=1 - 1e-12))
    return functional.relu(angle - scale * aperture)


def plain_uncertainty(point: Tensor) -> Tensor:
    """``softplus(-|x|)``."""
    return functional.softplus(-point[:, 1:].norm(dim=1))


def plain_calibration(general: Tensor, violation: Tensor) -> Tensor:
    """UNCHA's, without the entropy."""
    u = plain_uncertainty(general)
    return 10 * (violation.detach() / (u.exp() + 1e-6) / 2 + u / 2)


def run(case: Case, side: Callable[[Case], Tensor], _number: int = 0) -> dict[str, Tensor]:
    """The loss and all gradients by name, after one pass there and back."""
    for leaf in case.leaves.values():
        leaf.grad = None
    loss = side(case)
    loss.backward()
    grads = {name: leaf.grad for name, leaf in case.leaves.items() if leaf.grad is not None}
    return grads | {"loss": loss.detach()}


def difference(case: Case) -> float:
    """Of loss and gradients, each by the largest value of its tensor."""
    found, expected = run(case, ours), run(case, plain)
    for name in POINTS:  # of time, which follows from space, neither side has a slope
        for gradients in (found, expected):
            gradients[name] = gradients[name][:, 1:]
    return max(worst_difference({name: found[name]}, {name: expected[name]}) for name in expected)


def main() -> None:
    """Check, measure, and print one table."""
    keep_freed_memory()
    title = "The objective against the plain formulas."
    sizes = {"images": 768, "parts": 1460, "queries": 4000, "dim": 512}
    options = arguments(title, rounds=7, seed=0, **sizes).parse_args()
    make = partial(
        make_case, options.images, options.parts, options.queries, options.dim, options.seed
    )
    worst = difference(make(torch.float64))
    if worst > TOLERANCE:
        sys.exit(f"losses or gradients differ by {worst:.1e} of their largest value")
    case = make(torch.float32)
    sides = {"plain": partial(run, case, plain), "ours": partial(run, case, ours)}
    seconds = alternate(sides, options.rounds)
    about = (
        f"forward + backward, {options.images} images, {options.parts} parts, {options.queries} "
        f"queries, {options.dim} dimensions, float32\n"
        f"losses and gradients equal to {worst:.1e} of their largest value (float64); "
        f"{options.rounds} rounds, alternating"
    )
    report("objective", tabulate(seconds, "plain"), about, options)


if __name__ == "__main__":
    main()
