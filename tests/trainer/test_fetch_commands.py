"""The commands that are printed for people to type, as they type them; and Ctrl-C."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from core.cli import build_app
from core.evaluation.dataset import open_dataset
from core.evaluation.listing import how_to_get
from trainer.fetch.catalogue import TREE, catalogue, command

KINDS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
_HYPER3 = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from core.cli import main; main()"
)


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), "red").save(path)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def coco(folder: Path) -> None:
    picture(folder / "val2017/000000000003.jpg")
    photos = {"images": [{"id": 3, "file_name": "000000000003.jpg"}]}
    captions = [{"id": 1, "image_id": 3, "caption": "Three."}]
    write(folder / "captions_val2017.json", photos | {"annotations": captions})
    objects = {
        "categories": [{"id": number, "name": f"thing {number}"} for number in range(80)],
        "annotations": [{"image_id": 3, "category_id": 5}],
    }
    write(folder / "instances_val2017.json", photos | objects)


def karpathy(folder: Path) -> None:
    name = "COCO_val2014_000000000007.jpg"
    picture(folder / "COCO/val2014" / name)
    photo = {"filename": name, "split": "test", "sentences": [{"raw": "Seven.", "sentid": 70}]}
    place = {"cocoid": 7, "filepath": "val2014"}
    write(folder / "dataset_coco.json", {"images": [photo | place]})
    write(folder / "eccv_image_to_caption.json", {"7": [70]})
    write(folder / "eccv_caption_to_image.json", {"70": [7]})
    picture(folder / "flickr30k-images/12.jpg")
    write(folder / "dataset_flickr30k.json", {"images": [photo | {"filename": "12.jpg"}]})


def voc(folder: Path) -> None:
    base = folder / "VOCdevkit/VOC2007"
    write(base / "Annotations/000001.xml", "<annotation><object><name>dog</name></object>"
          "</annotation>")  # fmt: skip
    picture(base / "JPEGImages/000001.jpg")
    write(base / "ImageSets/Main/test.txt", "000001\n")


def texts(folder: Path) -> None:
    picture(folder / "val2014/a.jpg")
    write(folder / "hierarcaps_test.csv", "id,captions,image_url\n0,a => b,http://x/a.jpg\n")
    pair = {"filename": "000000000003.jpg", "caption": "Right.", "negative_caption": "Wrong."}
    for kind in KINDS:
        write(folder / f"sugar-crepe/data/{kind}.json", {"0": pair})


def cars(folder: Path) -> None:
    io = pytest.importorskip("scipy.io")
    base = folder / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    names = [f"car {number}" for number in range(196)]
    io.savemat(base / "devkit/cars_meta.mat", {"class_names": names})
    rows = [{"fname": f"{number}.jpg", "class": number} for number in (1, 196)]
    for file in ("cars_test_annos_withlabels.mat", "devkit/cars_train_annos.mat"):
        io.savemat(base / file, {"annotations": rows})
    for split in ("test", "train"):
        for row in rows:
            picture(base / f"cars_{split}/{row['fname']}")


def resisc45(folder: Path) -> None:
    for number in range(45):
        for file in range(5):
            picture(folder / f"NWPU-RESISC45/place_{number:02d}/{file}.jpg")


@pytest.mark.parametrize("name", [name for name in catalogue() if name != TREE])
def test_evaluation_prints_the_command_of_the_catalogue(name: str) -> None:
    assert how_to_get(name) == command(name)


@pytest.mark.parametrize(
    "name",
    [name for name, entry in catalogue().items() if entry.needs and name != "imagenet"],
)
def test_a_printed_command_works_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for make in (coco, karpathy, voc, texts, *([cars] if name == "cars" else []), resisc45):
        make(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(how_to_get(name))[1:]
    first, second = (CliRunner().invoke(build_app(), arguments) for _ in range(2))
    assert first.exception is None
    assert open_dataset(tmp_path / "data/eval" / name).records
    assert f"{name} is up to date." in second.output


def opened_for_writing(pipe: Path, process: "subprocess.Popen[str]") -> int:
    """The end of a pipe that a process is waiting at."""
    while process.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            time.sleep(0.05)
    raise AssertionError(process.communicate()[1])


def interrupted(process: "subprocess.Popen[str]") -> str:
    """What a process says when it is interrupted; again where it was just about to wait."""
    for _ in range(30):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=2)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the process goes on")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_ctrl_c_is_one_line_and_leaves_nothing_half(tmp_path: Path) -> None:
    pipe, root = tmp_path / "food-101/meta/train.json", tmp_path / "eval"
    write(pipe.with_name("test.json"), {"dish": ["dish/1"]})
    os.mkfifo(pipe)
    arguments = ["data", "fetch", "food101", "--from", str(tmp_path), "--root", str(root)]
    process = subprocess.Popen(
        [sys.executable, "-c", _HYPER3, *arguments], stderr=subprocess.PIPE, text=True
    )
    writer = opened_for_writing(pipe, process)
    errors = interrupted(process)
    os.close(writer)
    assert errors == "interrupted; run the same command again\n"
    assert process.returncode == 130
    assert list(root.iterdir()) == []
