"""Flickr30k Entities in its official files, whole and broken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import ConfigError
from trainer.data.sample import Sample

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]

SENTENCES = [
    "[/EN#1/people Two men] walk [/EN#2/animals a dog] on [/EN#3/scene the beach] .",
    "[/EN#2/animals The dog] and [/EN#1/people its owners] near [/EN#4/other water] at [/EN#0/notvisual dusk] .",  # noqa: E501 - as in the file
    "[/EN#5/clothing/bodyparts Hats] are worn .",
]


def box(edges: tuple[Any, Any, Any, Any], *chains: int) -> str:
    names = "".join(f"<name>{chain}</name>" for chain in chains)
    keys = ("xmin", "ymin", "xmax", "ymax")
    corners = "".join(f"<{key}>{edge}</{key}>" for key, edge in zip(keys, edges, strict=True))
    return f"<object>{names}<bndbox>{corners}</bndbox></object>"


def scene(chain: int) -> str:
    return f"<object><name>{chain}</name><scene>1</scene><nobndbox>0</nobndbox></object>"


def no_box(chain: int) -> str:
    return f"<object><name>{chain}</name><scene>0</scene><nobndbox>1</nobndbox></object>"


OBJECTS = [
    box((20, 10, 80, 90), 1),
    box((90, 10, 140, 95), 1, 5),
    box((150, 50, 200, 100), 2),
    scene(3),
    no_box(4),
]


def xml(objects: list[str], width: Any = 200, height: Any = 100) -> str:
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>x.jpg</filename>{size}{''.join(objects)}</annotation>"


def write_photo(folder: Path, name: str, annotation: str, sentences: list[str]) -> None:
    for inner in ("Annotations", "Sentences", "flickr30k-images"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    (folder / f"Annotations/{name}.xml").write_text(annotation)
    (folder / f"Sentences/{name}.txt").write_text("\n".join(sentences) + "\n")
    Image.new("RGB", (200, 100), "teal").save(folder / f"flickr30k-images/{name}.jpg")


def phrases(sample: Sample) -> list[str]:
    return [part.text for part in sample.parts]


def test_boxes_belong_to_the_captions_whose_phrases_name_them(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "f", "1000", xml(OBJECTS), SENTENCES)
    entry = run(tmp_path / "f", tmp_path / "out")
    found = {sample.text: sample for sample in read(tmp_path / "out/all")}
    assert {text: phrases(sample) for text, sample in found.items()} == {
        "Two men walk a dog on the beach .": ["Two men", "a dog"],
        "The dog and its owners near water at dusk .": ["The dog", "its owners"],
        "Hats are worn .": ["Hats"],
    }
    assert entry["skipped"] == {
        "phrases": {"not visual": 1, "scene, without a box": 1, "without a box": 1}
    }


def test_a_phrase_of_several_boxes_gets_one_around_them(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "f", "1000", xml(OBJECTS), SENTENCES[:1])
    entry = run(tmp_path / "f", tmp_path / "out", crops="boxes", side=200)
    (sample,) = read(tmp_path / "out/all")
    assert sample.parts[0].box == pytest.approx((0.1, 0.1, 0.7, 0.95))
    assert entry["notes"] == {"phrases of several boxes, one drawn around them": 1}


def test_a_list_chooses_the_photos(tmp_path: Path, run: Run, read: Read) -> None:
    for name in ("1", "2", "3"):
        write_photo(tmp_path / "f", name, xml(OBJECTS), SENTENCES)
    (tmp_path / "f/val.txt").write_text("2\n")
    (tmp_path / "f/test.txt").write_text("1\n3\n")
    run(tmp_path / "f", tmp_path / "out", split="val")
    assert {sample.photo for sample in read(tmp_path / "out/val")} == {"flickr30k/2"}
    with pytest.raises(ConfigError, match=r"which split\? There is test, val"):
        run(tmp_path / "f", tmp_path / "out")


def test_what_is_broken_is_counted_and_spoils_nothing_else(
    tmp_path: Path, run: Run, read: Read
) -> None:
    folder = tmp_path / "f"
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "ha"}">' for i in range(12))
    bomb = f"<!DOCTYPE a [{laughs}]><annotation><x>&l11;</x></annotation>"
    odd = [
        box((10, 10, 5, 20), 1),
        box((0, 0, "wide", 20), 2),
        box((0, 0, "nan", 20), 2),
        box((0, 0, "1e400", 20), 2),
        box((0, 0, 10, 10), 3),
        box((500, 0, 600, 100), 4),
        "<object><name>1</name></object>",
    ]
    photos = {
        "fine": (xml(OBJECTS), SENTENCES),
        "torn": (xml(OBJECTS), SENTENCES),
        "gone": (xml(OBJECTS), SENTENCES),
        "unparsed": (xml(OBJECTS)[:-20], SENTENCES),
        "bomb": (bomb, SENTENCES),
        "deep": ("<a>" * 100_000, SENTENCES),
        "sizeless": (xml(OBJECTS, "", ""), SENTENCES),
        "silent": (xml(OBJECTS), [" "]),
        "other": (xml(OBJECTS, 100, 200), SENTENCES),
        "odd": (xml(odd), [SENTENCES[0], "[/EN#1/people torn markup", "[/EN#4/other Far away] ."]),
    }
    for name, (annotation, sentences) in photos.items():
        write_photo(folder, name, annotation, sentences)
    picture = folder / "flickr30k-images/torn.jpg"
    picture.write_bytes(picture.read_bytes()[:200])
    (folder / "flickr30k-images/gone.jpg").unlink()
    (folder / "train.txt").write_text("\n".join([*photos, "absent", "../../etc/passwd"]))
    entry = run(folder, tmp_path / "out", split="train")
    assert {sample.photo for sample in read(tmp_path / "out/train")} == {
        "flickr30k/fine",
        "flickr30k/odd",
    }
    assert entry["skipped"]["photos"] == {
        "annotation is missing": 1,
        "annotation is not XML": 3,
        "annotation without width and height": 1,
        "image file missing": 1,
        "image is not in the proportions of the photo that was annotated": 1,
        "image unreadable": 1,
        "name is not a plain one": 1,
        "sentences are missing": 1,
    }
    assert entry["skipped"]["boxes"] == {
        "area not over 1,024 px²": 1,
        "empty or outside the image": 2,
        "malformed": 3,
    }


def test_a_box_is_cut_at_its_very_pixels(tmp_path: Path, run: Run, read: Read) -> None:
    objects = [box((x, x, x + 40, x + 40), x) for x in range(1, 100)]
    sentence = " ".join(f"[/EN#{x}/other {x}]" for x in range(1, 100))
    write_photo(tmp_path / "f", "1", xml(objects, 170, 255), [sentence])
    Image.new("RGB", (170, 255), "teal").save(tmp_path / "f/flickr30k-images/1.jpg")
    run(tmp_path / "f", tmp_path / "out", side=512, crops="boxes")
    (sample,) = read(tmp_path / "out/all")
    assert len(sample.parts) == 99
    for part in sample.parts:
        corner = int(part.text)
        expected = (corner / 170, corner / 255, (corner + 40) / 170, (corner + 40) / 255)
        assert part.box == pytest.approx(expected, abs=1e-6)
