"""`hyper3 data fetch`: one data set from what is there, or from the net, to a prepared folder."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import ConfigError, DataError
from core.evaluation.manifest import DatasetManifest
from trainer.fetch import arrays, captions, objects, probes
from trainer.fetch.archives import download
from trainer.fetch.catalogue import TREE, Entry, catalogue, command, entry_of, near
from trainer.fetch.draft import Advance, Draft, Job
from trainer.fetch.folder import (
    TREE_FILE,
    add_tree,
    is_whole,
    read_manifest,
    replacing_folder,
    state_of,
    write_folder,
)
from trainer.fetch.image_folder import read_image_folder
from trainer.fetch.listed import LAYOUTS, archive_around, check_matlab, read_listed
from trainer.fetch.tree import read_tree
from trainer.storage import replacing, storage_errors

Reader = Callable[[Job], Draft]


@dataclass(frozen=True)
class Request:
    """What the user asks for, beside the name.

    Attributes:
        source: The file or folder with the data; None to download it.
        images: The folder of its pictures, where they lie apart.
        root: Below it every data set has a folder of its name.
        force: Make the folder again even if it is there.
    """

    source: Path | None = None
    images: Path | None = None
    root: Path = Path("data/eval")
    force: bool = False


@dataclass(frozen=True)
class Fetched:
    """A folder that is there now."""

    folder: Path
    manifest: DatasetManifest | None
    """None for the tree, which is a file."""
    is_new: bool
    remarks: tuple[str, ...] = ()
    """What the user should know."""


def fetch(name: str, request: Request, advance: Advance) -> Fetched:
    """Make the prepared folder of a data set, if it is not there.

    Raises:
        ConfigError: The name is unknown, or an option is missing or makes no sense with it.
        DataError: What is there or was downloaded is not that data set.
        StorageError: The disk cannot take it.
    """
    is_own = bool(request.source or read_manifest(request.root / name))
    entry = entry_of(name, is_own=is_own)
    fetched = fetch_entry(name, entry, request, advance)
    if name == "imagenet":
        return with_tree(fetched, catalogue()[TREE], advance)
    close = " or ".join(near(name, 0.8)) if name not in catalogue() else ""
    if close:
        said = f"{name} is a data set of your own here; did you mean {close}?"
        return replace(fetched, remarks=(said, *fetched.remarks))
    return fetched


def with_tree(fetched: Fetched, tree: Entry, advance: Advance) -> Fetched:
    """ImageNet with the tree over its classes or, where that cannot be had, with a remark."""
    if fetched.manifest and fetched.manifest.tree:
        return fetched
    root = fetched.folder.parent
    try:
        _fetch_tree(tree, Request(root=root), root, advance)
    except DataError as error:
        said = (
            "the tree over the classes is not there, and TIE, LCA and Jaccard need it: "
            f"`hyper3 data fetch imagenet-tree --from FILE` adds it. {error}"
        )
        return replace(fetched, remarks=(*fetched.remarks, said))
    return replace(fetched, manifest=read_manifest(fetched.folder))


def fetch_entry(name: str, entry: Entry, request: Request, advance: Advance) -> Fetched:
    """Make the prepared folder of a data set that is described by ``entry``.

    Raises:
        ConfigError: An option is missing or makes no sense with it.
        DataError: What is there or was downloaded is not that data set.
        StorageError: The disk cannot take it.
    """
    _check_paths(name, entry, request)
    with storage_errors(request.root):
        request.root.mkdir(parents=True, exist_ok=True)
    root = request.root.resolve()
    if name == TREE:
        return _fetch_tree(entry, request, root, advance)
    folder = root / name
    manifest = read_manifest(folder)
    given = archive_around(name, request.source.resolve()) if request.source else None
    state = state_of(given, root) if given else ""
    if manifest and not request.force and _is_current(folder, manifest, request, given, state):
        return Fetched(folder, manifest, is_new=False)
    if request.source is None and not entry.archives:
        raise ConfigError(
            f"{name}: cannot be downloaded by a command; get it from {entry.where}, then run "
            f"`{command(name)}`, where --from is {entry.files}"
            + (f" and --images is {entry.images}" if entry.images else "")
        )
    reader = _reader(name)
    if request.source is None and name in LAYOUTS and LAYOUTS[name].is_matlab:
        check_matlab(name)  # rather than after a long download
    source = given or download(name, entry, root, advance).resolve()
    with replacing_folder(folder) as out:
        images = request.images.resolve() if request.images else None
        job = Job(name, entry, source, images, out, advance)
        with _reading(out):
            draft = _compared(reader(job), entry)
        origin = str(source) if request.source else entry.archives[0].url
        manifest = write_folder(job, draft, origin, state, base=root)
    if not request.source and not entry.keeps_archive:
        shutil.rmtree(source)
    return Fetched(folder, manifest, is_new=True, remarks=draft.warnings + draft.classes.warnings)


def _check_paths(name: str, entry: Entry, request: Request) -> None:
    if request.images and not entry.images:
        raise ConfigError(f"{name}: its pictures lie beside what describes them; drop --images")
    for option, path in (("--from", request.source), ("--images", request.images)):
        if path and not path.exists():
            takes = entry.files if option == "--from" else entry.images
            raise DataError(f"{path}: no such file or folder; {option} takes {takes}")


@contextmanager
def _reading(out: Path) -> Iterator[None]:
    """Tell what cannot be read of the user's files from what cannot be written to ``out``."""
    try:
        yield
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(out):
            raise
        raise DataError(
            f"{error.filename}: cannot be read: {error.strerror}; check --from"
        ) from error


