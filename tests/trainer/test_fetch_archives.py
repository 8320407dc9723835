"""Official archives, laid out in little as their authors do, against torchvision's readers."""

import hashlib
import importlib
import io
import json
import pickle
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torchvision.datasets as tv
from PIL import Image

from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.archives import download, unpack
from trainer.fetch.arrays import read_pickled
from trainer.fetch.catalogue import Archive, catalogue
from trainer.fetch.draft import Draft, Job
from trainer.fetch.listed import LAYOUTS
from trainer.fetch.run import Fetched, Request, fetch, fetch_entry


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(stream, "JPEG")
    return stream.getvalue()


JPEG = _jpeg()


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(JPEG)
    return path


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


def same_as_torchvision(fetched: Fetched, peer: Any) -> None:
    """Same pictures, classes and labels as torchvision reads from the same files."""
    pictures, labels, _ = opened(fetched)
    there = peer._image_files if hasattr(peer, "_image_files") else peer._images
    theirs = dict(zip(map(str, there), peer._labels, strict=True))
    assert dict(zip(pictures, labels, strict=True)) == theirs
    assert fetched.manifest
    names = fetched.manifest.classes["data set"]
    assert names == tuple(name.replace("_", " ").replace("/", " ") for name in peer.classes)


def food101(root: Path) -> None:
    for split, number in (("test", 1), ("train", 2)):
        names = [f"dish_{label:03d}" for label in range(101)]
        listed = {name: [f"{name}/{number}"] for name in names}
        lines(root / "food-101/meta" / f"{split}.json", json.dumps(listed))
        for name in names:
            picture(root / "food-101/images" / name / f"{number}.jpg")


def aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b/data"
    names = ["F/A-18", "737-300", *(f"Plane {label}" for label in range(98))]
    lines(data / "variants.txt", *names)
    for split, first in (("test", 0), ("trainval", 500)):
        numbered = [(f"{first + label:07d}", name) for label, name in enumerate(names)]
        lines(data / f"images_variant_{split}.txt", *(f"{n} {name}" for n, name in numbered))
        for number, _ in numbered:
            picture(data / "images" / f"{number}.jpg")


def pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    for split, first in (("test", 1), ("trainval", 50)):
        names = [f"great_dog{label:02d}_{first + label}" for label in range(37)]
        rows = [f"{name} {label + 1} 1 1" for label, name in enumerate(names)]
        lines(base / "annotations" / f"{split}.txt", *rows)
        for name in names:
            picture(base / "images" / f"{name}.jpg")


def dtd(root: Path) -> None:
    base = root / "dtd/dtd"
    for split in ("test", "train", "val"):
        names = [f"texture{label:02d}" for label in range(47)]
        named = [f"{name}/{name}_{split}.jpg" for name in names]
        lines(base / "labels" / f"{split}1.txt", *named)
        for name in named:
            picture(base / "images" / name)


def sun397(root: Path) -> None:
    base = root / "SUN397"
    names = [f"/a/place{label:03d}" for label in range(396)] + ["/a/apartment_building/outdoor"]
    lines(base / "ClassName.txt", *names)
    lines(base / "Partitions/Testing_01.txt", *(f"{name}/sun_a.jpg" for name in names))
    lines(base / "Partitions/Training_01.txt", f"{names[3]}/sun_b.jpg")
    for name in names:
        picture(base / name.strip("/") / "sun_a.jpg")


@pytest.mark.parametrize(
    ("make", "peer", "train"),
    [
        (food101, lambda root: tv.Food101(root, "test"), 101),
        (aircraft, lambda root: tv.FGVCAircraft(root, "test"), 100),
        (pets, lambda root: tv.OxfordIIITPet(root, "test"), 37),
        (dtd, lambda root: tv.DTD(root, "test"), 94),
        (sun397, tv.SUN397, 1),
    ],
    ids=["food101", "aircraft", "pets", "dtd", "sun397"],
)
def test_an_official_archive_is_read_as_torchvision_reads_it(
    tmp_path: Path, make: Any, peer: Any, train: int
) -> None:
    name, root = make.__name__, tmp_path / "raw"
    make(root)
    theirs = peer(root)  # before there is a picture of SUN397 that its test does not hold
    picture(root / "SUN397/a/place003/sun_b.jpg")
    fetched = get(name, root, tmp_path)
    same_as_torchvision(fetched, theirs)
    assert len(opened(fetched)[2]) == train
    assert fetched.manifest
    assert fetched.manifest.prompts == name


def test_the_folder_of_an_archive_itself_may_be_named(tmp_path: Path) -> None:
    food101(tmp_path / "raw")
    for source in (tmp_path / "raw/food-101", tmp_path / "raw/food-101/images"):
        assert get("food101", source, tmp_path, force=True).manifest.counts["test"] == 101  # type: ignore[union-attr]


