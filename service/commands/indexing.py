"""What `hyper3 index` does: a folder of images, or records that name them, to stored items."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from core.errors import DataError
from core.evaluation.records import iter_records
from service.client import Client

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
_SHOWN_FAULTS = 10


@dataclass(frozen=True)
class Picture:
    """An image file and what is known of it."""

    id: str
    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)


def index_folder(folder: Path, records: Path | None, url: str, batch: int) -> None:
    """Store the pictures that are not stored yet, with a progress bar.

    Raises:
        DataError: There is no folder, no picture, or a record is wrong.
        Unavailable: No service answers.
    """
    console = Console(stderr=True, highlight=False)
    with Client(url) as client:
        info = client.info()
        pictures = find_pictures(folder, records)
        stored = {item.id for item in client.items()}
        new = [picture for picture in pictures if picture.id not in stored]
        faults: list[str] = []
        size = min(batch, int(info["limits"]["max_items"]))
        with _progress(console) as progress:
            task = progress.add_task("indexing", total=len(pictures))
            progress.advance(task, len(pictures) - len(new))
            for some in _batches(new, size, int(info["limits"]["max_body_bytes"])):
                faults += _send(client, some)
                progress.advance(task, len(some))
        count = client.info()["items"]
    kept = len(pictures) - len(new)
    console.print(
        f"{len(new) - len(faults):,} stored, {kept:,} were there, {len(faults):,} could not be "
        f"used; the service holds {count:,} items"
    )
    for fault in faults[:_SHOWN_FAULTS]:
        console.print(f"  {fault}", markup=False, soft_wrap=True)
    if len(faults) > _SHOWN_FAULTS:
        console.print(f"  ... and {len(faults) - _SHOWN_FAULTS:,} more")


def find_pictures(folder: Path, records: Path | None) -> list[Picture]:
    """The pictures of a folder, or those that its records name, in the order of their ids.

    Args:
        folder: A folder, or a JSONL file in it.
        records: A JSONL file; its paths are looked for in the folder.

    Raises:
        DataError: Nothing is found, or a record is wrong.
    """
    if folder.is_file():
        folder, records = folder.parent, folder
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder or file")
    if records is None:
        paths = [path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES]
        pictures = [Picture(path.relative_to(folder).as_posix(), path) for path in paths]
    else:
        pictures = list(_read_records(folder, records))
    if not pictures:
        raise DataError(f"{records or folder}: no images ({', '.join(sorted(_SUFFIXES))})")
    return sorted(pictures, key=lambda picture: picture.id)


def _read_records(folder: Path, records: Path) -> Iterator[Picture]:
    for record in iter_records(records, folder):
        captions = list(record.captions)
        metadata = {"caption": captions[0], "captions": captions} if captions else {}
        name = record.image.relative_to(folder.resolve()).as_posix()
        yield Picture(name, record.image, metadata)


def _batches(pictures: list[Picture], size: int, max_bytes: int) -> Iterator[list[Picture]]:
    """Pictures of one request: at most ``size``, and no more bytes than a body may have."""
    room = max_bytes * 5 // 8  # base64 takes a third more, and metadata some
    batch: list[Picture] = []
    taken = 0
    for picture in pictures:
        weight = picture.path.stat().st_size if picture.path.is_file() else 0
        if batch and (len(batch) == size or taken + weight > room):
            yield batch
            batch, taken = [], 0
        batch.append(picture)
        taken += weight
    if batch:
        yield batch


def _send(client: Client, pictures: list[Picture]) -> list[str]:
    """Store pictures; what comes back names each that cannot be used, and why."""
    items, faults = [], []
    for picture in pictures:
        try:
            picture.id.encode()
            data = picture.path.read_bytes()
        except UnicodeEncodeError:
            faults.append(f"{picture.id!r}: the name of the file is not UTF-8; rename it")
            continue
        except OSError as error:
            faults.append(f"{picture.id}: {error.strerror}")
            continue
        items.append({"id": picture.id, "image": data, "metadata": picture.metadata})
    if items:
        answer = client.put_items(items, on_error="skip")
        faults += [f"{fault.id}: {fault.detail}" for fault in answer.errors]
    return faults


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
