"""CIFAR and STL-10, whose pictures come as arrays: what is written has the very pixels."""

import hashlib
import pickle
import tarfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torchvision.datasets as tv
from PIL import Image

from core.errors import DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.arrays import read_pickled
from trainer.fetch.catalogue import Archive, catalogue
from trainer.fetch.draft import Draft, Job
from trainer.fetch.run import Fetched, Request, fetch, fetch_entry


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def lines(path: Path, *text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in text))


def get(name: str, source: Path, tmp_path: Path, **more: Any) -> Fetched:
    return fetch(name, Request(source, root=tmp_path / "eval", **more), silent)


def opened(fetched: Fetched) -> tuple[list[str], list[int], list[int]]:
    """The pictures of the test in the order of their names, their labels, and those to train on."""
    dataset = open_dataset(fetched.folder)
    train = dataset.train.labels().tolist() if dataset.train else []
    labelled = zip(dataset.records, dataset.labels().tolist(), strict=True)
    named = sorted((str(record.image), label) for record, label in labelled)
    return [name for name, _ in named], [label for _, label in named], train


def cifar(folder: Path, name: str) -> np.ndarray[Any, Any]:
    """A binary archive with two test pictures and a training one a file; the test's pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    inner, names, count, prefix = {
        "cifar10": ("cifar-10-batches-bin", "batches.meta.txt", 10, []),
        "cifar100": ("cifar-100-binary", "fine_label_names.txt", 100, [99]),
    }[name]
    base = folder / inner
    lines(base / names, *(f"thing_{label}" for label in range(count)))
    rows = [
        bytes([*prefix, label]) + pixels[label].transpose(2, 0, 1).tobytes() for label in (0, 1)
    ]
    trains = ["train.bin"] if prefix else [f"data_batch_{number}.bin" for number in range(1, 6)]
    (base / ("test.bin" if prefix else "test_batch.bin")).write_bytes(b"".join(rows))
    for file in trains:
        (base / file).write_bytes(rows[1])
    return pixels


@pytest.mark.parametrize(("name", "train"), [("cifar10", [1] * 5), ("cifar100", [1])])
def test_binary_cifar_gives_back_its_pixels(tmp_path: Path, name: str, train: list[int]) -> None:
    pixels = cifar(tmp_path / "raw", name)
    fetched = get(name, tmp_path / "raw", tmp_path)
    pictures, labels, trained = opened(fetched)
    assert (labels, trained) == ([0, 1], train)
    assert np.array_equal([np.asarray(Image.open(file)) for file in pictures], pixels)
    assert fetched.manifest
    assert fetched.manifest.classes["data set"][1] == "thing 1"
    assert fetched.manifest.images == "images"  # it can be moved
    assert "10,000 records, and here are 2" in fetched.remarks[0]


def test_a_torn_binary_names_the_file(tmp_path: Path) -> None:
    cifar(tmp_path / "raw", "cifar10")
    file = tmp_path / "raw/cifar-10-batches-bin/test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"test_batch\.bin: 6,145 bytes are not rows of 3,073"):
        get("cifar10", tmp_path / "raw", tmp_path)


def pickled(folder: Path) -> dict[str, str]:
    """CIFAR-10 as torchvision keeps it, one picture a batch; the md5 of each file."""
    folder.mkdir(parents=True)
    batch = {"data": np.full((1, 3072), 9, np.uint8), "labels": [3]}
    files = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for file in files:
        (folder / file).write_bytes(pickle.dumps(batch))
    names = {"label_names": [f"thing_{label}" for label in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))
    return {file.name: hashlib.md5(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_pickles_that_are_not_the_official_ones_are_never_read(tmp_path: Path) -> None:
    pickled(tmp_path / "raw/cifar-10-batches-py")
    with pytest.raises(DataError, match="not the official files by their md5"):
        get("cifar10", tmp_path / "raw", tmp_path)


def test_pickles_with_the_expected_checksums_are_read_by_torchvision(tmp_path: Path) -> None:
    digests = pickled(tmp_path / "raw/cifar-10-batches-py")

    class Little(tv.CIFAR10):  # type: ignore[misc]  # torchvision has no types
        train_list = tuple((name, digests[name]) for name in digests if name.startswith("data"))
        test_list = (("test_batch", digests["test_batch"]),)
        meta = MappingProxyType(tv.CIFAR10.meta | {"md5": digests["batches.meta"]})

    out = tmp_path / "out"
    out.mkdir()
    raw = tmp_path / "raw"
    job = Job("cifar10", catalogue()["cifar10"], raw, None, out, silent)
    draft: Draft = read_pickled(job, Little, raw)
    assert [row["label"] for row in draft.test + draft.train] == [3] * 6
    assert np.asarray(Image.open(draft.test[0]["image"])).tolist() == [[[9] * 3] * 32] * 32


def test_stl10_stands_upright(tmp_path: Path) -> None:
    base = tmp_path / "stl10_binary"
    lines(base / "class_names.txt", *(f"thing{label}" for label in range(10)))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), np.uint8)
    for split in ("test", "train"):
        (base / f"{split}_X.bin").write_bytes(pixels.transpose(0, 3, 2, 1).tobytes())
        (base / f"{split}_y.bin").write_bytes(bytes([10, 1]))
    pictures, labels, train = opened(get("stl10", tmp_path, tmp_path))
    assert labels == train == [9, 0]
    assert np.array_equal([np.asarray(Image.open(file)) for file in pictures], pixels)


def test_arrays_leave_no_downloads_behind(tmp_path: Path, server: str) -> None:
    cifar(tmp_path / "raw", "cifar10")
    file = tmp_path / "www" / "cifar.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tmp_path / "raw/cifar-10-batches-bin", "cifar-10-batches-bin")
    md5 = hashlib.md5(file.read_bytes()).hexdigest()
    archive = Archive(url=f"{server}/{file.name}", md5=md5)
    entry = catalogue()["cifar10"].model_copy(update={"archives": (archive,)})
    request = Request(root=tmp_path / "eval")
    fetched = fetch_entry("cifar10", entry, request, silent)
    assert fetched.manifest
    assert fetched.manifest.source == archive.url
    assert list((tmp_path / "eval/downloads").iterdir()) == []
    assert not fetch_entry("cifar10", entry, request, silent).is_new