def test_birds_are_split_by_their_own_list(tmp_path: Path) -> None:
    base = tmp_path / "CUB_200_2011"
    numbers = range(1, 201)
    lines(base / "classes.txt", *(f"{n} {n:03d}.Black_footed_Bird{n}" for n in numbers))
    names = {2 * n - odd: f"{n:03d}.Bird/b_{odd}.jpg" for n in numbers for odd in (0, 1)}
    lines(base / "images.txt", *(f"{key} {name}" for key, name in names.items()))
    lines(base / "image_class_labels.txt", *(f"{key} {(key + 1) // 2}" for key in names))
    lines(base / "train_test_split.txt", *(f"{key} {key % 2}" for key in names))
    for name in names.values():
        picture(base / "images" / name)
    fetched = get("cub2011", base / "images", tmp_path)
    pictures, labels, train = opened(fetched)
    assert labels == train == list(range(200))
    assert all(name.endswith("_0.jpg") for name in pictures)
    assert fetched.manifest
    assert fetched.manifest.classes["data set"][0] == "Black footed Bird1"


def test_matlab_lists_are_read_with_scipy_or_ask_for_it(tmp_path: Path) -> None:
    base = tmp_path / "raw/flowers-102"
    picture(base / "jpg/image_00001.jpg")
    try:
        scipy_io = importlib.import_module("scipy.io")
    except ModuleNotFoundError:
        (base / "imagelabels.mat").touch()
        with pytest.raises(ConfigError, match="pip install scipy"):
            get("flowers102", tmp_path / "raw", tmp_path)
        return
    scipy_io.savemat(base / "imagelabels.mat", {"labels": np.array([[77, 1, 2]])})
    splits = {"tstid": [[1, 3]], "trnid": [[2, 2]], "valid": [[3, 3]]}
    scipy_io.savemat(base / "setid.mat", splits)
    for number in (2, 3):
        picture(base / f"jpg/image_{number:05d}.jpg")
    fetched = get("flowers102", tmp_path / "raw", tmp_path)
    assert opened(fetched)[1:] == ([76, 1], [0, 0, 1, 1])
    assert fetched.manifest
    assert fetched.manifest.classes["data set"][76] == "passion flower"


def test_cars_are_read_from_the_devkit(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    base = tmp_path / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    names = np.array([f"Car {label} 2012" for label in range(196)], object)
    scipy_io.savemat(base / "devkit/cars_meta.mat", {"class_names": names})
    kind = [("class", object), ("fname", object)]
    for file, folder in (
        ("cars_test_annos_withlabels", "cars_test"),
        ("devkit/cars_train_annos", "cars_train"),
    ):
        rows = np.array([(7, "00001.jpg"), (196, "00002.jpg")], kind)
        scipy_io.savemat(base / f"{file}.mat", {"annotations": rows})
        for number in (1, 2):
            picture(base / folder / f"{number:05d}.jpg")
    fetched = get("cars", base, tmp_path)
    assert opened(fetched)[1:] == ([6, 195], [6, 195])
    same = tv.StanfordCars(tmp_path, "test")
    assert [label for _, label in same._samples] == [6, 195]


def test_a_list_with_too_few_classes_is_refused_with_both_numbers(tmp_path: Path) -> None:
    food101(tmp_path)
    file = tmp_path / "food-101/meta/test.json"
    listed = json.loads(file.read_text())
    lines(file, json.dumps(dict(list(listed.items())[:100])))
    with pytest.raises(DataError, match=r"lists 100 classes, but Food-101 has 101"):
        get("food101", tmp_path, tmp_path)


def test_the_partitions_of_sun397_must_be_there(tmp_path: Path) -> None:
    sun397(tmp_path)
    for file in (tmp_path / "SUN397/Partitions").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"Partitions\.zip"):
        get("sun397", tmp_path, tmp_path)


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
    job = Job("cifar10", catalogue()["cifar10"], raw, None, out, raw / "none", silent)
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


