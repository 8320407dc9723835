"""The parts of which objectives are made, against their plain statements; tolerance 1e-12."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from core import lorentz
from trainer.objectives.contrastive import part_to_whole, uncertainty, wholes_that_repeat
from trainer.objectives.entailment import Cones, calibration, residual
from trainer.objectives.loss import loss_terms
from trainer.objectives.nodes import Nodes, Scalars, Temperature
from trainer.objectives.options import (
    AtmgObjective,
    HycoclipObjective,
    Hyper3Objective,
    MeruObjective,
    Objective,
    PhyclipObjective,
    UnchaObjective,
)
from trainer.objectives.queries import query_terms

CURVED: list[Objective] = [
    MeruObjective(kind="meru"),
    AtmgObjective(kind="atmg"),
    HycoclipObjective(kind="hycoclip"),
    PhyclipObjective(kind="phyclip", factors=2),
    UnchaObjective(kind="uncha"),
    Hyper3Objective(),
]
OWNER = torch.tensor([0, 0, 1, 3])
CURVATURE = torch.tensor(0.7, dtype=torch.float64)
SCALE = torch.tensor(3.0, dtype=torch.float64)

every_curved = pytest.mark.parametrize("options", CURVED, ids=lambda options: options.kind)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def scalars(bias: float | None = None, curvature: Tensor = CURVATURE) -> Scalars:
    offset = None if bias is None else torch.tensor(bias, dtype=torch.float64)
    temperatures = (Temperature(SCALE * factor, offset) for factor in (1.0, 1.5, 2.0))
    return Scalars(curvature, *temperatures)


def batch(curvature: Tensor = CURVATURE) -> Nodes:
    """Four wholes, of which one has two parts and one none, and five queries; in six dimensions."""

    def points(count: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        tangent = torch.randn((count, 6), dtype=torch.float64, generator=generator)
        if curvature.ndim:
            tangent = tangent.unflatten(-1, (len(curvature), -1))
        lifted: Tensor = lorentz.lift(tangent, curvature)
        return lifted

    return Nodes(
        images=points(4, 1),
        texts=points(4, 2),
        text_id=torch.arange(4),
        part_images=points(4, 3),
        part_texts=points(4, 4),
        part_owner=OWNER,
        part_count=torch.tensor([2, 1, 0, 1]),
        part_id=torch.arange(4),
        part_text_id=torch.arange(4),
        query_images=points(5, 5),
        query_texts=points(5, 6),
        query_text_id=torch.arange(5),
        query_parents=points(5, 7),
        query_owner=torch.tensor([0, 0, 1, 2, 3]),
        query_weight=torch.tensor([1, 0.75, 0.5, 1, 0.5], dtype=torch.float64),
        query_has_parent=torch.ones(5, dtype=torch.float64),
    )


def batch_for(options: Objective) -> tuple[Nodes, Scalars]:
    curvature = CURVATURE
    if isinstance(options, PhyclipObjective):
        curvature = torch.tensor([0.5, 2.0], dtype=torch.float64)
    return batch(curvature), scalars(curvature=curvature)


def without(nodes: Nodes, prefix: str) -> Nodes:
    """The nodes with nothing under the fields of this prefix."""
    names = [field.name for field in fields(nodes) if field.name.startswith(prefix)]
    empty = {name: getattr(nodes, name)[:0] for name in names if name != "part_count"}
    if prefix == "part":
        empty["part_count"] = torch.zeros_like(nodes.part_count)
    return replace(nodes, **empty)


def test_a_whole_repeats_a_part_when_another_of_its_parts_does() -> None:
    nodes = replace(batch(), part_id=torch.tensor([0, 0, 2, 0]), part_text_id=torch.arange(4))
    # parts 0 and 1 are of whole 0 and show what part 3 of whole 3 shows
    assert wholes_that_repeat(nodes).nonzero().tolist() == [[0, 3], [1, 3], [3, 0]]


@pytest.mark.parametrize("columns", ["repeated", "unique"])
def test_parts_find_the_whole_among_its_columns(columns: str) -> None:
    nodes, given = batch(), scalars()
    confidence = torch.exp(-uncertainty(lorentz.length(nodes.part_images[:, 1:])) / 2)[:, None]
    near = -confidence * lorentz.pairwise_distance(nodes.part_images, nodes.texts, CURVATURE)
    plain = (
        functional.cross_entropy(given.cross.scale * near[:, OWNER], torch.arange(4))
        if columns == "repeated"
        else functional.cross_entropy(given.cross.scale * near, OWNER)
    )
    got = part_to_whole(
        nodes.part_images,
        nodes.texts,
        nodes,
        given,
        repeated_columns=columns == "repeated",
        shows=None,
    )
    assert got.item() == close(plain.item())


def test_a_part_does_not_learn_by_its_confidence() -> None:
    nodes, given = batch(), scalars()
    part = nodes.part_images.clone().requires_grad_()
    constant = torch.exp(-uncertainty(lorentz.length(part[:, 1:])).detach() / 2)[:, None]
    near = -constant * lorentz.pairwise_distance(part, nodes.texts, CURVATURE)
    plain = functional.cross_entropy(given.cross.scale * near, OWNER)
    got = part_to_whole(part, nodes.texts, nodes, given, repeated_columns=False, shows=None)
    (expected,) = torch.autograd.grad(plain, part)
    (gradient,) = torch.autograd.grad(got, part)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-12)


def test_residuals_are_violations_of_the_scaled_cone_and_a_pull() -> None:
    nodes = batch()
    angle = lorentz.exterior_angle(nodes.texts, nodes.images, CURVATURE)
    aperture = lorentz.half_aperture(nodes.texts, CURVATURE)
    for scale in (0.7, 1.2, 4.0):
        hinge = residual(nodes.texts, nodes.images, CURVATURE, scale)
        piecewise = residual(nodes.texts, nodes.images, CURVATURE, scale, "piecewise")
        for row in range(4):
            outside = angle[row].item() - scale * aperture[row].item()
            assert hinge.violation[row].item() == close(max(outside, 0))
            assert piecewise.violation[row].item() == close(
                max(outside, 0) + 0.1 * angle[row].item()
            )


def test_calibration_is_its_formula_and_moves_only_the_radius_of_the_general_side() -> None:
    general = batch().part_images.requires_grad_()
    violation = torch.tensor([0.0, 0.5, 1.3, 2.0], dtype=torch.float64, requires_grad=True)
    rows = calibration(Cones(violation, lorentz.length(general[:, 1:])))
    for row, r in enumerate(violation.tolist()):
        u = math.log1p(math.exp(-general[row, 1:].norm().item()))
        assert rows[row].item() == close(10 * (r / (math.exp(u) + 1e-6) + u) / 2)
    still = Cones(violation, lorentz.length(general.detach()[:, 1:]))
    assert not calibration(still).requires_grad
    (gradient,) = torch.autograd.grad(rows.sum(), general)
    space = general.detach()[:, 1:]
    along = (gradient[:, 1:] * space).sum(1) / space.norm(dim=1)
    assert torch.allclose(gradient[:, 1:].norm(dim=1), along.abs())
    assert (along[:2] < 0).all()  # r < 1: farther out is better


def test_the_entropy_is_added_to_every_row_and_has_a_gradient() -> None:
    general = batch().part_images.requires_grad_()
    cones = Cones(torch.zeros(4, dtype=torch.float64), lorentz.length(general[:, 1:]))
    added = calibration(cones, entropy=True) - calibration(cones)
    share = torch.softmax(uncertainty(cones.length), 0)
    entropy = -10 * sum(p * math.log(p + 1e-8) for p in share.tolist())
    assert added.tolist() == [close(entropy)] * 4
    (gradient,) = torch.autograd.grad(added.sum(), general)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("normaliser", "divisor"), [("count", 5), ("weight", 3.75), ("sum", 1), ("images", 4)]
)
def test_query_terms_are_divided_by_what_the_recipe_says(normaliser: str, divisor: float) -> None:
    nodes = batch()
    terms = query_terms(nodes, CURVATURE, Hyper3Objective(query_normaliser=normaliser))
    own = nodes.images[nodes.query_owner]
    across = residual(nodes.query_texts, nodes.query_images, CURVATURE, 0.7)
    visual = residual(nodes.query_images, own, CURVATURE, 1.2)
    textual = residual(nodes.query_texts, nodes.query_parents, CURVATURE, 1.2)
    plain = {
        "query/image_text": across.violation,
        "query/visual_hierarchy": visual.violation,
        "query/visual_calibration": calibration(visual),
        "query/text_hierarchy": textual.violation,
        "query/text_calibration": calibration(textual),
    }
    for name, rows in plain.items():
        weighted = sum(
            w * r for w, r in zip(nodes.query_weight.tolist(), rows.tolist(), strict=True)
        )
        assert terms.pop(name).item() == close(weighted / divisor), name
    assert not terms


def test_a_query_without_a_parent_counts_but_has_no_text_hierarchy() -> None:
    nodes = batch()
    orphan = replace(nodes, query_has_parent=torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]))
    kept = torch.tensor([0, 1, 3, 4])
    names = [field.name for field in fields(nodes) if field.name.startswith("query")]
    left = replace(nodes, **{name: getattr(nodes, name)[kept] for name in names})
    options = Hyper3Objective()
    got, full, rest = (query_terms(each, CURVATURE, options) for each in (orphan, nodes, left))
    for name in ("query/text_hierarchy", "query/text_calibration"):
        assert got[name].item() == close(rest[name].item() * 4 / 5)
    for name in ("query/image_text", "query/visual_hierarchy", "query/visual_calibration"):
        assert got[name] == full[name]


@every_curved
def test_a_batch_without_parts_and_queries_has_only_the_terms_of_wholes(
    options: Objective,
) -> None:
    nodes, given = batch_for(options)
    terms = loss_terms(without(without(nodes, "part"), "query"), given, options)
    present = {name for name, term in terms.items() if term != 0}
    assert present <= {"contrastive/global", "entailment/image_text", "loss"}
    assert terms["contrastive/global"] > 0
    assert terms["loss"].isfinite()


@every_curved
def test_the_loss_is_the_sum_of_its_terms_with_entailment_under_its_weight(
    options: Objective,
) -> None:
    nodes, given = batch_for(options)
    if isinstance(options, Hyper3Objective):
        options = options.model_copy(update={"query_weight": 0.5})
    terms = loss_terms(nodes, given, options)
    total = 0.0
    for name, term in terms.items():
        group = name.partition("/")[0]
        weight = {"loss": 0.0, "contrastive": 1.0, "query": 0.1}.get(group, 0.2)
        total += weight * term.item()
    assert terms["loss"].item() == close(total)


@every_curved
def test_masks_change_nothing_where_nothing_repeats(options: Objective) -> None:
    nodes, given = batch_for(options)
    masked = options.model_copy(update={"mask_repeats": True})
    assert loss_terms(nodes, given, masked) == loss_terms(nodes, given, options)


@every_curved
def test_a_repeated_caption_is_no_negative(options: Objective) -> None:
    nodes, given = batch_for(options)
    masked = options.model_copy(update={"mask_repeats": True})
    twice = replace(nodes, text_id=torch.tensor([0, 1, 2, 0]))
    before = loss_terms(nodes, given, options)["contrastive/global"]
    assert loss_terms(twice, given, masked)["contrastive/global"] < before
    assert loss_terms(twice, given, options)["contrastive/global"] == before


@pytest.mark.parametrize(
    "options",
    [one for one in CURVED if not isinstance(one, AtmgObjective)],
    ids=lambda options: options.kind,
)
def test_every_distance_can_be_told_apart_by_the_sigmoid(options: Objective) -> None:
    nodes, given = batch_for(options)
    single = options.model_copy(update={"contrast": "sigmoid"})
    biased = scalars(-1.0, given.curvature)
    loss = loss_terms(nodes, biased, single)["loss"]
    assert loss.isfinite()
    assert loss != loss_terms(nodes, given, options)["loss"]
