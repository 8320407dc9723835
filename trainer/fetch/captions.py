"""Photos with captions: Karpathy's splits, COCO's annotations, and ECCV Caption's judgements."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from trainer.fetch.draft import Draft, Job, Row
from trainer.fetch.given import field, file_in, items, picture_in, read_json

_ECCV_FILES = {
    "image_to_text": "eccv_image_to_caption.json",
    "text_to_image": "eccv_caption_to_image.json",
}


def read_karpathy(job: Job) -> Draft:
    """The test split of ``dataset_coco.json`` or ``dataset_flickr30k.json``, captions as written.

    Raises:
        DataError: The file is not one of these.
    """
    rows = karpathy_rows(job)
    return Draft(rows, counts={"captions": sum(len(row["captions"]) for row in rows)})


def karpathy_rows(job: Job) -> list[Row]:
    """The photos of the test split; ids are COCO's or, for Flickr30k, the names of the files."""
    kind = "flickr30k" if job.name == "flickr30k" else "coco"
    file = file_in(job.source, f"dataset_{kind}.json")
    folder = job.images or file.parent
    rows: list[Row] = []
    for number, photo in enumerate(items(read_json(file), "images", file)):
        where = f"{file}: images[{number}]"
        if field(photo, "split", where) != "test":
            continue
        name = field(photo, "filename", where)
        inner = field(photo, "filepath", where) if kind == "coco" else "flickr30k-images"
        sentences = field(photo, "sentences", where)
        rows.append(
            {
                "id": str(field(photo, "cocoid", where)) if kind == "coco" else Path(name).stem,
                "image": picture_in(folder, f"{inner}/{name}", name, f"flickr30k_images/{name}"),
                "captions": [field(sentence, "raw", where) for sentence in sentences],
                "caption_ids": [field(sentence, "sentid", where) for sentence in sentences],
            }
        )
    if not rows:
        raise DataError(f"{file}: no photo is of split 'test'; is this Karpathy's file?")
    return rows


def read_coco_captions(job: Job) -> Draft:
    """Every photo of ``captions_val2017.json`` with all its captions.

    Raises:
        DataError: The file is not that one.
    """
    file = file_in(job.source, "captions_val2017.json", "annotations/captions_val2017.json")
    content = read_json(file)
    captions: dict[Any, list[tuple[int, str]]] = {}
    for number, note in enumerate(items(content, "annotations", file)):
        where = f"{file}: annotations[{number}]"
        caption = (field(note, "id", where), field(note, "caption", where))
        captions.setdefault(field(note, "image_id", where), []).append(caption)
    rows = []
    for row in coco_photos(job, content, file):
        said = captions.get(int(row["id"]), [])
        rows.append(
            row
            | {
                "captions": [caption for _, caption in said],
                "caption_ids": [number for number, _ in said],
            }
        )
    return Draft(rows, counts={"captions": sum(map(len, captions.values()))})


def coco_photos(job: Job, content: Any, file: Path) -> list[Row]:
    """The photos of a COCO file, ``id`` and ``image`` of each."""
    folder = job.images or (
        file.parent.parent if file.parent.name == "annotations" else file.parent
    )
    rows: list[Row] = []
    for number, photo in enumerate(items(content, "images", file)):
        where = f"{file}: images[{number}]"
        name = field(photo, "file_name", where)
        image = picture_in(folder, f"val2017/{name}", name)
        rows.append({"id": str(field(photo, "id", where)), "image": image})
    return rows


def read_eccv(job: Job) -> Draft:
    """Karpathy's test photos of COCO with all captions that people found right for them.

    Raises:
        DataError: A file is missing or wrong.
        ConfigError: The judgements are neither beside the photos' file nor installed.
    """
    rows = karpathy_rows(job)
    beside = job.source if job.source.is_dir() else job.source.parent
    folder = _judgements(beside)
    positives = {
        key: {query: list(map(int, answers)) for query, answers in read_json(folder / name).items()}
        for key, name in _ECCV_FILES.items()
    }
    for row in rows:  # only the first five captions of a photo were judged
        row["captions"], row["caption_ids"] = row["captions"][:5], row["caption_ids"][:5]
    _check_ids(rows, positives, folder)
    return Draft(
        rows,
        counts={
            "captions": sum(len(row["captions"]) for row in rows),
            "image queries": len(positives["image_to_text"]),
            "text queries": len(positives["text_to_image"]),
        },
        positives=json.dumps(positives).encode(),
    )


def _judgements(beside: Path) -> Path:
    spec = find_spec("eccv_caption")  # found, not imported: only its data are wanted
    packaged = [Path(place) / "data" for place in (spec and spec.submodule_search_locations) or ()]
    for folder in (beside, *packaged):
        if all((folder / name).is_file() for name in _ECCV_FILES.values()):
            return folder
    raise ConfigError(
        f"eccv-caption: {' and '.join(_ECCV_FILES.values())} are not in {beside}, and the package "
        "that brings them is not installed: pip install --no-deps eccv-caption"
    )


def _check_ids(rows: list[Row], positives: dict[str, dict[str, list[int]]], folder: Path) -> None:
    photos = {row["id"] for row in rows}
    captions = {str(number) for row in rows for number in row["caption_ids"]}
    for key, known in (("image_to_text", photos), ("text_to_image", captions)):
        strange = [query for query in positives[key] if query not in known]
        if strange:
            raise DataError(
                f"{folder / _ECCV_FILES[key]}: {len(strange):,} of {len(positives[key]):,} ids are "
                f"not in Karpathy's test split ({', '.join(strange[:3])}); is --from "
                "dataset_coco.json?"
            )
