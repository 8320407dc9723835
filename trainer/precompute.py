"""Each picture through a frozen image tower once, before the first step of a training."""

import functools
import hashlib
import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from core.cores import available_cores
from core.errors import DataError, ImageError, StorageError
from core.image import Pixels, decode, resize
from core.lock import take_lock
from trainer.config import DataSection, Recipe
from trainer.data.augment import to_float
from trainer.data.batch import WHOLE_BOX, Seen
from trainer.data.features import (
    WHOLE,
    Features,
    Pictures,
    Stored,
    Table,
    Writer,
    key_at,
    known,
    pictures_of,
    read_broken,
    write_broken,
)
from trainer.data.sample import Sample, cut
from trainer.data.shards import ShardIndex, read_sample
from trainer.step import normalise
from trainer.storage import storage_errors, write_json

_BATCH = 64  # pictures that go through the tower at once
_COMMIT = 512  # pictures that a killed run may have to compute again
_AHEAD = 4  # samples that wait for each thread
_FORM = 1  # of the files; another is another store


@dataclass(frozen=True)
class Used:
    """Some shards, and the samples of them that a run can meet."""

    index: ShardIndex
    samples: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Store:
    """The tables of one tower, and how it is run."""

    recipe: Recipe
    tower: nn.Module
    device: torch.device
    folder: Path
    feature: Table
    patches: Table | None  # where an objective needs them

    @property
    def shared(self) -> Path:
        """The folder of all towers."""
        return self.folder.parent


def stored_features(
    recipe: Recipe,
    tower: nn.Module,
    device: torch.device,
    used: Sequence[Used],
    console: Console,
    held: Callable[[], None] = lambda: None,
) -> list[Features]:
    """What the frozen tower gives for the pictures of each of some sets of shards.

    What is not in ``data.features`` yet is computed and kept; whoever else fills the folder at
    this time is waited for.

    Args:
        recipe: With ``data.features``, and so with a frozen tower and no augmentation.
        tower: With the weights that it keeps, in its evaluation mode.
        device: Of the tower.
        used: Such as the training and the held-out shards.
        console: Told what there is and what is done.
        held: Called once this process has the folder to itself, or does not need it so.

    Raises:
        StorageError: The folder cannot be written, or its disk cannot hold what is missing.
        DataError: A feature is too large for half precision.
    """
    store = _open_store(recipe, tower, device)
    computed = 0
    shared = store.shared
    if all(known(one.index, shared) and not _missing(store, one).any() for one in used):
        held()
    else:
        lock = take_lock(shared, lambda owner: _say_waiting(console, shared, owner))
        with storage_errors(shared), closing(lock):
            held()
            computed = sum(_fill(store, one, console) for one in used)
    _tell(store, used, computed, console)
    return [_read(store, one.index) for one in used]


def _open_store(recipe: Recipe, tower: nn.Module, device: torch.device) -> _Store:
    if recipe.data.features is None:
        raise ValueError("the recipe names no data.features")
    side = recipe.data.side
    probe = _see(recipe, tower, device, [np.zeros((side, side, 3), np.uint8)])
    folder = recipe.data.features / _fingerprint(recipe, tower, device)[:16]
    patches = Table(folder, "patches", tuple(probe.patches.shape[1:]))
    return _Store(
        recipe, tower, device, folder,
        feature=Table(folder, "feature", tuple(probe.feature.shape[1:])),
        patches=patches if recipe.objective.needs_visual_nodes else None,
    )  # fmt: skip


