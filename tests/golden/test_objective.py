"""The whole objective against an independent float64 oracle: every term and every gradient."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from core import lorentz  # noqa: E402
from trainer.objectives.loss import loss_terms  # noqa: E402
from trainer.objectives.nodes import Nodes, Scalars, Temperature  # noqa: E402
from trainer.objectives.options import Hyper3Objective, UnchaObjective  # noqa: E402

HERE = Path(__file__).parent
TOLERANCE = 1e-9
ORACLE_NAMES = {
    "contrastive/global": "global",
    "contrastive/local": "local",
    "contrastive/global_local": "global_local",
    "entailment/image_text": "I<=T",
    "entailment/part_image_text": "Ibox<=Tbox",
    "entailment/image_part": "I<=Ibox",
    "entailment/text_part": "T<=Tbox",
    "calibration/image_part": "cal I<=Ibox",
    "calibration/text_part": "cal T<=Tbox",
    "query/image_text": "Iq<=Tq",
    "query/visual_hierarchy": "I<=Iq",
    "query/text_hierarchy": "Tpi<=Tq",
    "query/visual_calibration": "cal I<=Iq",
    "query/text_calibration": "cal Tpi<=Tq",
    "loss": "loss",
}
UNCHA_WEIGHTS = (0.5, 0.5, 0.25, 0.25)
VARIANTS: dict[str, dict[str, Any]] = {
    "paper_hyper3clip": {},
    "uncha_base": {
        "residual": "piecewise",
        "relation_weights": UNCHA_WEIGHTS,
        "entropy": True,
    },
    "uncha_residual_only": {"residual": "piecewise"},
    "uncha_weights_only": {"relation_weights": UNCHA_WEIGHTS},
    "entropy_on": {"entropy": True},
    "unique_negatives": {"part_columns": "unique"},
    "query_norm_weight": {"query_normaliser": "weight"},
    "query_norm_sum": {"query_normaliser": "sum"},
    "reverse_visual": {"visual_order": "reversed"},
    "q_image_text_only": {"relations": ("image_text",)},
    "q_visual_only": {"relations": ("visual_hierarchy",)},
    "q_text_only": {"relations": ("text_hierarchy",)},
    "no_query": {"relations": ()},
}
WITHOUT_GRADIENTS: dict[str, dict[str, Any]] = {
    "no_query": {"query_weight": 0.0},
    "shuffled_parents": {"parents": "shuffled"},
    "no_parts_no_queries": {},
}

Oracle = dict[str, dict[str, float]]
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    with np.load(HERE / "objective.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    values: Oracle = json.loads((HERE / "objective.json").read_text())
    return values


class Inputs:
    """Tangents before α and the learned scalars, as leaves that receive gradients."""

    def __init__(self, arrays: Arrays) -> None:
        self.leaves: dict[str, Tensor] = {
            name.partition("/")[2]: torch.tensor(value, dtype=torch.float64, requires_grad=True)
            for name, value in arrays.items()
            if name.startswith("param/") or (name.startswith("input/") and "tangent" in name)
        }
        self.arrays = arrays

    @property
    def curvature(self) -> Tensor:
        return self.leaves["log_curv"].exp()

    def scalars(self) -> Scalars:
        return Scalars(
            self.curvature,
            *(
                Temperature(self.leaves[f"{group}_logit_scale"].exp())
                for group in ("global", "local", "global_local")
            ),
        )

    def points(self, name: str) -> Tensor:
        side = "visual" if "image" in name else "textual"
        tangent = self.leaves[f"{side}_alpha"].exp() * self.leaves[name]
        return lorentz.lift(tangent, self.curvature)

    def nodes(self, *, anything: bool = True, parents: str = "input/query_parent") -> Nodes:
        """Nodes of the batch, with its parts and queries if there is to be anything beside it."""
        valid = torch.tensor(self.arrays["input/part_valid"]).bool() & anything
        parent = torch.tensor(self.arrays[parents])
        weight = torch.tensor(self.arrays["input/query_weight"])
        active = (weight > 0) & anything
        texts = self.points("query_text_tangent")
        owner = torch.arange(len(valid)).repeat_interleave(valid.sum(1))
        return Nodes(
            images=self.points("image_tangent"),
            texts=self.points("text_tangent"),
            text_id=torch.arange(len(valid)),
            part_images=self.points("part_image_tangent")[valid],
            part_texts=self.points("part_text_tangent")[valid],
            part_owner=owner,
            part_count=valid.sum(1),
            part_id=torch.arange(len(owner)),
            part_text_id=torch.arange(len(owner)),
            query_images=self.points("query_image_tangent")[active],
            query_texts=texts[active],
            query_text_id=torch.arange(int(active.sum())),
            query_parents=texts[parent.clamp_min(0)][active],
            query_owner=torch.tensor(self.arrays["input/query_owner"])[active],
            query_weight=weight[active],
            query_has_parent=(parent[active] >= 0).double(),
        )

    def gradients(self, loss: Tensor) -> Arrays:
        """Of every leaf; 0 where the loss does not reach."""
        found = torch.autograd.grad(loss, list(self.leaves.values()), allow_unused=True)
        return {
            name: np.zeros(leaf.shape) if gradient is None else gradient.numpy()
            for (name, leaf), gradient in zip(self.leaves.items(), found, strict=True)
        }


def golden_gradient(arrays: Arrays, variant: str, name: str) -> npt.NDArray[Any]:
    """Of the variant, which is not stored where it is that of the paper's."""
    return arrays.get(f"{variant}/{name}", arrays[f"paper_hyper3clip/{name}"])


