import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.progress import Progress

from core import lorentz
from core.errors import (
    BrokenImage,
    ConfigError,
    DataError,
    ImageTooLarge,
    StorageError,
    VectorError,
)
from core.evaluation.classification import class_points, classify
from core.evaluation.commands import eval_command
from core.evaluation.encoder import Tangents, open_encoder
from core.evaluation.entailment import direction
from core.evaluation.hierarchy import Tree
from core.evaluation.metrics import auroc, average_precision, recall_at_k
from core.evaluation.names import Names, Thing, read_names
from core.evaluation.records import Box, crop, load_image, read_records, unsquash
from core.evaluation.report import Report, render, write_json
from core.evaluation.retrieval import chance_of_hit, retrieval
from core.evaluation.suite import evaluate
from core.image import Pixels
from core.spaces import Euclidean, Lorentz, Product, Space

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class ColourEncoder:
    """Knows three colours: an image is its mean colour, a text the colour it names."""

    name, side = "colours", 8

    def __init__(self, space: Space | None = None) -> None:
        self.space: Space = space or Lorentz(1.0)

    def images(self, pixels: Iterable[Pixels]) -> Tangents:
        return np.stack([square.mean((0, 1)) / 255 for square in pixels]).astype(np.float32)

    def texts(self, texts: Sequence[str]) -> Tangents:
        named = [[text.count(colour) for colour in COLOURS] for text in texts]
        return 0.5 * np.array(named, np.float32)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    lines = []
    for colour, rgb in COLOURS.items():
        Image.new("RGB", (16, 16), rgb).save(tmp_path / f"{colour}.png")
        box = {"phrase": colour, "xyxy": [0, 0, 0.5, 0.5], "caption": 0, "name": colour}
        lines.append({"image": f"{colour}.png", "captions": [f"all {colour}"], "boxes": [box]})
    file = tmp_path / "test.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def test_an_encoder_that_knows_is_measured_as_right(data: Path, tmp_path: Path) -> None:
    names = Names(trained=tuple(Thing(name=colour, group="paint") for colour in COLOURS))
    with Progress(disable=True) as progress:
        measures, left_out = evaluate(
            ColourEncoder(), read_records(data), names, "retrieval", progress
        )
    assert left_out == ()
    value = {(measure.group, measure.name): measure.value for measure in measures}
    assert value["text to image", "R@1"] == value["image to text", "R@1"] == 1
    assert value["naming of parts, 3 names", "right"] == 1
    assert value["mean radius", "groups"] < value["mean radius", "names"]
    assert value["the general entails the specific", "caption and whole"] == 1
    report = Report("colours", str(data), measures)
    assert render(report).row_count > len(measures)
    write_json(report, tmp_path / "out" / "report.json")
    written = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    chance = written["measures"]["text to image"]["R@1"]["chance"]
    assert chance == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("space", "has_order"), [(Euclidean(), False), (Product(np.array([0.5, 1, 2]), "l1"), True)]
)
def test_radii_and_entailments_are_reported_where_the_space_has_an_order(
    data: Path, space: Space, has_order: bool
) -> None:
    names = Names(trained=tuple(Thing(name=colour, group="paint") for colour in COLOURS))
    with Progress(disable=True) as progress:
        measures, _ = evaluate(
            ColourEncoder(space), read_records(data), names, "retrieval", progress
        )
    value = {(measure.group, measure.name): measure.value for measure in measures}
    assert value["text to image", "R@1"] == value["naming of parts, 3 names", "right"] == 1
    assert (("mean radius", "names") in value) is has_order
    assert (("the general entails the specific", "caption and whole") in value) is has_order


def test_records_of_nothing_cannot_be_measured(data: Path) -> None:
    records = [record.model_copy(update={"captions": (), "boxes": ()})
               for record in read_records(data)]  # fmt: skip
    with Progress(disable=True) as progress, pytest.raises(DataError, match="neither"):
        evaluate(ColourEncoder(), records, None, "retrieval", progress)