def _fingerprint(recipe: Recipe, tower: nn.Module, device: torch.device) -> str:
    """sha256 of all that a feature depends on, the weights to the last bit."""
    digest = hashlib.sha256(json.dumps(_about(recipe, device), sort_keys=True).encode())
    for name, value in sorted(tower.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _about(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    return {
        "form": _FORM,
        "image_tower": recipe.image_tower.model_dump(mode="json", exclude={"frozen", "weights"}),
        "data": recipe.data.model_dump(mode="json", include={"side", "fit", "mean", "std"}),
        "precision": "bf16" if _rounds(recipe, device) else "fp32",
    }


def _rounds(recipe: Recipe, device: torch.device) -> bool:
    """Whether the tower runs in bfloat16; on a CPU that saves little, and is done once."""
    return device.type != "cpu" and recipe.optim.precision == "bf16"


@torch.inference_mode()
def _see(recipe: Recipe, tower: nn.Module, device: torch.device, squares: list[Pixels]) -> Seen:
    """What the tower gives, in half precision and on this host.

    Raises:
        DataError: A value is not finite, or over 65,504.
    """
    images = normalise(to_float(torch.from_numpy(np.stack(squares)).to(device)), recipe.data)
    with torch.autocast(device.type, torch.bfloat16, enabled=_rounds(recipe, device)):
        feature, patches = tower(images)
    kept = Seen(feature.cpu().half(), patches.cpu().half())
    if not all(values.isfinite().all() for values in kept):
        raise DataError(
            "a feature of the image tower is not finite, or over 65,504, which half precision "
            "cannot hold: run without data.features"
        )
    return kept


def _missing(store: _Store, used: Used) -> npt.NDArray[np.bool_]:
    """Which pictures have no feature, and which wholes no patches, though the run needs them.

    Returns:
        ``(2, pictures)``: by feature and by patches.
    """
    pictures = pictures_of(used.index, store.shared)
    sound = ~np.isin(pictures.keys, np.array(list(read_broken(store.folder)), pictures.keys.dtype))
    wanted = pictures.of(used.samples, parts=store.recipe.needed.max_parts > 0) & sound
    wholes = np.zeros_like(wanted)
    if store.patches:
        wholes = pictures.of(used.samples, parts=False) & sound
        wholes &= store.patches.find(pictures.keys) < 0
    return np.stack([wanted & (store.feature.find(pictures.keys) < 0), wholes])


def _fill(store: _Store, used: Used, console: Console) -> int:
    """Compute what is missing; the number of pictures that went through the tower."""
    with _bar(console) as bar:
        task = bar.add_task("samples looked through", total=len(used.index), told="")
        pictures = pictures_of(
            used.index, store.shared, lambda done: bar.update(task, completed=done)
        )
        missing = _missing(store, used)
        total = int(missing.any(0).sum())
        bar.update(task, completed=len(used.index), visible=False)
        if not total:
            return 0
        _check_space(store, missing)
        write_json(store.folder / "about.json", _about(store.recipe, store.device))
        task = bar.add_task("pictures through the tower", total=total, told="")
        start, done = time.perf_counter(), 0
        for count in _compute(store, used.index, pictures, missing):
            done += count
            rate = done / (time.perf_counter() - start)
            bar.update(task, completed=done, told=f"{rate:,.0f} a second")
    return total


def _check_space(store: _Store, missing: npt.NDArray[np.bool_]) -> None:
    tables = [store.feature, *([store.patches] if store.patches else [])]
    counts = missing.sum(1).tolist()
    need = sum(count * table.row_bytes for count, table in zip(counts, tables, strict=False))
    free = shutil.disk_usage(store.shared).free
    if need > free:
        raise StorageError(
            f"{store.shared}: the features of {missing.any(0).sum():,} pictures take "
            f"{decimal(need)}, and {decimal(free)} are free there: make room, or name a folder on "
            "another disk in data.features"
        )


def _compute(
    store: _Store, index: ShardIndex, pictures: Pictures, missing: npt.NDArray[np.bool_]
) -> Iterator[int]:
    """Put features and patches into the tables; the number of pictures, batch by batch."""
    broken = read_broken(store.folder)
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(store.feature))]
        if store.patches:
            writers.append(stack.enter_context(Writer(store.patches)))
        uncommitted = 0
        squares = _squares(store, index, pictures, np.flatnonzero(missing.any(0)))
        while batch := list(islice(squares, _BATCH)):
            sound = {place: square for place, square in batch if not isinstance(square, str)}
            broken |= {
                key_at(pictures.keys, place): why for place, why in batch if isinstance(why, str)
            }
            if sound:
                _append(store, pictures, missing, sound, writers)
            uncommitted += len(batch)
            if uncommitted >= _COMMIT or len(batch) < _BATCH:
                for writer in writers:
                    writer.commit()
                write_broken(store.folder, broken)
                uncommitted = 0
            yield len(batch)
        for writer in writers:
            writer.commit()


