"""Flickr30k Entities: ``Annotations/ID.xml`` and ``Sentences/ID.txt``, pictures apart.

A sentence marks its phrases, ``[/EN#CHAIN/TYPE phrase]``, and a chain of phrases that mean the
same things has their boxes in the XML. A phrase with several boxes ("two men") becomes one part
with the box around them all, since that is what shows what the phrase says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from core.errors import ConfigError, DataError
from trainer.prepare.records import Tally, is_number, is_side
from trainer.prepare.sources.source import Request, Source, picture_below, shares

LOOKED_FOR = "a folder with Annotations/*.xml and Sentences/*.txt (Flickr30k Entities)"

_LICENCE = "pictures and captions: for research, terms of Flickr"
_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[^\s\]/]+)+) ([^\]]*)\]")
_PLAIN = re.compile(r"\w[\w.-]*")
_FOLDERS = ("flickr30k-images", "flickr30k_images", "images", "")
_MOST_BYTES = 1 << 20  # of one annotation or file of sentences


@dataclass(frozen=True)
class _Photo:
    """What the XML says: the size in pixels, the boxes of each chain, and the chains of scenes."""

    size: list[Any]
    boxes: dict[str, list[list[float]]]
    scenes: frozenset[str]


def is_here(request: Request) -> bool:
    """Whether this is what the place holds."""
    folder = request.path
    return any(folder.glob("Annotations/*.xml")) and any(folder.glob("Sentences/*.txt"))


def find(request: Request) -> Source:
    """The photos of a list, SPLIT.txt, or all that are annotated where there are no lists.

    Raises:
        DataError: The folders are not there.
        ConfigError: It is not clear which split is meant.
    """
    folder = request.path
    if not is_here(request):
        raise DataError(f"{folder}: has no Annotations/*.xml with Sentences/*.txt")
    lists = sorted(file for file in folder.glob("*.txt") if file.stem in ("train", "val", "test"))
    chosen = next((file for file in lists if file.stem == request.split), None)
    if lists and chosen is None:
        raise ConfigError(
            f"{folder}: which split? There is {', '.join(file.stem for file in lists)}: name one "
            "with --split"
        )
    files = {
        "Annotations/*.xml": sorted(folder.glob("Annotations/*.xml")),
        "Sentences/*.txt": sorted(folder.glob("Sentences/*.txt")),
    }
    if chosen:
        files[chosen.name] = [chosen]
    images = request.images or next(folder / name for name in _FOLDERS if (folder / name).is_dir())
    return Source(
        format="flickr30k-entities",
        split=request.split or "all",
        files=files,
        images=images,
        read=partial(_read, folder, chosen, images),
        licence=_LICENCE,
    )


def _read(
    folder: Path, chosen: Path | None, images: Path, tally: Tally
) -> Iterator[tuple[str, Any]]:
    if chosen:
        names = chosen.read_text(encoding="utf-8", errors="replace").split()
    else:
        names = sorted(file.stem for file in folder.glob("Annotations/*.xml"))
    for name in names:
        if not _PLAIN.fullmatch(name):
            tally.skip("photos", "name is not a plain one", name)
            continue
        photo = _annotation(folder / "Annotations" / f"{name}.xml", name, tally)
        lines = photo and _sentences(folder / "Sentences" / f"{name}.txt", name, tally)
        if not photo or not lines:
            continue
        captions: list[str] = []
        boxes: list[dict[str, Any]] = []
        for number, line in enumerate(lines):
            captions.append(_PHRASE.sub(r"\3", line).strip())
            boxes += _boxes(line, number, photo, name, tally)
        yield (
            name,
            {
                "id": f"flickr30k/{name}",
                "image": picture_below(images, f"{name}.jpg"),
                "captions": captions,
                "boxes": boxes,
                "true_size": photo.size,
            },
        )


def _boxes(
    line: str, caption: int, photo: _Photo, name: str, tally: Tally
) -> Iterator[dict[str, Any]]:
    """The parts of one sentence; phrases without a box are counted."""
    for chain, kinds, phrase in _PHRASE.findall(line):
        found = photo.boxes.get(chain)
        if "/notvisual" in kinds or chain == "0":
            tally.skip("phrases", "not visual", name)
        elif not found:
            reason = "scene, without a box" if chain in photo.scenes else "without a box"
            tally.skip("phrases", reason, name)
        else:
            if len(found) > 1:
                tally.note("phrases of several boxes, one drawn around them")
            lefts, tops, rights, bottoms = zip(*found, strict=True)
            around = [min(lefts), min(tops), max(rights), max(bottoms)]
            yield {"phrase": phrase, "xyxy": around, "caption": caption}


def _annotation(file: Path, name: str, tally: Tally) -> _Photo | None:
    text = _text(file)
    if text is None:
        tally.skip("photos", "annotation is missing", name)
        return None
    try:
        root = ET.fromstring(text)  # noqa: S314 - expat itself bounds expansions
    except (ET.ParseError, ValueError):
        tally.skip("photos", "annotation is not XML", name)
        return None
    size = [_number(root.findtext(f"size/{axis}")) for axis in ("width", "height")]
    if not all(map(is_side, size)):
        tally.skip("photos", "annotation without width and height", name)
        return None
    boxes: dict[str, list[list[float]]] = {}
    scenes = set()
    for thing in root.iter("object"):
        chains = [(item.text or "").strip() for item in thing.iter("name")]
        if thing.findtext("scene", "").strip() == "1":
            scenes.update(chains)
        for box in thing.iter("bndbox"):
            edges = [_number(box.findtext(edge)) for edge in ("xmin", "ymin", "xmax", "ymax")]
            if not all(map(is_number, edges)):
                tally.skip("boxes", "malformed", name)
                continue
            for chain in chains:
                boxes.setdefault(chain, []).append(shares(edges, size))
    return _Photo(size, boxes, frozenset(scenes))


def _sentences(file: Path, name: str, tally: Tally) -> list[str] | None:
    text = _text(file)
    lines = [line for line in (text or "").splitlines() if line.strip()]
    if not lines:
        tally.skip("photos", "sentences are missing", name)
        return None
    return lines


def _text(file: Path) -> str | None:
    """A small text file, None where it is missing or no such thing."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _number(text: str | None) -> float:
    """What a text says, NaN where that is no number."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")
