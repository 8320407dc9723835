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
from trainer.config import ObjectiveSection  # noqa: E402
from trainer.objectives.hyper3 import hyper3_objective  # noqa: E402
from trainer.objectives.nodes import Nodes, Scales  # noqa: E402

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
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    with np.load(HERE / "objective.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def oracle() -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = json.loads((HERE / "objective.json").read_text())
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

    def scales(self) -> Scales:
        return Scales(
            *(
                self.leaves[f"{group}_logit_scale"].exp()
                for group in ("global", "local", "global_local")
            )
        )

    def points(self, name: str) -> Tensor:
        side = "visual" if "image" in name else "textual"
        tangent = self.leaves[f"{side}_alpha"].exp() * self.leaves[name]
        return lorentz.lift(tangent, self.curvature)

    def nodes(self, *, parts: bool = True, queries: bool = True, shuffled: bool = False) -> Nodes:
        valid = torch.tensor(self.arrays["input/part_valid"]).bool() & parts
        parent = torch.tensor(self.arrays["shuffled_parent" if shuffled else "input/query_parent"])
        weight = torch.tensor(self.arrays["input/query_weight"])
        active = (weight > 0) & queries
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
            query_parents=texts[parent.clamp_min(0)][active],
            query_owner=torch.tensor(self.arrays["input/query_owner"])[active],
            query_weight=weight[active],
            query_has_parent=(parent[active] >= 0).double(),
        )


@pytest.mark.parametrize(
    ("variant", "options", "which"),
    [
        ("paper_hyper3clip", {}, {}),
        ("unique_negatives", {"part_columns": "unique"}, {}),
        ("no_query", {"query_weight": 0.0}, {}),
        ("shuffled_parents", {}, {"shuffled": True}),
        ("no_parts_no_queries", {}, {"parts": False, "queries": False}),
    ],
)
def test_every_term_equals_the_oracle(
    arrays: Arrays,
    oracle: dict[str, dict[str, float]],
    variant: str,
    options: dict[str, Any],
    which: dict[str, bool],
) -> None:
    inputs = Inputs(arrays)
    terms = hyper3_objective(
        inputs.nodes(**which), inputs.scales(), inputs.curvature, ObjectiveSection(**options)
    )
    expected = {name: oracle[variant].get(ORACLE_NAMES[name], 0.0) for name in terms}
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(
        expected, abs=TOLERANCE
    )


def test_every_gradient_of_the_paper_preset_equals_the_oracle(arrays: Arrays) -> None:
    inputs = Inputs(arrays)
    terms = hyper3_objective(inputs.nodes(), inputs.scales(), inputs.curvature, ObjectiveSection())
    terms["loss"].backward()
    for name, leaf in inputs.leaves.items():
        kind = "param_" if leaf.ndim == 0 else ""
        expected = arrays[f"paper_hyper3clip/grad_{kind}{name}"]
        assert leaf.grad is not None, name
        np.testing.assert_allclose(
            leaf.grad.numpy(), expected.reshape(leaf.shape), rtol=0, atol=TOLERANCE, err_msg=name
        )


def test_repeated_columns_are_the_columns_repeated(arrays: Arrays) -> None:
    """The ln k shortcut against the plain statement: one column for each part of each whole."""
    from trainer.objectives.contrastive import part_to_whole, uncertainty  # noqa: PLC0415

    inputs = Inputs(arrays)
    nodes, scale, c = inputs.nodes(), inputs.scales().cross, inputs.curvature
    confidence = torch.exp(-uncertainty(nodes.part_images) / 2)[:, None]
    columns = lorentz.pairwise_distance(nodes.part_images, nodes.texts, c)[:, nodes.part_owner]
    plain = torch.nn.functional.cross_entropy(
        -scale * confidence * columns, torch.arange(len(nodes.part_owner))
    )
    short = part_to_whole(
        nodes.part_images, nodes.texts, nodes.part_owner, scale, c, nodes.part_count
    )
    assert short.item() == pytest.approx(plain.item(), abs=1e-12)


def test_a_repeated_thing_is_no_negative(arrays: Arrays) -> None:
    from trainer.objectives.contrastive import repeats, symmetric  # noqa: PLC0415

    inputs = Inputs(arrays)
    images, texts = inputs.points("image_tangent"), inputs.points("text_tangent")
    scale, c = inputs.scales().whole, inputs.curvature
    twice = torch.tensor([0, 0, 1, 2, 3, 4])
    masked = symmetric(images, texts, scale, c, repeats(twice))
    logits = -scale * lorentz.pairwise_distance(images, texts, c)
    logits[0, 1] = logits[1, 0] = -torch.inf
    target = torch.arange(6)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2
    assert masked.item() == pytest.approx(expected.item(), abs=1e-12)


def test_another_whole_with_the_same_thing_is_no_negative(arrays: Arrays) -> None:
    from trainer.objectives.contrastive import (  # noqa: PLC0415
        part_to_whole,
        repeats,
        uncertainty,
        wholes_that_repeat,
    )

    inputs = Inputs(arrays)
    nodes, scale, c = inputs.nodes(), inputs.scales().cross, inputs.curvature
    owner = nodes.part_owner
    things = torch.arange(len(owner))
    things[-1] = things[0]  # the last part shows what the first one does, in another whole
    assert owner[-1] != owner[0]
    shows = wholes_that_repeat(repeats(things), owner, 6)
    assert shows.nonzero().tolist() == [[0, int(owner[-1])], [len(owner) - 1, int(owner[0])]]
    confidence = torch.exp(-uncertainty(nodes.part_images) / 2)[:, None]
    logits = -scale * confidence * lorentz.pairwise_distance(nodes.part_images, nodes.texts, c)
    logits[0, owner[-1]] = logits[-1, owner[0]] = -torch.inf
    plain = torch.nn.functional.cross_entropy(logits, owner)
    masked = part_to_whole(nodes.part_images, nodes.texts, owner, scale, c, shows=shows)
    assert masked.item() == pytest.approx(plain.item(), abs=1e-12)
