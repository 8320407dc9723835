"""Zero-shot naming: accuracy, calibration, and how wrong a wrong name is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DataError
from core.evaluation.classification import classify, name_images
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.hierarchy import Tree, paths_of, read_tree
from core.evaluation.metrics import calibration_error, reliability
from core.evaluation.statistics import compute
from core.evaluation.task import Options
from core.evaluation.tasks.classification import KIND
from core.prompts import prompt_sets
from core.spaces import Euclidean, Lorentz, Product, Space

Colours = Callable[..., Any]
Embed = Callable[..., Embedder]
Prepared = Callable[..., Path]

SPACES = (Euclidean(), Lorentz(0.7), Lorentz(0.7, "angle"), Product(np.array([0.5, 1.0]), "l2"))


def test_a_model_that_knows_names_everything_rightly(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(prepared(prompts="flowers102"))
    finding = KIND.measure(embed(colours()), data, Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    group = "official prompts, names of plain"
    assert list(found) == [
        (group, "mean per class"), (group, "top-1"), (group, "calibration error"),
    ]  # fmt: skip
    assert found[group, "mean per class"].value == found[group, "top-1"].value == 1
    assert found[group, "mean per class"].chance == pytest.approx(1 / 3)
    assert finding.details["table3_group"] == group
    assert sum(each["count"] for each in finding.details["reliability"][group]) == 3


def test_prompt_sets_and_variants_of_the_names_stand_side_by_side(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    variants = {"plain": ["red", "green", "blue"], "shifted": ["green", "blue", "red"]}
    folder = prepared(name="food101", prompts="food101", classes=variants,
                      classes_origin={"plain": "the tests"})  # fmt: skip
    data, encoder = open_dataset(folder), colours()
    finding = KIND.measure(embed(encoder), data, Options())
    value = {measure.group: measure.value for measure in finding.measures if measure.is_headline}
    assert value == {
        "official prompts, names of plain": 1,
        "photo prompts, names of plain": 1,
        "official prompts, names of shifted": 0,
        "photo prompts, names of shifted": 0,
    }
    assert finding.details["table3_group"] == "photo prompts, names of plain"
    assert len(encoder.embedded) == len(set(encoder.embedded)) == 3 + 3 * 3
    protocol = KIND.protocol(data, Options())
    assert protocol["prompts"]["official"] == list(prompt_sets()["food101"])
    assert protocol["names"]["plain"]["origin"] == "the tests"
    assert protocol["names"]["plain"]["sha256"] != protocol["names"]["shifted"]["sha256"]


def test_given_prompts_take_the_place_of_the_official_ones(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    options = Options(prompts={"mine": ("{}",), "lying": ("{} but blue blue",)})
    data = open_dataset(prepared(prompts="flowers102"))
    finding = KIND.measure(embed(colours()), data, options)
    value = {measure.group: measure.value for measure in finding.measures if measure.is_headline}
    assert list(value) == ["mine prompts, names of plain", "lying prompts, names of plain"]
    assert value["mine prompts, names of plain"] == 1
    assert finding.details["table3_group"] is None


def test_a_model_without_logits_has_no_calibration(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    encoder = colours()
    encoder.logit_scale = None
    finding = KIND.measure(embed(encoder), open_dataset(prepared()), Options())
    assert [measure.name for measure in finding.measures] == ["mean per class", "top-1"]
    assert finding.details["reliability"] == {}


def test_classes_weigh_the_same_however_many_pictures_they_have(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    folder = prepared(["red"] * 4 + ["blue"])
    (folder / "test.jsonl").write_text(
        (folder / "test.jsonl").read_text(encoding="utf-8")
        + '\n{"image": "green.png", "class": "blue"}\n{"image": "none.png", "class": "blue"}',
        encoding="utf-8",
    )
    finding = KIND.measure(embed(colours()), open_dataset(folder), Options())
    per_class, top_1 = finding.measures[:2]
    assert top_1.value == pytest.approx(5 / 6)
    assert per_class.value == pytest.approx((1 + 1 / 2) / 2)  # of the two classes with pictures
    assert len(finding.left_out) == 1
    assert "none.png" in finding.left_out[0]
    for measure in (per_class, top_1):
        assert measure.outcomes is not None
        assert compute(measure.outcomes) == pytest.approx(measure.value)
        assert measure.outcomes.cluster.tolist() == [0, 1, 2, 3, 4, 5]


def test_counts_of_classes_that_do_not_fit_are_both_named(prepared: Prepared) -> None:
    folder = prepared(classes={"plain": ["red", "green", "blue"], "other": ["red", "green"]})
    with pytest.raises(DataError, match=r"plain 3, other 2"):
        open_dataset(folder)
    manifest = folder / "manifest.json"
    text = manifest.read_text(encoding="utf-8").replace('"other": ["red", "green"]', "")
    manifest.write_text(text.replace('"blue"], }', '"blue"]}'), encoding="utf-8")
    (folder / "test.jsonl").write_text('{"image": "red.png", "label": 7}', encoding="utf-8")
    with pytest.raises(DataError, match="class 7 is not one of the 3"):
        open_dataset(folder).labels()


def test_a_prompt_set_that_nobody_knows_is_named(prepared: Prepared) -> None:
    data = open_dataset(prepared(prompts="flowers"))
    with pytest.raises(DataError, match=r"prompts 'flowers' are not known; write one of .*flowers"):
        KIND.protocol(data, Options())


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_places_and_confidences_are_those_of_the_similarities(space: Space) -> None:
    random = np.random.default_rng(0)
    images, classes = (space.lift(random.normal(size=(count, 4))) for count in (600, 20))
    actual = random.integers(0, 20, 600)
    found = name_images(images, classes, actual, space, 3.0)
    similarity = space.similarity(classes, images).T
    in_order = np.argsort(-similarity, axis=1)
    assert found.predicted.tolist() == in_order[:, 0].tolist()
    assert found.predicted.tolist() == classify(images, classes, space).tolist()
    assert found.before.tolist() == (in_order == actual[:, None]).argmax(axis=1).tolist()
    exponents = np.exp(3.0 * similarity)
    assert found.confidence == pytest.approx((exponents / exponents.sum(1)[:, None]).max(1))


def test_of_equal_classes_the_first_is_taken() -> None:
    space = Lorentz(1.0)
    same = space.lift(np.full((4, 3), 0.2))
    found = name_images(same, same, np.arange(4), space, 1.0)
    assert found.predicted.tolist() == [0, 0, 0, 0]
    assert found.before.tolist() == [0, 1, 2, 3]
    assert found.confidence == pytest.approx(np.full(4, 0.25))


def test_confidence_that_is_kept_has_no_calibration_error() -> None:
    right = np.arange(100) < 70
    assert calibration_error(reliability(np.full(100, 0.7), right)) == pytest.approx(0)
    assert calibration_error(reliability(np.full(100, 1.0), right)) == pytest.approx(0.3)
    # By hand: two bins, 50 of 0.95 with all right, 50 of 0.55 with 20 right.
    confidence = np.where(np.arange(100) < 50, 0.95, 0.55)
    assert calibration_error(reliability(confidence, right)) == pytest.approx(
        0.5 * 0.05 + 0.5 * 0.15
    )
    assert np.isnan(calibration_error(reliability(np.empty(0), np.empty(0, bool))))


def test_bins_are_of_equal_width_and_closed_above() -> None:
    bins = reliability(np.array([0.0, 0.2, 0.2000001, 1.0]), np.ones(4, bool), 5)
    assert [each.count for each in bins] == [2, 1, 0, 0, 1]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.booleans())
def test_all_pairs_at_once_score_as_each_alone(parents: list[int], inclusive: bool) -> None:
    # Node n + 1 hangs below one of the nodes before it; every node is a class.
    edges = [(str(parent % (child + 1)), str(child + 1)) for child, parent in enumerate(parents)]
    tree, nodes = Tree(edges), [str(node) for node in range(len(parents) + 1)]
    count = len(nodes)
    found = paths_of(tree, nodes).compare(
        np.arange(count)[:, None], np.arange(count), inclusive=inclusive
    )
    for predicted in range(count):
        for actual in range(count):
            alone = tree.compare(nodes[predicted], nodes[actual], inclusive=inclusive)
            for name in ("tree_edges", "lca", "jaccard", "precision", "recall"):
                assert found[name][predicted, actual] == getattr(alone, name)
    assert (found["height"] == found["height"].T).all()


def test_the_height_is_that_of_the_lowest_node_above_both() -> None:
    edges = [("r", "a"), ("r", "b"), ("a", "a1"), ("a", "a2"), ("a2", "a3"), ("s", "s1")]
    paths = paths_of(Tree(edges), ["a1", "a3", "b", "s1"])
    height = paths.compare(np.arange(4)[:, None], np.arange(4), inclusive=False)["height"]
    assert height[0].tolist() == [0, 2, 3, 4]  # s1 is in another tree: a root above both
    assert height[3, 3] == 0


def test_a_wrong_name_costs_as_much_as_it_is_far_in_the_tree(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    wrong = {"plain": ["red", "blue", "green"]}  # green pictures are named blue, and the reverse
    folder = prepared(classes=wrong, nodes=["warm1", "cold1", "cold2"], tree="tree.txt")
    tree = "paint warm\npaint cold\n\nwarm warm1\ncold cold1\ncold cold2\n"
    (folder / "tree.txt").write_text(tree, encoding="utf-8")
    lines = [f'{{"image": "{name}.png", "label": {label}}}'
             for name, label in (("red", 0), ("green", 1), ("blue", 2))]  # fmt: skip
    (folder / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    finding = KIND.measure(embed(colours()), open_dataset(folder), Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    group = "hierarchy, photo prompts, names of plain"
    # Two of three are named as their sibling: two edges away, and strictly all else is right.
    assert found[group, "TIE"].value == pytest.approx(4 / 3)
    assert found[group, "LCA"].value == found[group, "Jaccard"].value == 1
    assert found[group, "H-precision"].value == found[group, "H-recall"].value == 1
    assert found[group, "LCA height"].value == pytest.approx(2 / 3)
    # Of nine guesses three are right, two a sibling, four across the root.
    assert found[group, "TIE"].chance == pytest.approx((2 * 2 + 4 * 4) / 9)
    inclusive = "hierarchy with the labels, photo prompts, names of plain"
    assert found[inclusive, "Jaccard"].value == pytest.approx((1 + 2 * 2 / 4) / 3)
    assert found[group, "TIE"].is_headline
    assert not found[inclusive, "TIE"].is_headline
    for measure in finding.measures:
        if measure.outcomes is not None:
            assert compute(measure.outcomes) == pytest.approx(measure.value)


def test_a_tree_that_is_not_there_is_told(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(prepared(nodes=["warm1", "cold1", "cold2"]))
    finding = KIND.measure(embed(colours()), data, Options())
    assert finding.details["not_measured"] == ["hierarchy: hyper3 data fetch imagenet-tree"]
    assert not any("hierarchy" in measure.group for measure in finding.measures)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a b\n\na b c\n", r":3: 'a b c': must be a parent and a child"),
        ("a c\nb c\n", r":2: c has two parents, a and b"),
        ("a b\nb a\n", r": .*its own ancestor"),
        ("\n", "holds no edges"),
    ],
)
def test_a_wrong_tree_names_its_line(content: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.txt"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=rf"tree\.txt{reason}|tree\.txt: {reason}"):
        read_tree(file)


def test_a_class_that_is_not_in_the_tree_is_named(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    folder = prepared(nodes=["a", "b", "elsewhere"], tree="tree.txt")
    (folder / "tree.txt").write_text("r a\nr b", encoding="utf-8")
    with pytest.raises(DataError, match="elsewhere: not in the tree of 3"):
        KIND.measure(embed(colours()), open_dataset(folder), Options())
