"""Photos of several things: COCO's instances and Pascal VOC 2007."""

from pathlib import Path
from xml.etree import ElementTree as ET

from core.errors import DataError
from trainer.fetch.captions import coco_photos
from trainer.fetch.draft import Classes, Draft, Job, Row
from trainer.fetch.given import field, file_in, items, read_json, read_lines

_VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle",
    "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person",
    "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_SPACED = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}


def read_coco_objects(job: Job) -> Draft:
    """Every photo of ``instances_val2017.json`` with the categories of its objects.

    Raises:
        DataError: The file is not that one, or has not COCO's 80 categories.
    """
    file = file_in(job.source, "instances_val2017.json", "annotations/instances_val2017.json")
    content = read_json(file)
    categories = {
        field(category, "id", f"{file}: categories"): field(category, "name", f"{file}: categories")
        for category in items(content, "categories", file)
    }
    if len(categories) != job.entry.classes:
        raise DataError(
            f"{file}: {len(categories):,} categories, but {job.entry.title} has "
            f"{job.entry.classes:,}; is this COCO's own file?"
        )
    index = {number: label for label, number in enumerate(sorted(categories))}
    shown: dict[int, set[int]] = {}
    for number, note in enumerate(items(content, "annotations", file)):
        where = f"{file}: annotations[{number}]"
        category = field(note, "category_id", where)
        if category not in index:
            raise DataError(f"{where}: category {category!r} is not among the file's categories")
        shown.setdefault(field(note, "image_id", where), set()).add(index[category])
    rows = [
        row | {"labels": sorted(shown.get(int(row["id"]), ()))}
        for row in coco_photos(job, content, file)
    ]
    names = tuple(categories[number] for number in sorted(categories))
    return Draft(
        rows,
        classes=Classes({"COCO": names}, {"COCO": f"{file.name}, by the categories' ids"}),
        counts={"without labels": sum(not row["labels"] for row in rows)},
    )


def read_voc(job: Job) -> Draft:
    """VOC 2007: the photos of the test list or, for ``voc2007-all``, all that are annotated.

    Raises:
        DataError: The folder is not VOC's, or an annotation is wrong.
    """
    places = (job.source, job.source / "VOC2007", job.source / "VOCdevkit" / "VOC2007")
    base = next((place for place in places if (place / "Annotations").is_dir()), None)
    if base is None:
        raise DataError(f"{job.source}: no folder Annotations; --from takes {job.entry.files}")
    if job.name == "voc2007":
        names = [line.split()[0] for line in read_lines(base / "ImageSets" / "Main" / "test.txt")]
    else:
        names = sorted(file.stem for file in (base / "Annotations").glob("*.xml"))
    rows: list[Row] = []
    for number, name in enumerate(names):
        job.advance("reading annotations", number, len(names))
        labels = _voc_labels(base / "Annotations" / f"{name}.xml")
        image = base / "JPEGImages" / f"{name}.jpg"
        rows.append({"id": name, "image": image, "labels": labels})
    spaced = tuple(_SPACED.get(name, name) for name in _VOC)
    return Draft(
        rows,
        classes=Classes(
            {"spaced": spaced, "raw tokens": _VOC},
            {"spaced": "VOC's own, as words", "raw tokens": "VOC's own, as the annotations do"},
            notes=(f"{len(_SPACED)} of {len(_VOC)} names differ between the two variants.",),
        ),
    )


def _voc_labels(file: Path) -> list[int]:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - expat itself bounds expansions
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; unpack VOC again") from error
    except ET.ParseError as error:
        raise DataError(
            f"{file}:{error.position[0]}: not XML: {error}; unpack VOC again"
        ) from error
    names = {thing.findtext("name", "").strip() for thing in root.iter("object")}
    strange = sorted(names - {*_VOC})
    if strange:
        raise DataError(f"{file}: {strange[0]!r} is not one of VOC's 20 classes; unpack VOC again")
    return sorted(_VOC.index(name) for name in names)
