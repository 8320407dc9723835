import numpy as np
import pytest

from core import lorentz
from core.errors import DataError, VectorError
from core.evaluation.classification import class_points, classify
from core.evaluation.entailment import direction
from core.evaluation.hierarchy import Tree
from core.evaluation.metrics import auroc, average_precision, recall_at_k
from core.evaluation.retrieval import chance_of_hit, retrieval
from core.spaces import Lorentz


def test_blockwise_retrieval_is_the_ranking_by_distance() -> None:
    random = np.random.default_rng(0)
    owner = random.integers(0, 600, 1_500)
    images = lorentz.lift(random.normal(size=(600, 4)), 0.7)
    texts = lorentz.lift(random.normal(size=(1_500, 4)), 0.7)
    scores = -lorentz.pairwise_distance(images, texts, 0.7)
    own = owner == np.arange(600)[:, None]
    found = retrieval(images, texts, owner, Lorentz(0.7))
    for k in (1, 5, 10):
        assert found.image_to_text[k] == recall_at_k(scores, own, k)
        assert found.text_to_image[k] == recall_at_k(scores.T, own.T, k)


def test_a_model_that_sends_everything_to_one_point_recalls_nothing() -> None:
    same = lorentz.lift(np.full((300, 5), 0.3, np.float32), 1.0)
    found = retrieval(same, same, range(300), Lorentz(1.0))
    assert found.text_to_image == found.image_to_text == {1: 0, 5: 0, 10: 0}


def test_points_that_are_not_finite_are_refused() -> None:
    points = np.full((2, 3), np.nan)
    with pytest.raises(VectorError, match="2 points"):
        retrieval(points, points, [0, 1], Lorentz(1.0))


def test_chance_is_that_of_drawing_at_random() -> None:
    assert chance_of_hit(1_000, 1, 10) == pytest.approx(0.01)
    assert chance_of_hit(10, 5, 2) == pytest.approx(1 - 5 / 10 * 4 / 9)
    assert chance_of_hit(3, 1, 5) == 1


def test_perfect_and_constant_scores_have_their_known_precision() -> None:
    labels = np.array([1, 1, 0, 0, 0])
    assert average_precision(-np.arange(5.0), labels) == auroc(-np.arange(5.0), labels) == 1
    assert average_precision(np.zeros(5), labels) == pytest.approx(0.4)
    assert auroc(np.zeros(5), labels) == 0.5
    assert np.isnan(average_precision(np.zeros(2), np.zeros(2)))


def test_a_sibling_counts_as_right_when_labels_are_not_their_own_ancestors() -> None:
    tree = Tree([("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2")])
    scores = tree.compare("a1", "a2", inclusive=False)
    assert (scores.tree_edges, scores.lca, scores.jaccard) == (2, 1, 1)


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(DataError, match="two parents"):
        Tree([("a", "c"), ("b", "c")])
    with pytest.raises(DataError, match="its own ancestor"):
        Tree([("a", "b"), ("b", "a")])
    with pytest.raises(DataError, match="not in the tree"):
        Tree([("a", "b")]).ancestors("z", inclusive=True)


def test_a_class_is_the_lift_of_its_mean_tangent() -> None:
    tangents = np.array([[1, 0], [3, 0], [0, 1], [0, 1]], np.float32)
    classes = class_points(tangents, 2, Lorentz(1.0))
    assert classes == pytest.approx(lorentz.lift(np.array([[2.0, 0], [0, 1]]), 1.0))
    assert classify(classes, classes, Lorentz(1.0)).tolist() == [0, 1]


def test_cones_point_outward() -> None:
    inner, outer = (lorentz.lift(radius * np.eye(3), 1.0) for radius in (0.5, 2.0))
    assert direction(inner, outer, Lorentz(1.0)).right == 1
    assert direction(outer, inner, Lorentz(1.0)).right == 0