def test_every_layout_belongs_to_a_known_data_set() -> None:
    assert LAYOUTS.keys() <= catalogue().keys()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a folder ``tmp_path / "www"``, over HTTP."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            rest_from = self.headers.get("Range")
            if rest_from is None:
                super().do_GET()
                return
            first = int(rest_from.removeprefix("bytes=").rstrip("-"))
            rest = (folder / self.path.lstrip("/")).read_bytes()[first:]
            self.send_response(206 if rest else 416)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def packed(file: Path, content: dict[str, bytes]) -> str:
    """Write a ``.tar.gz`` or ``.zip``; its md5."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(file, "w:gz") as tar:
            for name, data in content.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return hashlib.md5(file.read_bytes()).hexdigest()


def test_archives_are_downloaded_checked_unpacked_and_removed(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"set/one.txt": b"1"})
    packed(tmp_path / "in.tar.gz", {"three.txt": b"3"})
    packed(tmp_path / "www/b.zip", {"in/in.tar.gz": (tmp_path / "in.tar.gz").read_bytes()})
    (tmp_path / "www/labels.mat").write_bytes(b"4")
    entry = catalogue()["pets"].model_copy(
        update={
            "archives": (
                Archive(url=f"{server}/a.tar.gz", md5=digest),
                Archive(url=f"{server}/b.zip", into="more", inner=("in/in.tar.gz",)),
                Archive(url=f"{server}/labels.mat"),
            )
        }
    )
    seen: list[tuple[str, int, int]] = []
    folder = download("pets", entry, tmp_path, lambda *told: seen.append(told))
    found = {str(file.relative_to(folder)) for file in folder.rglob("*.*") if file.is_file()}
    assert found == {"set/one.txt", "more/in/in.tar.gz", "more/in/three.txt", "labels.mat"}
    assert [file.name for file in folder.parent.iterdir()] == ["pets"]
    assert {"downloading a.tar.gz, MB", "unpacking b.zip"} <= {title for title, _, _ in seen}
    (tmp_path / "www/a.tar.gz").unlink()
    assert download("pets", entry, tmp_path, silent) == folder  # nothing is asked for again


def test_a_download_that_was_cut_off_goes_on(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"one.bin": bytes(5000)})
    whole = (tmp_path / "www/a.tar.gz").read_bytes()
    entry = catalogue()["pets"].model_copy(
        update={"archives": (Archive(url=f"{server}/a.tar.gz", md5=digest),)}
    )
    partial_file = tmp_path / "downloads/a.tar.gz.partial"
    partial_file.parent.mkdir()
    partial_file.write_bytes(whole[:20])
    (tmp_path / "www/a.tar.gz").write_bytes(bytes(20) + whole[20:])  # only the rest is right there
    folder = download("pets", entry, tmp_path, silent)
    assert (folder / "one.bin").stat().st_size == 5000
    assert not partial_file.exists()


def test_a_partial_file_that_is_too_long_is_thrown_away(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"one.txt": b"1"})
    whole = (tmp_path / "www/a.tar.gz").read_bytes()
    entry = catalogue()["pets"].model_copy(
        update={"archives": (Archive(url=f"{server}/a.tar.gz", md5=digest),)}
    )
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads/a.tar.gz.partial").write_bytes(whole)
    with pytest.raises(DataError, match="416"):
        download("pets", entry, tmp_path, silent)
    assert (download("pets", entry, tmp_path, silent) / "one.txt").read_text() == "1"


def test_an_archive_with_another_checksum_is_refused_and_removed(
    tmp_path: Path, server: str
) -> None:
    packed(tmp_path / "www/a.tar.gz", {"one.txt": b"1"})
    archive = Archive(url=f"{server}/a.tar.gz", md5="0" * 32)
    entry = catalogue()["pets"].model_copy(update={"archives": (archive,)})
    with pytest.raises(DataError, match="0" * 32):
        download("pets", entry, tmp_path, silent)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_an_address_that_is_gone_says_where_else_to_look(tmp_path: Path, server: str) -> None:
    entry = catalogue()["pets"].model_copy(update={"archives": (Archive(url=f"{server}/no.zip"),)})
    with pytest.raises(DataError, match=r"404 .*get it from https://www\.robots.*--from"):
        download("pets", entry, tmp_path, silent)


def test_a_path_that_leads_out_of_an_archive_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "bad.tar.gz", {"../out.txt": b"1"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "bad.tar.gz", tmp_path / "in", silent)
    assert not (tmp_path / "out.txt").exists()


def test_arrays_leave_no_downloads_behind(tmp_path: Path, server: str) -> None:
    cifar(tmp_path / "raw", "cifar10")
    base = tmp_path / "raw"
    content = {str(f.relative_to(base)): f.read_bytes() for f in base.rglob("*") if f.is_file()}
    digest = packed(tmp_path / "www/cifar.tar.gz", content)
    archive = Archive(url=f"{server}/cifar.tar.gz", md5=digest)
    entry = catalogue()["cifar10"].model_copy(update={"archives": (archive,)})
    request = Request(root=tmp_path / "eval")
    fetched = fetch_entry("cifar10", entry, request, silent)
    assert fetched.manifest
    assert fetched.manifest.source == archive.url
    assert list((tmp_path / "eval/downloads").iterdir()) == []
    assert not fetch_entry("cifar10", entry, request, silent).is_new


def test_pictures_of_an_archive_stay_where_they_were_unpacked(tmp_path: Path, server: str) -> None:
    food101(tmp_path / "raw")
    base = tmp_path / "raw"
    content = {str(f.relative_to(base)): f.read_bytes() for f in base.rglob("*.j*")}
    packed(tmp_path / "www/food-101.tar.gz", content)
    archive = Archive(url=f"{server}/food-101.tar.gz")
    entry = catalogue()["food101"].model_copy(update={"archives": (archive,)})
    fetched = fetch_entry("food101", entry, Request(root=tmp_path / "eval"), silent)
    assert fetched.manifest
    assert fetched.manifest.images == "../downloads/food101/food-101/images"
    (tmp_path / "eval").rename(tmp_path / "moved")  # paths within it are relative
    dataset = open_dataset(tmp_path / "moved/food101")
    assert all(record.image.is_file() for record in dataset.records)
