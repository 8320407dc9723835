"""Golden metrics; see README.md for how they were made."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evaluation.hierarchy import Tree, paths_of, read_tree
from core.evaluation.metrics import (
    auroc,
    average_precision,
    mean_average_precision,
    mean_per_class_accuracy,
    part_statistics,
    recall_at_k,
)

GOLDEN = json.loads(Path(__file__).with_name("metrics.json").read_text(encoding="utf-8"))
TREE_MEASURES = {
    "tree_edges": "tie", "lca": "lca", "jaccard": "jaccard", "precision": "hp", "recall": "hr",
}  # fmt: skip
FLOAT32 = 1e-6  # torchmetrics computes the accuracy of each class in float32


def exactly(value: float | list[float]) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["binary"], ids=lambda case: len(case["labels"]))
def test_average_precision_and_auroc_with_ties(case: dict[str, Any]) -> None:
    scores, labels = np.array(case["scores"]), np.array(case["labels"])
    assert average_precision(scores, labels) == exactly(case["ap_step_tie_grouped"])
    assert average_precision(scores, labels, "insertion") == exactly(
        case["ap_ranked_insertion_order"]
    )
    assert auroc(scores, labels) == exactly(case["auroc"])


def test_mean_average_precision_leaves_out_classes_without_a_positive() -> None:
    golden = GOLDEN["multilabel"]
    scores, labels = np.array(golden["scores"]), np.array(golden["targets"])
    assert mean_average_precision(scores, labels) == exactly(golden["mAP_tie_grouped"])
    assert mean_average_precision(scores, labels, "insertion") == exactly(golden["mAP_ranked"])
    for column, expected in enumerate(golden["per_class_ap_ranked"]):
        ap = average_precision(scores[:, column], labels[:, column], "insertion")
        assert np.isnan(ap) if expected is None else ap == exactly(expected)


@pytest.mark.parametrize("case", GOLDEN["mean_per_class"], ids=lambda case: len(case["pred"]))
def test_accuracy_per_class_under_both_conventions(case: dict[str, Any]) -> None:
    predicted, actual = np.array(case["pred"]), np.array(case["target"])
    observed, macro = (
        mean_per_class_accuracy(predicted, actual, case["num_classes"], average)
        for average in ("observed", "macro")
    )
    assert observed == pytest.approx(case["observed_class_mean"], rel=FLOAT32)
    assert macro == pytest.approx(case["torchmetrics_macro"], rel=FLOAT32)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_in_both_directions(k: int) -> None:
    golden = GOLDEN["retrieval"]
    scores = np.array(golden["scores"])
    own = np.arange(len(scores))[:, None] == np.array(golden["text_to_image"])
    assert 100 * recall_at_k(scores, own, k) == exactly(golden[f"i2t_r{k}"])
    assert 100 * recall_at_k(scores.T, own.T, k) == exactly(golden[f"t2i_r{k}"])


def test_tree_measures_on_a_toy() -> None:
    golden = GOLDEN["toy_tree"]
    tree = Tree((parent, child) for parent, child in golden["edges"])
    for pair in golden["pred_true_metrics"]:
        scores = tree.compare(
            golden["labels"][pair["pred"]], golden["labels"][pair["true"]], inclusive=True
        )
        assert (scores.tree_edges, scores.lca) == (pair["tie"], pair["lca"])
        assert scores.jaccard == exactly(pair["jaccard"])
        assert scores.precision == exactly(pair["hp"])
        assert scores.recall == exactly(pair["hr"])


def test_tree_measures_on_imagenet() -> None:
    file = Path(os.environ.get("H3_TEST_IMAGENET_TREE", "data/eval/imagenet-tree/imagenet_isa.txt"))
    if not file.is_file():
        pytest.skip(f"{file} is not there; `hyper3 data fetch imagenet-tree` gets it")
    golden = GOLDEN["hierarchy"]
    tree = read_tree(file)
    heights = tree.heights()
    leaves = sorted(node for node, height in heights.items() if height == 0)
    assert (len(heights), len(leaves)) == (golden["num_nodes"], 1_000)
    assert leaves[:5] == golden["synset_first5"]
    assert leaves[-2:] == golden["synset_last2"]
    depths = [len(tree.ancestors(leaf, inclusive=False)) for leaf in leaves]
    expected = golden["ancestors_len_min_mean_max"]
    assert [min(depths), np.mean(depths), max(depths)] == exactly(expected)
    predicted, actual = (
        np.array([pair[side] for pair in golden["pairs"]]) for side in ("pred", "true")
    )
    found = paths_of(tree, leaves).compare(predicted, actual, inclusive=False)
    for ours, theirs in TREE_MEASURES.items():
        assert found[ours] == exactly([pair[theirs] for pair in golden["pairs"]])
        assert found[ours].mean() == exactly(golden["mean"][theirs])


def test_statistics_of_parts_per_image() -> None:
    golden = GOLDEN["parts"]
    histogram = {int(parts): images for parts, images in golden["hist"].items()}
    found = part_statistics(histogram, [int(cap) for cap in golden["caps"]])
    for name in ("examples", "parts", "mean", "one", "one_or_two"):
        assert getattr(found, name) == exactly(golden[name])
    assert found.most == golden["max"]
    for cap, expected in golden["caps"].items():
        assert found.retained[int(cap)] == exactly(expected["parts_retained"])
        assert found.untruncated[int(cap)] == exactly(expected["untruncated"])
