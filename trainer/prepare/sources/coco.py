"""COCO's captions and instances: ``annotations/captions_S.json`` with ``instances_S.json``.

A part is an object: its phrase is the name of its category ("person"), which is its name as
well. Objects stand from large to small, so that of several of one category the largest is kept:
their text is the same. Crowds are left out, for their boxes hold many things.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from trainer.prepare.records import Tally, is_number, is_side
from trainer.prepare.sources.json_stream import stream_items
from trainer.prepare.sources.source import Request, Source, picture_below, shares

LOOKED_FOR = "a folder with annotations/captions_NAME.json and instances_NAME.json (COCO)"

_LICENCE = "COCO annotations: CC BY 4.0; pictures: terms of Flickr"


def is_here(request: Request) -> bool:
    """Whether this is what the place holds."""
    return any(_annotations(request.path).glob("captions_*.json"))


def find(request: Request) -> Source:
    """One split as a source, such as train2017, which "train" finds too where it is the only one.

    Raises:
        DataError: The files are not there.
        ConfigError: It is not clear which split is meant.
    """
    folder = _annotations(request.path)
    name = _choose(folder, request.split)
    captions, instances = folder / f"captions_{name}.json", folder / f"instances_{name}.json"
    if not instances.is_file():
        raise DataError(f"{instances}: is not there, and without it no caption has a part")
    images = request.images or (folder.parent if folder.name == "annotations" else folder)
    return Source(
        format="coco",
        split=request.split or name,
        files={captions.name: [captions], instances.name: [instances]},
        images=images,
        read=partial(_read, captions, instances, images, name),
        licence=_LICENCE,
    )


def captions_by_id(file: Path, tally: Tally) -> dict[Any, list[Any]]:
    """The captions of a COCO file by the number of their photo."""
    found: dict[Any, list[Any]] = {}
    for key, note in stream_items(file):
        if key != "annotations":
            continue
        if isinstance(note, dict) and is_number(note.get("image_id")):
            found.setdefault(note["image_id"], []).append(note.get("caption"))
        else:
            tally.skip("captions", "of no photo", f"{file.name}: {note}")
    return found


def _annotations(path: Path) -> Path:
    return path / "annotations" if (path / "annotations").is_dir() else path


def _choose(folder: Path, split: str) -> str:
    names = sorted(file.stem.removeprefix("captions_") for file in folder.glob("captions_*.json"))
    if not names:
        raise DataError(f"{folder}: holds no captions_*.json of COCO")
    fitting = [name for name in names if name == split] or [
        name for name in names if name.startswith(split)
    ]
    if len(fitting) != 1:
        raise ConfigError(
            f"{folder}: {f'split {split!r}' if split else 'which split'}? There is "
            f"{', '.join(names)}: name one with --split"
        )
    return fitting[0]


def _read(
    captions: Path, instances: Path, images: Path, name: str, tally: Tally
) -> Iterator[tuple[str, Any]]:
    photos: dict[Any, dict[str, Any]] = {}
    licences: dict[Any, str] = {}
    for key, item in stream_items(captions):
        if not isinstance(item, dict):
            continue
        if key == "images":
            photos[_hashable(item.get("id"))] = item
        elif key == "licenses":
            licences[_hashable(item.get("id"))] = str(item.get("name"))
    said = captions_by_id(captions, tally)
    boxes = _boxes(instances, photos, tally)
    for number, photo in photos.items():
        where, texts = f"photo {number}", said.pop(number, [])
        file = photo.get("file_name")
        if not isinstance(file, str) or not file:
            tally.skip("photos", "no file_name", where)
            continue
        objects = sorted(boxes.pop(number, ()), key=lambda found: -found[0])
        yield (
            where,
            {
                "id": f"coco/{number}",
                "image": picture_below(images, f"{name}/{file}", file),
                "captions": texts,
                "boxes": [
                    {"phrase": text, "name": text, "xyxy": xyxy} for _, text, xyxy in objects
                ],
                "true_size": [photo.get("width"), photo.get("height")],
                "license": licences.get(_hashable(photo.get("license")), "not said"),
            },
        )
    for number, texts in said.items():
        tally.skip("captions", "of no photo", f"photo {number}", len(texts))


def _boxes(
    file: Path, photos: dict[Any, dict[str, Any]], tally: Tally
) -> dict[Any, list[tuple[float, str, list[float]]]]:
    """Area in square pixels, category and corners of every object, by photo."""
    categories: dict[Any, str] = {}
    objects: dict[Any, list[tuple[float, Any, list[float]]]] = {}
    for key, item in stream_items(file):
        if key == "categories" and isinstance(item, dict):
            categories[_hashable(item.get("id"))] = str(item.get("name"))
        elif key == "annotations":
            number, found = _object(item, photos, tally, file.name)
            if found is not None:
                objects.setdefault(number, []).append(found)
    named: dict[Any, list[tuple[float, str, list[float]]]] = {}
    for number, several in objects.items():  # categories stand behind the objects
        for area, category, xyxy in several:
            if category in categories:
                named.setdefault(number, []).append((area, categories[category], xyxy))
            else:
                tally.skip("boxes", "category does not exist", f"photo {number}: {category}")
    return named


def _object(
    item: Any, photos: dict[Any, dict[str, Any]], tally: Tally, name: str
) -> tuple[Any, tuple[float, Any, list[float]] | None]:
    item = item if isinstance(item, dict) else {}
    number, edges = _hashable(item.get("image_id")), item.get("bbox")
    where = f"{name}: annotation {item.get('id')}"
    photo = photos.get(number)
    if photo is None:
        tally.skip("boxes", "of no photo", where)
    elif item.get("iscrowd"):
        tally.skip("boxes", "crowd", where)
    elif not (isinstance(edges, list) and len(edges) == 4 and all(map(is_number, edges))):
        tally.skip("boxes", "malformed", where)
    elif not all(is_side(photo.get(key)) for key in ("width", "height")):
        tally.skip("boxes", "photo without width and height", where)
    else:
        x, y, across, down = edges
        corners = shares((x, y, x + across, y + down), (photo["width"], photo["height"]))
        return number, (across * down, _hashable(item.get("category_id")), corners)
    return number, None


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | str) else None