def _is_current(
    folder: Path, manifest: DatasetManifest, request: Request, source: Path | None, state: str
) -> bool:
    if source and (manifest.source, manifest.source_state) != (str(source), state):
        return False
    images, given = (folder / manifest.images).resolve(), request.images
    if given and not (
        images.is_relative_to(given.resolve()) or given.resolve().is_relative_to(images)
    ):
        return False
    return is_whole(folder, manifest)


def _compared(draft: Draft, entry: Entry) -> Draft:
    """The draft, with a warning if it has not the official number of records."""
    found = len(draft.test)
    if not entry.test or found == entry.test:
        return draft
    said = (
        f"{entry.title} has {entry.test:,} records, and here are {found:,}: "
        "figures are not comparable with published ones."
    )
    return replace(draft, notes=(*draft.notes, said), warnings=(*draft.warnings, said))


def _fetch_tree(entry: Entry, request: Request, root: Path, advance: Advance) -> Fetched:
    target = root / TREE / TREE_FILE
    is_there = target.is_file() and not request.force and request.source is None
    source = target if is_there else request.source or download(TREE, entry, root, advance)
    content = read_tree(source / TREE_FILE if source.is_dir() else source)
    if not is_there:
        with replacing(target) as temporary:
            temporary.write_bytes(content)
    added = add_tree(root / "imagenet", content)
    remarks = (f"{root / 'imagenet'} has the tree now.",) if added else ()
    return Fetched(target, None, is_new=not is_there, remarks=remarks)


def _reader(name: str) -> Reader:
    """The function that reads a data set."""
    if name == "imagenet":
        from trainer.fetch.imagenet import read_imagenet  # noqa: PLC0415 - loads torch

        return read_imagenet

    readers: dict[str, Reader] = {
        **dict.fromkeys(LAYOUTS, read_listed),
        "cifar10": arrays.read_cifar,
        "cifar100": arrays.read_cifar,
        "stl10": arrays.read_stl10,
        "coco-karpathy": captions.read_karpathy,
        "flickr30k": captions.read_karpathy,
        "coco-val2017": captions.read_coco_captions,
        "eccv-caption": captions.read_eccv,
        "coco-objects": objects.read_coco_objects,
        "voc2007": objects.read_voc,
        "voc2007-all": objects.read_voc,
        "hierarcaps": probes.read_hierarcaps,
        "sugarcrepe": probes.read_sugarcrepe,
    }
    return readers.get(name, read_image_folder)
