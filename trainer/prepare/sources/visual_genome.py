"""Visual Genome: ``region_descriptions.json`` and ``image_data.json``; a region is a part.

Its pictures have no caption. Half of them are COCO's: given COCO's captions, those are used, and
pictures without one are left out. Otherwise the largest regions that hardly overlap are told
one after the other, a sentence each, which says what the picture shows from left out to small.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import DataError
from trainer.prepare.records import Tally, is_number, is_side
from trainer.prepare.sources.coco import captions_by_id
from trainer.prepare.sources.json_stream import stream_items
from trainer.prepare.sources.source import Request, Source, picture_below, shares

LOOKED_FOR = "a folder with region_descriptions.json and image_data.json (Visual Genome)"

_REGIONS, _IMAGES = "region_descriptions.json", "image_data.json"
_LICENCE = "Visual Genome: CC BY 4.0; pictures: terms of Flickr"
_MOST_SENTENCES = 5
_MOST_OVERLAP = 0.25  # of the smaller of two regions that are both told

Edges = tuple[float, float, float, float]


def is_here(request: Request) -> bool:
    """Whether this is what the place holds."""
    return all((request.path / name).is_file() for name in (_REGIONS, _IMAGES))


def find(request: Request) -> Source:
    """All pictures as one source.

    Raises:
        DataError: A file is not there.
    """
    folder = request.path
    for name in (_REGIONS, _IMAGES):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: is not there; unpack it beside the other")
    files = {name: [folder / name] for name in (_IMAGES, _REGIONS)}
    for file in request.captions:  # two folders may have files of one name
        files.setdefault(file.name, []).append(file)
    images = request.images or folder
    return Source(
        format="visual-genome",
        split=request.split or "train",
        files=files,
        images=images,
        read=partial(_read, folder, images, request.captions),
        choices={"captions": "of COCO" if request.captions else "told from regions"},
        licence=_LICENCE,
    )


def tell(regions: list[tuple[str, Edges]]) -> str:
    """A caption of the largest regions that hardly overlap, from large to small.

    Args:
        regions: Phrase and left, top, right, bottom of each, in any unit.
    """
    told: list[tuple[str, Edges]] = []
    for phrase, edges in sorted(regions, key=lambda region: -_area(region[1])):
        text = " ".join(phrase.split()).rstrip(" .")
        is_new = text.casefold() not in {before.casefold() for before, _ in told}
        if text and _area(edges) > 0 and is_new and not _meets(edges, told):
            told.append((text, edges))
        if len(told) == _MOST_SENTENCES:
            break
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text, _ in told)


def _read(
    folder: Path, images: Path, captions: tuple[Path, ...], tally: Tally
) -> Iterator[tuple[str, Any]]:
    photos = {
        item["image_id"]: item
        for _, item in stream_items(folder / _IMAGES)
        if isinstance(item, dict) and is_number(item.get("image_id"))
    }
    said: dict[Any, list[Any]] = {}
    for file in captions:
        said |= captions_by_id(file, tally)
    for _, item in stream_items(folder / _REGIONS):
        number = item.get("id") if isinstance(item, dict) else None
        where = f"picture {number}"
        photo = photos.get(number) if is_number(number) else None
        if photo is None:
            tally.skip("photos", f"not in {_IMAGES}", where)
            continue
        size: list[Any] = [photo.get("width"), photo.get("height")]
        if not all(map(is_side, size)):
            tally.skip("photos", "without width and height", where)
            continue
        boxes = [_box(region, size) for region in _list(item.get("regions"))]
        if not captions:
            texts = [tell([(box["phrase"], tuple(box["xyxy"])) for box in boxes if box])]
        elif _hashable(photo.get("coco_id")) in said:
            texts = said[photo["coco_id"]]
        else:
            tally.skip("photos", "no caption of COCO", where)
            continue
        yield (
            where,
            {
                "id": f"visual-genome/{number}",
                "image": picture_below(images, *_places(photo, number)),
                "captions": texts,
                "boxes": boxes,
                "true_size": size,
            },
        )


def _places(photo: dict[str, Any], number: Any) -> list[str]:
    """Where a picture may lie: in the folder that its address names first."""
    url = str(photo.get("url"))
    folders = ["VG_100K", "VG_100K_2"]
    if "VG_100K_2" in url:
        folders.reverse()
    return [*(f"{folder}/{number}.jpg" for folder in folders), f"{number}.jpg"]


def _box(region: Any, size: list[float]) -> dict[str, Any]:
    """A region as a box of a record; {} is malformed."""
    region = region if isinstance(region, dict) else {}
    phrase = region.get("phrase")
    edges = [region.get(key) for key in ("x", "y", "width", "height")]
    if not isinstance(phrase, str) or not all(map(is_number, edges)):
        return {}
    x, y, across, down = edges
    return {"phrase": phrase, "xyxy": shares((x, y, x + across, y + down), size)}


def _meets(edges: Edges, told: list[tuple[str, Edges]]) -> bool:
    """Whether a region overlaps one that is told already."""
    for _, (left, top, right, bottom) in told:
        across = min(edges[2], right) - max(edges[0], left)
        down = min(edges[3], bottom) - max(edges[1], top)
        smaller = min(_area(edges), _area((left, top, right, bottom)))
        if min(across, down) > 0 and across * down > _MOST_OVERLAP * smaller:
            return True
    return False


def _area(edges: Edges) -> float:
    return max(edges[2] - edges[0], 0) * max(edges[3] - edges[1], 0)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | str) else None
