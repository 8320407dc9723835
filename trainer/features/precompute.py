"""Each picture through a frozen image tower once, before the first step of a training."""

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from core.cores import available_cores
from core.errors import StorageError
from core.image import Pixels
from core.lock import take_lock
from trainer.config import Recipe
from trainer.data.pictures import apart
from trainer.data.shards import ShardIndex, read_sample
from trainer.features.store import (
    BROKEN,
    Features,
    Pictures,
    Stored,
    known_pictures,
    look_through,
    read_broken,
    write_broken,
)
from trainer.features.table import Writer, key_at
from trainer.features.tower import Store, about, open_store, see
from trainer.memory import freed_memory_is_kept
from trainer.storage import write_json

_BATCH = 64  # pictures that go through the tower at once
_COMMIT = 8  # batches: what a killed run may have to compute again
_AHEAD = 4  # samples that wait for each thread


@dataclass(frozen=True)
class Used:
    """Some shards, and the samples of them that a run can meet."""

    index: ShardIndex
    samples: npt.NDArray[np.int64]


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
    store = open_store(recipe, tower, device)
    shared = store.shared
    computed = 0
    found = [known_pictures(one.index, shared) for one in used]
    if any(
        pictures is None or _missing(store, one, pictures).any()
        for one, pictures in zip(used, found, strict=True)
    ):
        with closing(take_lock(shared, lambda owner: _say_waiting(console, shared, owner))):
            held()
            for place, one in enumerate(used):
                found[place] = pictures = _look(one.index, shared, console)
                computed += _fill(store, one, pictures, console)
    else:
        held()
    features = [_read(store, pictures) for pictures in found if pictures]
    _tell(store, features, computed, console)
    return features


def _missing(store: Store, used: Used, pictures: Pictures) -> npt.NDArray[np.bool_]:
    """Which pictures have no feature, and which wholes no patches, though the run needs them.

    Returns:
        ``(2, pictures)``: by feature and by patches.
    """
    keys = pictures.keys
    sound = ~_is_broken(store, pictures)
    parts = store.recipe.needed.max_parts > 0
    feature = pictures.of(used.samples, parts=parts) & sound & (store.feature.find(keys) < 0)
    patches = np.zeros_like(feature)
    if store.patches:
        patches = pictures.of(used.samples, parts=False) & sound & (store.patches.find(keys) < 0)
    return np.stack([feature, patches])


def _is_broken(store: Store, pictures: Pictures) -> npt.NDArray[np.bool_]:
    """Which pictures have been found impossible to decode."""
    return np.isin(pictures.keys, np.array(list(read_broken(store.folder)), pictures.keys.dtype))


def _look(index: ShardIndex, folder: Path, console: Console) -> Pictures:
    """The pictures of some shards, which another process may have looked through by now."""
    if found := known_pictures(index, folder):
        return found
    with _bar(console) as bar:
        task = bar.add_task("looking for the pictures of samples", total=len(index), told="")
        return look_through(index, folder, lambda done: bar.update(task, completed=done))


def _fill(store: Store, used: Used, pictures: Pictures, console: Console) -> int:
    """Compute what is missing; the number of pictures that went through the tower."""
    missing = _missing(store, used, pictures)
    total = int(missing.any(0).sum())
    if not total:
        return 0
    size = _space(store, missing)
    console.print(
        f"{escape(str(store.folder))}: {total:,} pictures go through the frozen image tower, once; "
        f"what it gives takes {decimal(size)}"
    )
    write_json(store.folder / "about.json", about(store.recipe, store.device))
    with freed_memory_is_kept(), _bar(console) as bar:
        task = bar.add_task("pictures through the tower", total=total, told="")
        start, done = time.perf_counter(), 0
        for count in _compute(store, used.index, pictures, missing):
            done += count
            rate = done / (time.perf_counter() - start)
            bar.update(task, completed=done, told=f"{rate:,.0f} a second")
    return total