def check_terms(terms: dict[str, Tensor], expected: dict[str, float]) -> None:
    """Equal where we have the term; and what we do not have is 0 in the oracle."""
    golden = {name: expected.get(theirs, 0.0) for name, theirs in ORACLE_NAMES.items()}
    ours = dict.fromkeys(ORACLE_NAMES, 0.0) | {name: term.item() for name, term in terms.items()}
    assert ours == pytest.approx(golden, rel=0, abs=TOLERANCE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_term_and_every_gradient_equals_the_oracle(
    arrays: Arrays, oracle: Oracle, variant: str
) -> None:
    inputs = Inputs(arrays)
    options = Hyper3Objective(**VARIANTS[variant])
    terms = loss_terms(inputs.nodes(), inputs.scalars(), options)
    check_terms(terms, oracle[variant])
    for name, gradient in inputs.gradients(terms["loss"]).items():
        np.testing.assert_allclose(
            gradient,
            golden_gradient(arrays, variant, name),
            rtol=0,
            atol=TOLERANCE,
            err_msg=name,
        )


@pytest.mark.parametrize("variant", WITHOUT_GRADIENTS)
def test_every_term_equals_the_oracle_that_gave_no_gradients(
    arrays: Arrays, oracle: Oracle, variant: str
) -> None:
    inputs = Inputs(arrays)
    nodes = inputs.nodes(anything=variant != "no_parts_no_queries")
    options = Hyper3Objective(**WITHOUT_GRADIENTS[variant])
    check_terms(loss_terms(nodes, inputs.scalars(), options), oracle[variant])


def test_shuffled_parents_are_the_oracles(arrays: Arrays) -> None:
    inputs = Inputs(arrays)
    mine = inputs.nodes()
    theirs = inputs.nodes(parents="shuffled_parent")
    assert torch.equal(mine.query_parents.roll(1, 0), theirs.query_parents)
    scalars = inputs.scalars()
    shuffled = loss_terms(mine, scalars, Hyper3Objective(parents="shuffled"))
    own = loss_terms(theirs, scalars, Hyper3Objective())
    for name, gradient in inputs.gradients(shuffled["loss"] - own["loss"]).items():
        assert np.abs(gradient).max() < 1e-12, name


def test_uncha_is_its_variant_without_the_queries(arrays: Arrays, oracle: Oracle) -> None:
    inputs = Inputs(arrays)
    golden = oracle["uncha_base"]
    terms = loss_terms(inputs.nodes(), inputs.scalars(), UnchaObjective(kind="uncha"))
    queries = {name: 0.0 for ours, name in ORACLE_NAMES.items() if ours.startswith("query/")}
    loss = golden["contrastive"] + 0.2 * golden["ent_base"]
    check_terms(terms, golden | queries | {"loss": loss})
    gradients = inputs.gradients(terms["loss"])
    reached_by_no_query = (
        "text_tangent",
        "part_image_tangent",
        "part_text_tangent",
        "global_logit_scale",
        "local_logit_scale",
        "global_local_logit_scale",
    )
    for name in reached_by_no_query:
        want = golden_gradient(arrays, "uncha_base", name)
        np.testing.assert_allclose(gradients[name], want, rtol=0, atol=TOLERANCE, err_msg=name)


def test_hyper3_with_the_options_of_uncha_and_no_relations_is_uncha(arrays: Arrays) -> None:
    inputs = Inputs(arrays)
    nodes, scalars = inputs.nodes(), inputs.scalars()
    options = Hyper3Objective(**VARIANTS["uncha_base"], relations=())
    as_uncha = loss_terms(nodes, scalars, UnchaObjective(kind="uncha"))
    assert loss_terms(nodes, scalars, options) == as_uncha