def _append(
    store: _Store,
    pictures: Pictures,
    missing: npt.NDArray[np.bool_],
    sound: dict[int, Pixels],
    writers: Sequence[Writer],
) -> None:
    seen = _see(store.recipe, store.tower, store.device, list(sound.values()))
    places = np.array(list(sound))
    for writer, values, lacking in zip(writers, seen, missing, strict=False):
        rows = np.flatnonzero(lacking[places])
        keys = [key_at(pictures.keys, place) for place in places[rows]]
        writer.append(keys, values.numpy()[rows])


def _squares(
    store: _Store, index: ShardIndex, pictures: Pictures, places: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Pixels | str]]:
    """Each of some pictures, or why it cannot be decoded, read ahead by all cores."""
    order = places[np.lexsort((pictures.part[places], pictures.sample[places]))].tolist()
    jobs = iter([list(job) for _, job in groupby(order, lambda place: pictures.sample[place])])
    threads = available_cores()

    def decoded(job: list[int]) -> list[tuple[int, Pixels | str]]:
        sample = read_sample(index, int(pictures.sample[job[0]]))
        parts = [int(pictures.part[place]) for place in job]
        return list(zip(job, _decode(sample, parts, store.recipe.data), strict=True))

    with ThreadPoolExecutor(threads, "pictures") as pool:
        reading = deque(pool.submit(decoded, job) for job in islice(jobs, threads * _AHEAD))
        while reading:
            done = reading.popleft()
            reading += [pool.submit(decoded, job) for job in islice(jobs, 1)]
            yield from done.result()


def _decode(sample: Sample, places: Sequence[int], options: DataSection) -> list[Pixels | str]:
    """Pictures of a sample, each by itself, or why it cannot be decoded."""
    full = functools.cache(lambda: decode(sample.jpeg))  # boxes need the whole's every pixel

    def picture(place: int) -> Image.Image:
        part = None if place == WHOLE else sample.parts[place]
        if part and not part.jpeg:
            return cut(full(), part.box or WHOLE_BOX)
        return decode((part and part.jpeg) or sample.jpeg, side=options.side)

    found: list[Pixels | str] = []
    for place in places:
        try:
            found.append(resize(picture(place), options.side, options.fit))
        except ImageError as error:
            found.append(str(error))
    return found


def _read(store: _Store, index: ShardIndex) -> Features:
    """What is stored for some shards."""
    pictures = pictures_of(index, store.shared)
    feature, *patches = [
        Stored(table, table.find(pictures.keys))
        for table in (store.feature, store.patches)
        if table
    ]
    return Features(pictures, feature, patches[0] if patches else None, read_broken(store.folder))


def _say_waiting(console: Console, folder: Path, owner: str) -> None:
    console.print(f"{folder}: process {owner} is filling it; waiting until it has done so")


def _tell(store: _Store, used: Sequence[Used], computed: int, console: Console) -> None:
    """How many pictures there are, how many were computed now, where, and how large they are."""
    tables = [store.feature, *([store.patches] if store.patches else [])]
    size = sum(len(table.keys()) * table.row_bytes for table in tables)
    parts = store.recipe.needed.max_parts > 0
    met = [pictures_of(one.index, store.shared).of(one.samples, parts=parts).sum() for one in used]
    console.print(
        f"the image tower is frozen: what it gives for {sum(met):,} pictures is read from "
        f"{store.folder} ({decimal(size)}); {computed:,} of them were computed now"
    )


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
        console=console,
    )
