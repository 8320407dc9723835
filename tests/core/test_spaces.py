"""Every space against plain loops, in numpy and torch."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from core import lorentz
from core.evaluation.classification import class_points, classify
from core.evaluation.entailment import direction, mean_radius
from core.evaluation.metrics import recall_at_k
from core.evaluation.retrieval import retrieval
from core.spaces import Euclidean, Lorentz, Product, Space

DIM = 6
FACTORS = np.array([0.3, 1.0, 2.5])

SPACES: dict[str, Space] = {
    "sphere": Euclidean(),
    "distance": Lorentz(0.7),
    "angle": Lorentz(0.7, "angle"),
    "l1": Product(FACTORS, "l1"),
    "l2": Product(FACTORS, "l2"),
}

spaces = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
ordered = pytest.mark.parametrize(
    "space", [SPACES[name] for name in ("distance", "l1", "l2")], ids=["distance", "l1", "l2"]
)


def tangents(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(count, DIM))


def one_similarity(space: Space, text: Any, image: Any) -> float:
    """By the textbook forms, which float64 bears where points are apart."""
    match space:
        case Euclidean():
            return float(text @ image / math.sqrt(text @ text) / math.sqrt(image @ image))
        case Lorentz(curvature=c, score="distance"):
            return -textbook_distance(text, image, c)
        case Lorentz(curvature=c):
            a, b = -c * float(lorentz.inner(text, image)), math.sqrt(float(text[1:] @ text[1:]))
            cosine = (image[0] - a * text[0]) / (b * math.sqrt(a * a - 1))
            return -math.acos(cosine)
        case Product(norm="l1"):
            return -sum(map(textbook_distance, text, image, FACTORS)) / len(FACTORS)
        case _:
            squares = [d * d for d in map(textbook_distance, text, image, FACTORS)]
            return -math.sqrt(sum(squares) / len(FACTORS))


def textbook_distance(x: Any, y: Any, c: float) -> float:
    return math.acosh(c * (x[0] * y[0] - sum(x[1:] * y[1:]))) / math.sqrt(c)


def in_torch(space: Space, dtype: str = "float64") -> Space:
    torch = pytest.importorskip("torch")
    if isinstance(space, Product):
        curvature = torch.tensor(FACTORS, dtype=getattr(torch, dtype), requires_grad=True)
        return Product(curvature, space.norm)
    if isinstance(space, Lorentz):
        curvature = torch.tensor(space.curvature, dtype=getattr(torch, dtype), requires_grad=True)
        return Lorentz(curvature, space.score)
    return space


@spaces
def test_similarity_is_what_a_loop_over_pairs_gives(space: Space) -> None:
    texts, images = space.lift(tangents(4, 0)), space.lift(tangents(5, 1))
    expected = [[one_similarity(space, text, image) for image in images] for text in texts]
    assert space.similarity(texts, images) == pytest.approx(np.array(expected), rel=1e-9)


@spaces
def test_ranking_orders_as_similarity_does(space: Space) -> None:
    texts, images = space.lift(tangents(40, 0)), space.lift(tangents(50, 1))
    by_ranking = space.ranking(texts, images).ravel().argsort()
    by_similarity = space.similarity(texts, images).ravel().argsort()
    assert by_ranking.tolist() == by_similarity.tolist()


@spaces
def test_torch_and_numpy_agree_on_every_quantity(space: Space) -> None:
    torch = pytest.importorskip("torch")
    other = in_torch(space)
    vectors = tangents(4, 0), tangents(5, 1)
    texts, images = (space.lift(vector) for vector in vectors)
    pair = [other.lift(torch.from_numpy(vector)) for vector in vectors]
    results = [
        (pair[0], texts),
        (other.similarity(*pair), space.similarity(texts, images)),
        (other.ranking(*pair), space.ranking(texts, images)),
        (other.grain(pair[0]), space.grain(texts)),
        (other.restore(2 * pair[0]), space.restore(2 * texts)),
        (
            other.centre(torch.from_numpy(vectors[0][None])),
            space.centre(vectors[0][None]),
        ),
    ]
    if not isinstance(space, Euclidean) and not isinstance(other, Euclidean):
        results.append((other.radius(pair[0]), space.radius(texts)))
        angles = other.exterior_angle(pair[0], pair[1][:4]), space.exterior_angle(texts, images[:4])
        results.append(angles)
    for got, expected in results:
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


@spaces
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_are_finite_at_zero_and_where_points_coincide(space: Space, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    other = in_torch(space, dtype)
    rows = np.concatenate([np.zeros((2, DIM)), tangents(3, 0), [np.ones(DIM), 2 * np.ones(DIM)]])
    leaf = torch.tensor(rows, dtype=getattr(torch, dtype), requires_grad=True)
    points = other.lift(leaf)
    outputs = [other.similarity(points, points).sum()]
    if not isinstance(other, Euclidean):
        outputs += [other.radius(points).sum(), other.exterior_angle(points, points).sum()]
        outputs += [other.exterior_angle(points[:1].expand_as(points), points).sum()]
    leaves = [leaf] if isinstance(other, Euclidean) else [leaf, other.curvature]
    for output in outputs:
        for gradient in torch.autograd.grad(output, leaves, retain_graph=True, allow_unused=True):
            assert gradient is None or bool(gradient.isfinite().all())


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_product_of_one_factor_is_its_hyperboloid(norm: Any) -> None:
    alone, product = Lorentz(0.4), Product(np.array([0.4]), norm)
    text, image = tangents(4, 0), tangents(4, 1)
    pair, pairs = (alone.lift(text), alone.lift(image)), (product.lift(text), product.lift(image))
    assert np.array_equal(pairs[0][:, 0], pair[0])
    same = pytest.approx
    assert product.similarity(*pairs) == same(alone.similarity(*pair), rel=1e-12)
    assert product.exterior_angle(*pairs) == same(alone.exterior_angle(*pair), rel=1e-12)
    assert product.radius(pairs[0]) == same(alone.radius(pair[0]), rel=1e-12)


@spaces
def test_retrieval_is_the_ranking_by_similarity_with_ties_ahead(space: Space) -> None:
    random = np.random.default_rng(0)
    owner = np.concatenate([random.integers(0, 300, 700), random.integers(0, 300, 100)])
    spread = 0.4 * tangents(800, 1)
    spread[700:] = spread[:100]  # texts that say the same of other images
    own = 0.15 * tangents(300, 2) + spread[[np.argmax(owner == row) for row in range(300)]]
    own[250:] = own[:50]
    images, texts = space.lift(own), space.lift(spread)
    similarity = space.similarity(texts, images).round(9)
    right = owner[:, None] == np.arange(300)
    found = retrieval(images, texts, owner, space)
    for k in (1, 5, 10):
        assert found.text_to_image[k] == recall_at_k(similarity, right, k)
        assert found.image_to_text[k] == recall_at_k(similarity.T, right.T, k)
    assert 0.05 < found.text_to_image[1] < found.text_to_image[10] < 1


@spaces
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_all_one_point_recalls_nothing(space: Space, dtype: Any) -> None:
    same = np.repeat(space.lift(3 * tangents(1, 0)), 300, 0).astype(dtype)
    found = retrieval(same, same, range(300), space)
    assert found.text_to_image == found.image_to_text == {1: 0, 5: 0, 10: 0}


@spaces
def test_images_are_named_by_the_class_most_similar_to_them(space: Space) -> None:
    words = tangents(24, 0).astype(np.float32)
    classes = class_points(words, 3, space)
    assert classes.shape == space.lift(tangents(8, 0)).shape
    images = space.lift(tangents(50, 1))
    expected = space.similarity(classes, images).argmax(0)
    assert classify(images, classes, space).tolist() == expected.tolist()
    assert classify(images[:0], classes, space).tolist() == []


def test_a_class_of_the_sphere_is_the_mean_of_directions() -> None:
    words = np.array([[2, 0], [0, 9], [1, 0], [-1, 0.0]], np.float32)
    assert class_points(words, 2, Euclidean())[0] == pytest.approx([0.5**0.5, 0.5**0.5])
    assert class_points(words, 2, Euclidean())[1].tolist() == [0, 0]


@ordered
def test_what_lies_further_out_is_entailed_and_has_the_larger_radius(space: Any) -> None:
    outward = tangents(20, 0)
    inner, outer = space.lift(0.5 * outward), space.lift(1.5 * outward)
    assert direction(inner, outer, space).right == 1
    assert direction(inner, outer, space).mean_score == pytest.approx(1)
    assert direction(outer, inner, space).right == 0
    assert mean_radius(inner, space) < mean_radius(outer, space)


def test_the_radius_of_a_product_is_the_mean_or_root_mean_square_of_its_factors() -> None:
    lengths = np.array([0.5, 1.0, 2.0])
    tangent = (lengths[:, None] * np.eye(2)[0]).reshape(1, 6)
    for norm, expected in (("l1", 3.5 / 3), ("l2", math.sqrt(5.25 / 3))):
        space: Product[Any] = Product(FACTORS, norm)  # type: ignore[arg-type]
        assert space.radius(space.lift(tangent)) == pytest.approx([expected], rel=1e-12)


def test_the_spaces_and_the_evaluation_never_import_torch() -> None:
    code = "import sys, core.spaces, core.evaluation.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
