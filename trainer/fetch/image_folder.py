"""A folder per class: of the known data sets, and of anybody's own."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from core.errors import DataError
from trainer.fetch.class_names import clip_benchmark, same_name, tidy, variants
from trainer.fetch.draft import Draft, Job, Row
from trainer.fetch.splits import SPLITS

_TESTS = ("test", "val", "valid", "validation")
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_INSIDE = {
    "caltech101": ("caltech101/101_ObjectCategories", "caltech-101/101_ObjectCategories",
                   "101_ObjectCategories"),
    "country211": ("country211",),
    "eurosat": ("eurosat/2750", "2750", "EuroSAT_RGB", "EuroSAT/2750"),
    "resisc45": ("NWPU-RESISC45",),
}  # fmt: skip
"""Where the official archives keep the folders of the classes."""

FOLDERS = {
    "eurosat": "AnnualCrop Forest HerbaceousVegetation Highway Industrial Pasture PermanentCrop "
    "Residential River SeaLake",
    "caltech101": "BACKGROUND_Google Faces Faces_easy Leopards Motorbikes accordion airplanes "
    "anchor ant barrel bass beaver binocular bonsai brain brontosaurus buddha butterfly camera "
    "cannon car_side ceiling_fan cellphone chair chandelier cougar_body cougar_face crab crayfish "
    "crocodile crocodile_head cup dalmatian dollar_bill dolphin dragonfly electric_guitar elephant "
    "emu euphonium ewer ferry flamingo flamingo_head garfield gerenuk gramophone grand_piano "
    "hawksbill headphone hedgehog helicopter ibis inline_skate joshua_tree kangaroo ketch lamp "
    "laptop llama lobster lotus mandolin mayfly menorah metronome minaret nautilus octopus okapi "
    "pagoda panda pigeon pizza platypus pyramid revolver rhino rooster saxophone schooner scissors "
    "scorpion sea_horse snoopy soccer_ball stapler starfish stegosaurus stop_sign strawberry "
    "sunflower tick trilobite umbrella watch water_lilly wheelchair wild_cat windsor_chair wrench "
    "yin_yang",
}
"""Official folder names in the order of the classes, which published names follow."""


def read_image_folder(job: Job) -> Draft:
    """A data set in a folder per class, or in such folders below ``test`` and ``train``.

    Raises:
        DataError: There are no such folders, or they are not the classes of the data set.
    """
    source = _inside(job)
    test, training = splits_of(source)
    folders = arrange(job, class_folders(test, job))
    rows = folder_rows(test, folders, job)
    train = [row for part in training for row in folder_rows(part, folders, job)]
    split = "all pictures" if test == source else f"folder {test.name}"
    if test == source and job.name in SPLITS and len(rows) != job.entry.test:
        rows, train = SPLITS[job.name](rows, source)
        split = ""
    if job.name not in SPLITS and len(rows) == job.entry.test:
        split = ""
    notes = (f"The split is as given: {split}.",) if split else ()
    names = variants(job.name, _own_names(job, folders), "the names of its folders")
    return Draft(rows, train, names, split=split, notes=notes)


def splits_of(source: Path) -> tuple[Path, list[Path]]:
    """The folder to test on, and those to train on: everything else that is a split."""
    there = [source / name for name in _TESTS if (source / name).is_dir()]
    if not there:
        return source, []
    spare = there[1:] if there[0].name == "test" else []
    return there[0], [part for part in (source / "train", *spare) if part.is_dir()]


def class_folders(folder: Path, job: Job) -> list[str]:
    """The names of the folders that hold pictures.

    Raises:
        DataError: There are none, or one beside them holds no picture.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder}: not a folder (unpack it first if it is an archive); --from takes "
            f"{job.entry.files}"
        )
    found = sorted(
        entry.name
        for entry in os.scandir(folder)
        if entry.is_dir() and not entry.name.startswith((".", "__"))
    )
    filled = [name for name in found if pictures(folder / name)]
    if not filled:
        raise DataError(
            f"{folder}: holds neither the files of {job.entry.title} nor a folder per class with "
            f"pictures inside; --from takes {job.entry.files}"
        )
    if len(filled) < len(found):
        empty = [name for name in found if name not in filled]
        raise DataError(
            f"{folder}: no pictures in {shown(empty)}; a class without pictures cannot be "
            "measured: put some there, or take the folder away"
        )
    return filled


def arrange(job: Job, found: Sequence[str]) -> list[str]:
    """Folders in the order of the classes.

    Raises:
        DataError: They are not the classes of the data set; the message names what does not fit.
    """
    known = max(
        _known_lists(job, found),
        key=lambda names: len({*map(same_name, names)} & {*map(same_name, found)}),
        default=None,
    )
    if known is None:
        if job.entry.classes and len(found) != job.entry.classes:
            raise DataError(
                f"{job.source}: {len(found):,} folders with pictures ({shown(found)}), but "
                f"{job.entry.title} has {job.entry.classes:,} classes; --from takes "
                f"{job.entry.files}"
            )
        return sorted(found, key=int) if _are_numbers(found) else sorted(found)
    by_name = {same_name(name): name for name in found}
    lacking = [name for name in known if same_name(name) not in by_name]
    strange = sorted({*found} - {by_name[same_name(name)] for name in known if name not in lacking})
    if lacking or strange:
        raise DataError(
            f"{job.source}: the folders are not the classes of {job.entry.title}; without a "
            f"folder: {shown(lacking)}; without a class: {shown(strange)}; rename the folders"
        )
    return [by_name[same_name(name)] for name in known]


def shown(names: Sequence[str]) -> str:
    """The first names of a list, for a message."""
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more or "none"


def folder_rows(folder: Path, classes: Sequence[str], job: Job) -> list[Row]:
    """A row for every picture, by the folders of the classes in their order."""
    rows: list[Row] = []
    for label, name in enumerate(classes):
        job.advance("listing pictures", label, len(classes))
        rows += [{"image": picture, "label": label} for picture in pictures(folder / name)]
    return rows


def pictures(folder: Path) -> list[str]:
    """The paths of the pictures below a folder, sorted, as strings."""
    return sorted(
        os.path.join(where, name)  # noqa: PTH118 - a million of them for ImageNet
        for where, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(PICTURES)
    )


def _inside(job: Job) -> Path:
    places = _INSIDE.get(job.name, ())
    return next((job.source / name for name in places if (job.source / name).is_dir()), job.source)


def _known_lists(job: Job, found: Sequence[str]) -> list[tuple[str, ...]]:
    """Every list of names that the folders may go by, in the order of the classes."""
    if job.name == "country211" and all(re.fullmatch("[A-Z]{2}", name) for name in found):
        return []  # the codes of the countries, sorted
    if job.name == "flowers102":
        return [] if _are_numbers(found) else [flower_names()]
    folders = FOLDERS.get(job.name, "").split()
    return [*filter(None, (tuple(folders), clip_benchmark(job.name)))]


def flower_names() -> tuple[str, ...]:
    """The names of the 102 flowers, whose own archive has none."""
    from torchvision.datasets import Flowers102  # noqa: PLC0415 - torch comes with it

    return tuple(Flowers102.classes)


def _own_names(job: Job, folders: Sequence[str]) -> list[str]:
    if job.name == "flowers102":
        return list(flower_names())
    return [tidy(name) for name in folders]


def _are_numbers(names: Sequence[str]) -> bool:
    return all(name.isdecimal() for name in names)
