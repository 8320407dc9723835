"""The systems of the comparison against their own code: every logged term and every gradient.

Their code guards acos and acosh with a small constant, and ours needs none. So each system is
compared twice: with its own forms in the place of ours, where nothing but the last digits may
differ, and with our exact ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from core import lorentz  # noqa: E402
from core.spaces import Product  # noqa: E402
from trainer.objectives.loss import loss_terms  # noqa: E402
from trainer.objectives.nodes import Nodes, Scalars, Temperature  # noqa: E402
from trainer.objectives.options import (  # noqa: E402
    AtmgObjective,
    HycoclipObjective,
    MeruObjective,
    Objective,
    PhyclipObjective,
    UnchaObjective,
)

HERE = Path(__file__).parent
SYSTEMS: dict[str, Objective] = {
    "uncha": UnchaObjective(kind="uncha"),
    "hycoclip": HycoclipObjective(kind="hycoclip"),
    "meru": MeruObjective(kind="meru"),
    "atmg": AtmgObjective(kind="atmg"),
    "phyclip_l1": PhyclipObjective(kind="phyclip", factors=64, norm="l1"),
    "phyclip_l2": PhyclipObjective(kind="phyclip", factors=64, norm="l2"),
}
GUARDED = 1e-6  # between their code and ours with their forms, values and gradients
EXACT_VALUE, EXACT_GRADIENT = 1e-4, 1e-6  # with our forms
CLEAR_OF_THE_GUARD = 0.25  # √c|root| beyond which the guard of the aperture is not seen
RELATIONS = {
    "text_image_entailment_loss": "entailment/image_text",
    "box_text_image_entailment_loss": "entailment/part_image_text",
    "cross_image_entailment_loss": "entailment/image_part",
    "cross_text_entailment_loss": "entailment/text_part",
}
LOGGED_BEFORE_A_HALF = {  # terms that the system logs before the last half of their weight
    "uncha": ("cross_image_entailment_loss", "cross_text_entailment_loss"),
    "hycoclip": tuple(RELATIONS),
    "phyclip_l1": tuple(RELATIONS),
    "phyclip_l2": tuple(RELATIONS),
}
Arrays = dict[str, npt.NDArray[Any]]

every_system = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    loaded: Arrays = {}
    for name in ("objective.npz", "systems.npz"):
        with np.load(HERE / name) as file:
            loaded |= {key: file[key] for key in file.files}
    return loaded


@pytest.fixture(scope="module")
def logs() -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = json.loads((HERE / "systems.json").read_text())
    return values


class Inputs:
    """Tangents before α and the learned scalars of one system, as leaves with gradients."""

    def __init__(self, arrays: Arrays, system: str) -> None:
        self.system = system
        self.product = system.startswith("phyclip")
        groups = ("input/", "param/", *(["phyclip/"] if self.product else []))
        self.leaves: dict[str, Tensor] = {
            name.partition("/")[2]: torch.tensor(value, requires_grad=True)
            for name, value in arrays.items()
            if name.startswith(groups) and value.dtype == np.float64
        }
        # A system with one temperature has the whole's.
        self.leaves["logit_scale"] = self.leaves["global_logit_scale"]
        self.valid = torch.tensor(arrays["input/part_valid"]).bool()

    @property
    def curvature(self) -> Tensor:
        return self.leaves["log_curvs" if self.product else "log_curv"].exp()

    def scalars(self) -> Scalars:
        names = ["global_logit_scale", "local_logit_scale", "global_local_logit_scale"]
        if self.system != "uncha":
            names = ["logit_scale"] * 3
        return Scalars(self.curvature, *(Temperature(self.leaves[name].exp()) for name in names))

    def points(self, name: str) -> Tensor:
        side = "visual" if "image" in name else "textual"
        if not self.product:
            tangent = self.leaves[f"{side}_alpha"].exp() * self.leaves[name]
            return lorentz.lift(tangent, self.curvature)
        factors = self.leaves[name].unflatten(-1, (len(self.curvature), -1))
        scaled = self.leaves[f"{side}_alphas"].exp()[:, None] * factors
        points: Tensor = Product(self.curvature, "l1").lift(scaled.flatten(-2))
        return points

    def nodes(self) -> Nodes:
        images, texts = self.points("image_tangent"), self.points("text_tangent")
        owner = torch.arange(len(images))
        if self.system == "uncha":
            part_images = self.points("part_image_tangent")[self.valid]
            part_texts = self.points("part_text_tangent")[self.valid]
            owner = owner.repeat_interleave(self.valid.sum(1))
        elif self.system in ("meru", "atmg"):
            part_images, part_texts, owner = images[:0], texts[:0], owner[:0]
        else:
            part_images = self.points("one_part_image_tangent")
            part_texts = self.points("one_part_text_tangent")
        return Nodes(
            images=images,
            texts=texts,
            text_id=torch.arange(len(images)),
            part_images=part_images,
            part_texts=part_texts,
            part_owner=owner,
            part_count=torch.bincount(owner, minlength=len(images)),
            part_id=torch.arange(len(owner)),
            part_text_id=torch.arange(len(owner)),
            query_images=images[:0],
            query_texts=texts[:0],
            query_text_id=owner[:0],
            query_parents=texts[:0],
            query_owner=owner[:0],
            query_weight=torch.zeros(0),
            query_has_parent=torch.zeros(0),
        )


def as_logged(terms: dict[str, Tensor], scalars: Scalars, system: str) -> dict[str, float]:
    """Our terms as the system writes them down."""
    values = {name: term.item() for name, term in terms.items()}

    def total(*groups: str) -> float:
        return sum(value for name, value in values.items() if name.startswith(groups))

    logged = {name: values.get(ours, 0.0) for name, ours in RELATIONS.items()}
    for name in LOGGED_BEFORE_A_HALF.get(system, ()):
        logged[name] *= 2
    scale = scalars.whole.scale.item()
    return logged | {
        "contrastive_loss": total("contrastive/"),
        "entailment_loss": total("entailment/", "calibration/"),
        "loss": values["loss"],
        "logit_scale": scale,
        "global_scale": scale,
        "local_scale": scalars.part.scale.item(),
        "global_local_scale": scalars.cross.scale.item(),
        "curv": scalars.curvature.mean().item(),  # a product logs none
    }


def golden_gradients(arrays: Arrays, system: str) -> Arrays:
    prefix = f"{system}/"
    return {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}


def check_terms(inputs: Inputs, log: dict[str, float], tolerance: float) -> Tensor:
    """Compare every term of the system's log; returns our loss."""
    scalars = inputs.scalars()
    terms = loss_terms(inputs.nodes(), scalars, SYSTEMS[inputs.system])
    ours = as_logged(terms, scalars, inputs.system)
    assert {name: ours[name] for name in log} == pytest.approx(log, rel=0, abs=tolerance)
    return terms["loss"]


