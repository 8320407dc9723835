"""Embeddings that were computed elsewhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from core.errors import ConfigError, DataError
from core.evaluation.encoder import open_encoder
from core.evaluation.pictures import Picture
from core.evaluation.stored import StoredEncoder, open_stored
from core.spaces import Euclidean, Lorentz, Product

TEXTS = ["a red dog", 'two\nlines and a "quote"', "größer"]
NAMES = ["a/1.png", "a/2.png", "b 3.png", "4.png"]
SPACES: list[tuple[dict[str, Any], Any]] = [
    ({"geometry": "euclidean"}, Euclidean()),
    ({"geometry": "lorentz", "curvature": 0.3}, Lorentz(0.3)),
    ({"geometry": "lorentz", "curvature": 2, "score": "angle"}, Lorentz(2.0, "angle")),
    ({"geometry": "product", "curvature": [0.5, 2]}, Product(np.array([0.5, 2.0]), "l1")),
]  # fmt: skip

Floats = npt.NDArray[Any]


def tangents(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def write(
    folder: Path,
    images: Floats | None = None,
    texts: Floats | None = None,
    spec: dict[str, Any] | None = None,
    names: list[str] = NAMES,
) -> Path:
    """A folder of stored embeddings, of a hyperboloid where nothing else is said."""
    folder.mkdir(exist_ok=True)
    what = {"name": "mine", "space": {"geometry": "lorentz", "curvature": 0.3}} | (spec or {})
    (folder / "encoder.json").write_text(json.dumps(what))
    np.save(folder / "images.npy", tangents(len(names)) if images is None else images)
    np.save(folder / "texts.npy", tangents(len(TEXTS), 1) if texts is None else texts)
    (folder / "images.txt").write_text("".join(f"{name}\n" for name in names))
    (folder / "texts.txt").write_text("\n".join(map(json.dumps, TEXTS)))
    return folder


def opened(folder: Path) -> StoredEncoder:
    encoder = open_stored(str(folder))
    assert encoder is not None
    return encoder


def pictures(*names: str) -> list[Picture]:
    return [Picture(Path("/nowhere") / name, name) for name in names]


@pytest.mark.parametrize(("space", "expected"), SPACES, ids=lambda it: str(it)[:40])
@pytest.mark.parametrize("vectors", ["tangent", "point"])
def test_tangents_come_back_from_what_is_stored(
    tmp_path: Path, space: dict[str, Any], expected: Any, vectors: str
) -> None:
    images, texts = tangents(4).astype(np.float64), tangents(3, 1).astype(np.float64)
    kept = (images, texts)
    if vectors == "point":
        kept = (expected.lift(images), expected.lift(texts))
    encoder = opened(write(tmp_path, *kept, spec={"space": space, "vectors": vectors}))
    found = encoder.images(pictures("4.png", "a/1.png"))
    if isinstance(expected, Euclidean) and vectors == "point":
        images, texts = kept  # of a point the length is lost, and does not matter
    np.testing.assert_allclose(found.tangents, images[[3, 0]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoder.texts(TEXTS[::-1]), texts[::-1], rtol=1e-5, atol=1e-6)
    assert found.tangents.dtype == np.dtype(np.float32)
    assert not found.faults
    lifted = encoder.space.lift(found.tangents.astype(np.float64))
    np.testing.assert_allclose(lifted, expected.lift(images[[3, 0]]), rtol=1e-5, atol=1e-6)


def test_it_says_what_it_is(tmp_path: Path) -> None:
    encoder = opened(write(tmp_path, spec={"logit_scale": 20}))
    assert (encoder.name, encoder.logit_scale) == ("mine", 20.0)
    assert encoder.space == Lorentz(0.3)
    assert encoder.about["kind"] == "stored"
    assert open_encoder(str(tmp_path)).fingerprint == encoder.fingerprint
    assert encoder.images([]).tangents.shape == encoder.texts([]).shape == (0, 6)


@pytest.mark.parametrize("name", ["encoder.json", "images.npy", "texts.npy", "texts.txt"])
def test_the_fingerprint_changes_with_every_file(tmp_path: Path, name: str) -> None:
    before = opened(write(tmp_path)).fingerprint
    if name.endswith(".npy"):
        vectors = np.load(tmp_path / name)
        vectors[0, 0] += 1e-3
        np.save(tmp_path / name, vectors)
    else:
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("mine", "yours").replace("red", "blue"))
    assert opened(tmp_path).fingerprint != before


def test_half_precision_is_enough_for_a_point(tmp_path: Path) -> None:
    images, texts = (
        Lorentz(0.3).lift(rows).astype(np.float16) for rows in (tangents(4), tangents(3, 1))
    )
    encoder = opened(write(tmp_path, images, texts, spec={"vectors": "point"}))
    np.testing.assert_allclose(encoder.texts(TEXTS), tangents(3, 1), atol=0.01)


def test_a_row_of_nan_is_a_picture_that_could_not_be_read(tmp_path: Path) -> None:
    images = tangents(4)
    images[1] = np.nan
    found = opened(write(tmp_path, images)).images(pictures(*NAMES))
    assert found.faults == {1: "a/2.png: stored as unreadable"}
    assert np.isnan(found.tangents).all(axis=1).tolist() == [False, True, False, False]


def test_what_is_not_stored_is_named_and_counted(tmp_path: Path) -> None:
    encoder = opened(write(tmp_path))
    with pytest.raises(DataError, match=r"images.npy: 2 of 3 pictures .* the first 'c.png'; embed"):
        encoder.images(pictures("c.png", "a/1.png", "d.png", "c.png"))
    with pytest.raises(DataError, match=r"texts.npy: 1 of 1 texts .* the first 'a blue dog'"):
        encoder.texts(["a blue dog"])


def test_a_part_is_not_taken_for_its_picture(tmp_path: Path) -> None:
    part = Picture(Path("/nowhere/4.png"), "4.png", "letterbox", (0, 0, 0.5, 1))
    with pytest.raises(DataError, match=r"holds whole pictures, and a part of 4.png is asked for"):
        opened(write(tmp_path)).images([part])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"images": tangents(3)}, r"images.npy: \(3, 6\) for the 4 lines of images.txt"),
        ({"images": tangents(4)[:, :5]}, r"pictures are \(5,\) and of texts \(6,\)"),
        (
            {"images": tangents(4)[..., None]},
            r"float32 of shape \(4, 6, 1\); tangents .* \(n, dim\)",
        ),
        ({"images": np.zeros((4, 6), int)}, r"images.npy: int64 of shape"),
        ({"images": np.zeros(())}, r"images.npy: \(\) for the 4 lines"),
        ({"texts": np.full((3, 6), np.nan)}, r"texts.npy: row 0 \(from 0\) .* not finite"),
        ({"images": np.diag([1, 2, np.inf, 3.0])}, r"images.npy: row 2 \(from 0\) .* not finite"),
        ({"spec": {"vectors": "point"}}, r"images.npy: row 0 \(from 0\) is off the hyperboloid"),
        ({"spec": {"vectors": "points"}}, r"encoder.json: vectors: Input should be"),
        ({"spec": {"space": {"geometry": "lorentz"}}}, r"encoder.json: space.lorentz.curvature"),
        ({"spec": {"space": {"geometry": "lorentz", "curvature": -1}}}, r"greater than 0"),
        ({"spec": {"colour": 1}}, r"encoder.json: colour: Extra"),
        ({"spec": {"space": {"geometry": "product", "curvature": [1] * 4}}}, r"\(n, 4 \* dim\)"),
        (
            {"spec": {"space": {"geometry": "product", "curvature": [1]}, "vectors": "point"}},
            r"\(n, 1, dim \+ 1\)",
        ),
        ({"names": ["1", "2", "1", "3"]}, r"images.txt:3: '1' is there already, in line 1"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        open_stored(str(write(tmp_path, **change)))


@pytest.mark.parametrize("name", ["images.npy", "images.txt", "texts.npy", "texts.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: cannot be read"):
        open_stored(str(tmp_path))


def test_what_is_no_array_is_refused_and_no_code_in_it_is_run(tmp_path: Path) -> None:
    write(tmp_path)
    np.save(tmp_path / "texts.npy", np.array([{"a": 1}, None, 3], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"texts.npy: cannot be read: .*Python objects"):
        open_stored(str(tmp_path))
    for content in (b"", b"not an array"):
        (tmp_path / "texts.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"texts.npy: cannot be read"):
            open_stored(str(tmp_path))
    with (tmp_path / "texts.npy").open("wb") as stream:
        np.savez(stream, texts=tangents(3))
    with pytest.raises(DataError, match=r"texts.npy: an archive of arrays; save the one"):
        open_stored(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "complaint"), [("plain words", "not a JSON string"), ("3", "int where a JSON string")]
)
def test_a_line_of_texts_that_is_no_string_is_named(
    tmp_path: Path, line: str, complaint: str
) -> None:
    (write(tmp_path) / "texts.txt").write_text(f'"a"\n{line}\n"b"\n')
    with pytest.raises(DataError, match=rf"texts.txt:2: {complaint}"):
        open_stored(str(tmp_path))


def test_other_folders_are_not_its_business(tmp_path: Path) -> None:
    assert open_stored(str(tmp_path)) is None
    with pytest.raises(ConfigError, match="nothing that can be measured"):
        open_encoder(str(tmp_path))
