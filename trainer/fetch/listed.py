"""Official archives whose lists say which picture is of which class and of which split."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from trainer.fetch.class_names import tidy, variants
from trainer.fetch.draft import Draft, Job, Row
from trainer.fetch.given import read_json, read_lines
from trainer.fetch.image_folder import flower_names, read_image_folder


@dataclass(frozen=True)
class Listing:
    """Classes as the archive writes them, and rows of ``image`` and ``label``."""

    classes: Sequence[str]
    test: list[Row]
    train: list[Row]


@dataclass(frozen=True)
class Layout:
    """How an official archive lies on the disk."""

    marker: str
    """A file by which its folder is known."""
    folders: tuple[str, ...]
    """Where that folder may be below the one that is named."""
    read: Callable[[Path], Listing]
    pictures: str = "images"
    """The folder in it that people name in its place."""
    is_matlab: bool = False
    """Whether its lists are MATLAB files."""


def read_listed(job: Job) -> Draft:
    """A data set from its official archive or, where that is not there, from a folder per class.

    Raises:
        DataError: It is neither, or a list in it is wrong.
        ConfigError: Its lists are MATLAB files, and scipy is not installed.
    """
    layout = LAYOUTS[job.name]
    places = [job.source, *(job.source / name for name in layout.folders)]
    base = next((place for place in places if (place / layout.marker).is_file()), None)
    if base is None:
        return read_image_folder(job)
    listing = layout.read(base)
    if len(listing.classes) != job.entry.classes:
        raise DataError(
            f"{base}: lists {len(listing.classes):,} classes, but {job.entry.title} has "
            f"{job.entry.classes:,}; unpack the official archive again ({job.entry.where})"
        )
    own = [tidy(name) for name in listing.classes]
    return Draft(listing.test, listing.train, variants(job.name, own, "the official archive"))


def archive_around(name: str, source: Path) -> Path:
    """The official archive whose folder of pictures was named; ``source`` if it is not that."""
    layout = LAYOUTS.get(name)
    if layout is None or source.name != layout.pictures:
        return source
    return source.parent if (source.parent / layout.marker).is_file() else source


def check_matlab(what: str) -> None:
    """Make sure that MATLAB files can be read.

    Raises:
        ConfigError: scipy is not installed.
    """
    if importlib.util.find_spec("scipy") is None:
        raise ConfigError(
            f"{what}: MATLAB files need scipy: pip install scipy; or name a folder per class "
            "with --from"
        )


def load_matlab(file: Path) -> Any:
    """The variables of a MATLAB file.

    Raises:
        ConfigError: scipy is not installed.
        DataError: The file is missing, or not of MATLAB.
    """
    check_matlab(file.name)
    scipy_io = importlib.import_module("scipy.io")
    try:
        return scipy_io.loadmat(file, squeeze_me=True)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file}: cannot be read as MATLAB: {error}; get it again") from error


def _food101(base: Path) -> Listing:
    splits = {split: read_json(base / "meta" / f"{split}.json") for split in ("test", "train")}
    classes = sorted(splits["test"])
    rows: dict[str, list[Row]] = {
        split: [
            {"image": base / "images" / f"{picture}.jpg", "label": classes.index(name)}
            for name in classes
            for picture in pictures.get(name, ())
        ]
        for split, pictures in splits.items()
    }
    return Listing(classes, rows["test"], rows["train"])


def _aircraft(base: Path) -> Listing:
    data = base / "data"
    classes = read_lines(data / "variants.txt")
    index = {name: label for label, name in enumerate(classes)}

    def rows(split: str) -> list[Row]:
        file = data / f"images_variant_{split}.txt"
        found: list[Row] = []
        for number, line in enumerate(read_lines(file), 1):
            picture, _, name = line.partition(" ")
            label = _label(index, name, file, number)
            found.append({"image": data / "images" / f"{picture}.jpg", "label": label})
        return found

    return Listing(classes, rows("test"), rows("trainval"))


def _pets(base: Path) -> Listing:
    names: dict[int, str] = {}

    def rows(split: str) -> list[Row]:
        file = base / "annotations" / f"{split}.txt"
        found: list[Row] = []
        for number, line in enumerate(read_lines(file), 1):
            parts = line.split()
            if len(parts) < 2 or not parts[1].isdecimal():
                raise DataError(f"{file}:{number}: not `picture class ...`; get it again")
            label = int(parts[1]) - 1
            names[label] = parts[0].rpartition("_")[0].replace("_", " ").title()
            found.append({"image": base / "images" / f"{parts[0]}.jpg", "label": label})
        return found

    test, train = rows("test"), rows("trainval")
    return Listing([names[label] for label in sorted(names)], test, train)


def _flowers102(base: Path) -> Listing:
    splits = load_matlab(base / "setid.mat")
    labels = load_matlab(base / "imagelabels.mat")["labels"]

    def rows(*keys: str) -> list[Row]:
        return [
            {
                "image": base / "jpg" / f"image_{number:05d}.jpg",
                "label": int(labels[number - 1]) - 1,
            }
            for key in keys
            for number in splits[key].tolist()
        ]

    return Listing(flower_names(), rows("tstid"), rows("trnid", "valid"))


def _dtd(base: Path) -> Listing:
    def lines(*splits: str) -> list[str]:
        return [line for split in splits for line in read_lines(base / "labels" / f"{split}1.txt")]

    test, train = lines("test"), lines("train", "val")
    classes = sorted({line.partition("/")[0] for line in test})
    index = {name: label for label, name in enumerate(classes)}

    def rows(found: Sequence[str]) -> list[Row]:
        return [
            {"image": base / "images" / line, "label": _label(index, line.partition("/")[0])}
            for line in found
        ]

    return Listing(classes, rows(test), rows(train))


def _cars(base: Path) -> Listing:
    classes = load_matlab(base / "devkit" / "cars_meta.mat")["class_names"].tolist()

    def rows(file: Path, folder: str) -> list[Row]:
        return [
            {"image": base / folder / str(row["fname"]), "label": int(row["class"]) - 1}
            for row in load_matlab(file)["annotations"]
        ]

    test = rows(base / "cars_test_annos_withlabels.mat", "cars_test")
    train = rows(base / "devkit" / "cars_train_annos.mat", "cars_train")
    return Listing(classes, test, train)


def _sun397(base: Path) -> Listing:
    places = (base, base / "Partitions", base.parent / "Partitions", base.parent)
    lists = next((place for place in places if (place / "Testing_01.txt").is_file()), None)
    if lists is None:
        raise DataError(
            f"{base}: no Testing_01.txt; unpack "
            "https://vision.princeton.edu/projects/2010/SUN/download/Partitions.zip "
            f"into {base / 'Partitions'}"
        )
    names = [line.strip("/") for line in read_lines(base / "ClassName.txt")]
    index = {name: label for label, name in enumerate(names)}

    def rows(split: str) -> list[Row]:
        file = lists / f"{split}_01.txt"
        return [
            {
                "image": base / line.strip("/"),
                "label": _label(index, line.strip("/").rpartition("/")[0], file, number),
            }
            for number, line in enumerate(read_lines(file), 1)
        ]

    classes = [name.partition("/")[2] for name in names]  # the first folder is the first letter
    return Listing(classes, rows("Testing"), rows("Training"))


def _cub2011(base: Path) -> Listing:
    def table(name: str) -> dict[str, str]:
        return {
            key: value for key, _, value in (ln.partition(" ") for ln in read_lines(base / name))
        }

    pictures, labels = table("images.txt"), table("image_class_labels.txt")
    is_train, classes = table("train_test_split.txt"), table("classes.txt")
    index = {number: label for label, number in enumerate(classes)}
    splits: dict[str, list[Row]] = {"0": [], "1": []}
    for number, picture in pictures.items():
        if number not in labels or is_train.get(number) not in splits:
            raise DataError(f"{base}: picture {number} has no class or no split; get it again")
        label = _label(index, labels[number])
        splits[is_train[number]].append({"image": base / "images" / picture, "label": label})
    return Listing(list(classes.values()), splits["0"], splits["1"])


def _label(index: dict[str, int], name: str, file: Path | None = None, number: int = 0) -> int:
    if name not in index:
        where = f"{file}:{number}: " if file else ""
        raise DataError(f"{where}{name!r} is not a class of this data set; unpack it again")
    return index[name]


LAYOUTS = {
    "aircraft": Layout("data/variants.txt", ("fgvc-aircraft-2013b",), _aircraft, "data"),
    "cars": Layout("devkit/cars_meta.mat", ("stanford_cars",), _cars, "cars_test", is_matlab=True),
    "cub2011": Layout("train_test_split.txt", ("CUB_200_2011",), _cub2011),
    "dtd": Layout("labels/test1.txt", ("dtd", "dtd/dtd"), _dtd),
    "flowers102": Layout("imagelabels.mat", ("flowers-102",), _flowers102, "jpg", is_matlab=True),
    "food101": Layout("meta/test.json", ("food-101",), _food101),
    "pets": Layout("annotations/test.txt", ("oxford-iiit-pet",), _pets),
    "sun397": Layout("ClassName.txt", ("SUN397",), _sun397),
}