@every_system
def test_with_its_own_guards_each_system_is_met_to_the_last_digits(
    arrays: Arrays,
    logs: dict[str, dict[str, float]],
    system: str,
    guard: Callable[[float], None],
) -> None:
    guard(1e-6 if system.startswith("phyclip") else 1e-8)
    inputs = Inputs(arrays, system)
    check_terms(inputs, logs[system], GUARDED).backward()
    golden = golden_gradients(arrays, system)
    assert len(golden) >= 5
    for name, gradient in golden.items():
        ours = inputs.leaves[name].grad
        assert ours is not None, name
        np.testing.assert_allclose(ours, gradient, rtol=0, atol=GUARDED, err_msg=name)
        # Many are far below the tolerance as a whole, so they are met in proportion as well.
        assert np.abs(ours.numpy() - gradient).max() < 1e-6 * np.abs(gradient).max(), name


@every_system
def test_the_exact_forms_give_the_terms_of_each_system(
    arrays: Arrays, logs: dict[str, dict[str, float]], system: str
) -> None:
    check_terms(Inputs(arrays, system), logs[system], EXACT_VALUE)


@pytest.mark.parametrize("system", ["uncha", "hycoclip", "meru", "atmg"])
def test_the_exact_forms_give_the_gradients_on_one_hyperboloid(arrays: Arrays, system: str) -> None:
    """Of all rows: that of the one part of UNCHA's near the origin is flat under either form."""
    inputs = Inputs(arrays, system)
    loss_terms(inputs.nodes(), inputs.scalars(), SYSTEMS[system])["loss"].backward()
    for name, gradient in golden_gradients(arrays, system).items():
        ours = inputs.leaves[name].grad
        assert ours is not None, name
        np.testing.assert_allclose(ours, gradient, rtol=0, atol=EXACT_GRADIENT, err_msg=name)