def test_images_that_cannot_be_read_are_left_out_with_their_captions_and_boxes(data: Path) -> None:
    (data.parent / "red.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    records = read_records(data)
    with Progress(disable=True) as progress:
        measures, (red,) = evaluate(ColourEncoder(), records, None, "letterbox", progress)
    assert "red.png: image cannot be decoded" in red
    found = {(measure.group, measure.name): measure for measure in measures}
    recall = found["text to image", "R@1"]
    assert (recall.value, recall.chance, recall.count) == (1, 0.5, 2)
    assert found["the general entails the specific", "part and whole"].count == 2
    for path in data.parent.glob("*.png"):
        path.unlink()
    with (
        Progress(disable=True) as progress,
        pytest.raises(DataError, match=r"none of the 3 images can be read; .*red\.png"),
    ):
        evaluate(ColourEncoder(), records, None, "retrieval", progress)


def test_the_command_says_how_many_images_are_left_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("core.evaluation.commands.open_encoder", lambda _: ColourEncoder())
    (data.parent / "blue.png").unlink()
    eval_command("colours", data=data, json_file=tmp_path / "report.json")
    said = capsys.readouterr().out
    assert "left out: 1 of 3 images cannot be read; the first: " in said
    assert "blue.png: cannot be read: No such file" in said
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["left_out"] == 1


def test_a_report_that_cannot_be_written_is_a_storage_error(data: Path) -> None:
    with pytest.raises(StorageError, match=r"report\.json: cannot be written"):
        write_json(Report("colours", str(data), ()), data / "report.json")


def test_a_target_that_nobody_can_open_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-model"):
        open_encoder("no-such-model")


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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "JSON"),
        ("{}", "image"),
        ('{"image": "../secret.png"}', "leads out"),
        ('{"image": "a\\u0000.png"}', "leads out"),
        ('{"image": "a.png", "captions": "one"}', "captions"),
        ('{"image": "a.png", "orig_size": [1, 1000000]}', "1:100"),
        ('{"image": "a.png", "boxes": [{"phrase": "x", "xyxy": [0.5, 0, 0.5, 1]}]}', "no area"),
        ('{"image": "a.png", "boxes": [{"phrase": "x", "xyxy": [0, 0, 1, 1], "caption": 0}]}',
         "caption is 0"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(line: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(f'{{"image": "a.png"}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=rf"records\.jsonl:3: .*{reason}"):
        read_records(file)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_records(tmp_path / "none.jsonl")
    file = tmp_path / "records.jsonl"
    file.write_text('{"image": "a.png"}', encoding="utf-8")
    (record,) = read_records(file)
    with pytest.raises(DataError, match=r"a\.png: cannot be read"):
        load_image(record)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    with pytest.raises(BrokenImage, match=r"a\.png: "):
        load_image(record)


def test_a_box_of_a_squashed_photo_gets_its_proportions_back() -> None:
    stored = Image.new("RGB", (160, 160))
    box = Box(phrase="x", xyxy=(0.25, 0.0, 0.75, 0.5))
    assert crop(stored, box, (320, 160)).size == (160, 80)
    assert crop(stored, box, (160, 320)).size == (80, 160)
    assert crop(stored, box, None).size == (80, 80)
    with pytest.raises(ImageTooLarge, match="orig_size"):
        unsquash(Image.new("RGB", (1, 10_000)), (1, 10_000), (100, 1))
    sliver = Box(phrase="x", xyxy=(0.999, 0.999, 1.0, 1.0))
    assert crop(stored, sliver, None).size == (1, 1)


def test_names_are_a_list_or_an_object(tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    file.write_text('[{"name": "owl", "group": "bird", "kingdom": "animal"}]', encoding="utf-8")
    names = read_names(file)
    assert names.links()["group and name"] == [("bird", "owl")]
    file.write_text('{"trained": [{"name": "owl"}], "held_out": []}', encoding="utf-8")
    assert read_names(file).levels() == {"names": ["owl"]}
    for wrong in ('{"train": []}', "[]", "{"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(DataError, match=r"names\.json"):
            read_names(file)


@pytest.mark.parametrize(
    ("original", "expected"), [((500, 375), (213, 160)), ((375, 500), (160, 213))]
)
def test_a_squashed_image_gets_the_aspect_of_its_original_back(
    original: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert unsquash(Image.new("RGB", (160, 160)), (160, 160), original).size == expected


def test_an_image_that_was_only_scaled_is_left_alone() -> None:
    image = Image.new("RGB", (256, 169))
    assert unsquash(image, image.size, (640, 422)) is image