def _space(store: Store, missing: npt.NDArray[np.bool_]) -> int:
    """Bytes that the missing rows will take.

    Raises:
        StorageError: The disk has not so many.
    """
    counts = missing.sum(1).tolist()
    need: int = sum(
        count * table.row_bytes for count, table in zip(counts, store.tables, strict=False)
    )
    free = shutil.disk_usage(store.shared).free
    if need > free:
        raise StorageError(
            f"{store.shared}: the features of {missing.any(0).sum():,} pictures take "
            f"{decimal(need)}, and {decimal(free)} are free there: make room, or name a folder on "
            "another disk in data.features"
        )
    return need


def _compute(
    store: Store, index: ShardIndex, pictures: Pictures, missing: npt.NDArray[np.bool_]
) -> Iterator[int]:
    """Put features and patches into the tables; the number of pictures, batch by batch."""
    broken = read_broken(store.folder)
    squares = _squares(store, index, pictures, np.flatnonzero(missing.any(0)))
    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(table)) for table in store.tables]

        def commit() -> None:
            for writer in writers:
                writer.commit()
            write_broken(store.folder, broken)

        for number, batch in enumerate(iter(lambda: list(islice(squares, _BATCH)), []), 1):
            sound = {place: square for place, square in batch if not isinstance(square, str)}
            broken |= {
                key_at(pictures.keys, place): why for place, why in batch if isinstance(why, str)
            }
            if sound:
                _append(store, pictures, missing, sound, writers)
            if number % _COMMIT == 0:
                commit()
            yield len(batch)
        commit()


def _append(
    store: Store,
    pictures: Pictures,
    missing: npt.NDArray[np.bool_],
    sound: dict[int, Pixels],
    writers: Sequence[Writer],
) -> None:
    """One batch through the tower; each table gets the rows that it lacks."""
    seen = see(store.recipe, store.tower, store.device, list(sound.values()))
    places = np.array(list(sound))
    for writer, values, lacking in zip(writers, seen, missing, strict=False):
        rows = np.flatnonzero(lacking[places])
        keys = [key_at(pictures.keys, place) for place in places[rows]]
        writer.append(keys, values.numpy()[rows])


def _squares(
    store: Store, index: ShardIndex, pictures: Pictures, places: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Pixels | str]]:
    """Each of some pictures, or why it cannot be decoded, read ahead by all cores."""
    order = places[np.lexsort((pictures.part[places], pictures.sample[places]))].tolist()
    jobs = (list(job) for _, job in groupby(order, lambda place: pictures.sample[place]))
    threads = available_cores()

    def decoded(job: list[int]) -> list[tuple[int, Pixels | str]]:
        sample = read_sample(index, int(pictures.sample[job[0]]))
        parts = [int(pictures.part[place]) for place in job]
        return list(zip(job, apart(sample, parts, store.recipe.data), strict=True))

    with ThreadPoolExecutor(threads, "pictures") as pool:
        reading = deque(pool.submit(decoded, job) for job in islice(jobs, threads * _AHEAD))
        while reading:
            done = reading.popleft()
            reading += [pool.submit(decoded, job) for job in islice(jobs, 1)]
            yield from done.result()


def _read(store: Store, pictures: Pictures) -> Features:
    """Where all that is stored for some pictures is."""
    feature, *patches = [Stored(table, table.find(pictures.keys)) for table in store.tables]
    return Features(pictures, feature, patches[0] if patches else None, read_broken(store.folder))


def _say_waiting(console: Console, folder: Path, owner: str) -> None:
    console.print(
        f"{escape(str(folder))}: process {owner} is filling it; waiting until it has done so"
    )


def _tell(store: Store, features: Sequence[Features], computed: int, console: Console) -> None:
    """How many pictures there are, how many were computed now, where, and how large they are."""
    rows = np.unique(np.concatenate([one.feature.rows for one in features]))
    size = sum(len(table.keys()) * table.row_bytes for table in store.tables)
    console.print(
        f"what the frozen image tower gives for {(rows >= 0).sum():,} pictures is in "
        f"{escape(str(store.folder))} ({decimal(size)}); {computed:,} were computed now"
    )
    broken = {key for one in features for key in one.pictures.keys[_is_broken(store, one.pictures)]}
    if broken:
        console.print(
            f"[yellow]{len(broken):,} pictures cannot be decoded[/]: "
            f"{escape(str(store.folder / BROKEN))} "
            "says why"
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