@pytest.mark.parametrize("system", ["phyclip_l1", "phyclip_l2"])
def test_the_exact_forms_give_the_gradients_in_a_product_off_the_centre(
    arrays: Arrays, system: str
) -> None:
    """Where no root that a tangent meets has a factor near the origin."""
    inputs = Inputs(arrays, system)
    nodes, c = inputs.nodes(), inputs.curvature.detach()
    loss_terms(nodes, inputs.scalars(), SYSTEMS[system])["loss"].backward()

    def clear(*roots: Tensor) -> npt.NDArray[Any]:
        norms = [c**0.5 * root.detach()[..., 1:].norm(dim=-1) for root in roots]
        beyond: npt.NDArray[Any] = (torch.stack(norms) > CLEAR_OF_THE_GUARD).all(0).numpy()
        return beyond

    texts, part_images, part_texts = nodes.texts, nodes.part_images, nodes.part_texts
    everywhere = clear(texts, part_images, part_texts)
    compared = {
        "image_tangent": clear(texts, part_images),
        "text_tangent": clear(texts, part_texts),
        "one_part_image_tangent": clear(part_images, part_texts),
        "one_part_text_tangent": clear(part_texts),
        "log_curvs": everywhere.all(0),
    }
    golden = golden_gradients(arrays, system)
    assert golden.keys() == compared.keys()
    for name, where in compared.items():
        ours = inputs.leaves[name].grad
        assert ours is not None, name
        gap = np.abs(ours.numpy() - golden[name]).reshape(*where.shape, -1).max(-1)
        assert where.mean() > (0.1 if name == "log_curvs" else 0.7), name
        assert gap[where].max() < EXACT_GRADIENT, name


def test_the_product_has_the_points_and_distances_of_phyclip(arrays: Arrays) -> None:
    inputs = Inputs(arrays, "phyclip_l1")
    nodes, c = inputs.nodes(), inputs.curvature
    for name, points in (("image", nodes.images), ("text", nodes.texts)):
        want = arrays[f"phyclip/{name}_points"]
        np.testing.assert_allclose(
            points[..., 1:].detach().flatten(1), want, rtol=1e-12, atol=1e-12, err_msg=name
        )
    apart = -Product(c, "l1").similarity(nodes.images, nodes.texts)
    np.testing.assert_allclose(
        apart.detach(), arrays["phyclip/l1_mean_distance"], rtol=1e-12, atol=0
    )


def test_the_sum_of_products_that_phyclip_ranks_by_is_not_its_distance(arrays: Arrays) -> None:
    """Of the 90 pairs of texts that six images order, eight stand the other way round.

    PHyCLIP's evaluation adds up the Lorentz products of factors of different curvature. We rank
    by the distance that was trained.
    """
    inputs = Inputs(arrays, "phyclip_l1")
    nodes = inputs.nodes()
    products = lorentz.inner(nodes.images[:, None], nodes.texts[None]).sum(-1).detach().numpy()
    np.testing.assert_allclose(products, arrays["phyclip/eval_score_sum_inner"], rtol=1e-12)

    def ordered(score: npt.NDArray[Any]) -> npt.NDArray[Any]:
        first, second = np.triu_indices(score.shape[1], 1)
        before: npt.NDArray[Any] = score[:, first] > score[:, second]
        return before

    by_distance = ordered(-arrays["phyclip/l1_mean_distance"])
    assert int((ordered(products) != by_distance).sum()) == 8
    assert by_distance.size == 90
    space = Product(inputs.curvature.detach().numpy(), "l1")
    ranking = space.ranking(nodes.images.detach().numpy(), nodes.texts.detach().numpy())
    assert np.array_equal(ordered(ranking), by_distance)
