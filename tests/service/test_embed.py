"""`/embed`: every way in and out gives the same vectors."""

import base64
import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from starlette.testclient import TestClient

from core import lorentz

Picture = Callable[..., bytes]

AS_NPY = {"content-type": "application/x-npy"}


def vectors(answer: dict[str, object]) -> npt.NDArray[np.float64]:
    results = answer["results"]
    assert isinstance(results, list)
    return np.array([result["vector"] for result in results])


def embed(http: TestClient, **body: object) -> dict[str, object]:
    answer = http.post("/embed", json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, object] = answer.json()
    return document


def npy(array: npt.NDArray[np.generic]) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_every_format_follows_from_the_tangent(http: TestClient, picture: Picture) -> None:
    body = {"texts": ["a red apple"], "images": [base64_of(picture())]}
    got = {
        form: vectors(embed(http, format=form, **body))
        for form in ("lorentz", "tangent", "space", "poincare")
    }
    point = lorentz.lift(got["tangent"], 0.7)
    np.testing.assert_allclose(got["lorentz"], point, rtol=1e-5)
    np.testing.assert_allclose(got["space"], point[:, 1:], rtol=1e-5)
    np.testing.assert_allclose(got["poincare"], lorentz.to_poincare(point, 0.7), rtol=1e-5)
    assert (embed(http, **body)["format"], len(got["lorentz"][0])) == ("lorentz", 7)


def test_every_answer_names_its_geometry_and_fingerprint(http: TestClient) -> None:
    answer = embed(http, texts=["dog"])
    info = http.get("/info").json()
    assert answer["geometry"] == {"model": "lorentz", "curvature": 0.7, "dim": 6, "time_index": 0}
    assert answer["fingerprint"] == info["fingerprint"]


def test_json_data_uri_multipart_and_raw_bodies_agree(http: TestClient, picture: Picture) -> None:
    data = picture("green")
    as_json = embed(http, images=[base64_of(data), f"data:image/png;base64,{base64_of(data)}"])
    form = http.post("/embed", files=[("images", ("a.png", data)), ("images", ("b.png", data))])
    raw = http.post("/embed", content=data, headers={"content-type": "image/png"})
    stream = http.post("/embed", content=data, headers={"content-type": "application/octet-stream"})
    assert (vectors(as_json) == vectors(form.json())).all()
    assert (vectors(raw.json())[0] == vectors(as_json)[0]).all()
    assert (vectors(stream.json())[0] == vectors(as_json)[0]).all()


def test_multipart_takes_texts_images_and_options(http: TestClient, picture: Picture) -> None:
    answer = http.post(
        "/embed",
        data={"texts": ["a dog", "cat"], "format": "space", "preprocess": "letterbox"},
        files={"images": ("a.png", picture())},
    ).json()
    assert [(item["kind"], item["index"]) for item in answer["results"]] == [
        ("text", 0), ("text", 1), ("image", 0),
    ]  # fmt: skip
    expected = embed(
        http, texts=["a dog", "cat"], images=[base64_of(picture())], format="space",
        preprocess="letterbox",
    )  # fmt: skip
    assert (vectors(answer) == vectors(expected)).all()


def test_a_raw_image_takes_its_options_from_the_query(http: TestClient, picture: Picture) -> None:
    wide = picture("blue", (90, 30))
    got = {
        policy: vectors(
            http.post(
                f"/embed?preprocess={policy}&format=tangent", content=wide,
                headers={"content-type": "image/png"},
            ).json()
        )
        for policy in ("retrieval", "classification", "letterbox")
    }  # fmt: skip
    for policy, vector in got.items():
        expected = embed(http, images=[base64_of(wide)], format="tangent", preprocess=policy)
        assert (vector == vectors(expected)).all()
    assert not np.allclose(got["retrieval"], got["classification"])
    assert not np.allclose(got["retrieval"], got["letterbox"])


def test_an_npy_answer_holds_the_same_rows_and_says_what_they_are(http: TestClient) -> None:
    body = {"texts": ["a dog", "the red house"], "format": "poincare"}
    answer = http.post("/embed", json=body, headers={"accept": "application/x-npy"})
    array = np.load(io.BytesIO(answer.content), allow_pickle=False)
    assert (array.shape, array.dtype) == ((2, 6), np.float32)
    assert (array == vectors(embed(http, **body)).astype(np.float32)).all()
    assert answer.headers["hyper3-fingerprint"] == http.get("/info").json()["fingerprint"]
    assert '"curvature": 0.7' in answer.headers["hyper3-geometry"]


def test_squares_are_embedded_as_files_of_the_same_pixels_are(http: TestClient) -> None:
    squares = np.random.default_rng(0).integers(0, 256, (19, 16, 16, 3), np.uint8)
    answer = http.post("/embed?format=tangent", content=npy(squares), headers=AS_NPY)
    files = []
    for square in squares:
        out = io.BytesIO()
        Image.fromarray(square).save(out, "PNG")
        files.append(base64_of(out.getvalue()))
    expected = vectors(embed(http, images=files, format="tangent"))
    np.testing.assert_allclose(vectors(answer.json()), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "takes squares of uint8"),
        (b"\x93NUMPY\x01\x00\x20\x00" + b"(" * 32, "takes squares of uint8"),
        (npy(np.zeros((1, 15, 16, 3), np.uint8)), "(n, 16, 16, 3)"),
        (npy(np.zeros((1, 16, 16, 3), np.float32)), "takes squares of uint8"),
        (npy(np.zeros((16, 16, 3), np.uint8)), "takes squares of uint8"),
        (npy(np.asfortranarray(np.zeros((2, 16, 16, 3), np.uint8))), "as numpy.save writes them"),
        (npy(np.zeros((2, 16, 16, 3), np.uint8))[:-1], "1,535 bytes for 2 squares"),
        (npy(np.zeros((2, 16, 16, 3), np.uint8)) + b"x", "1,537 bytes for 2 squares"),
        (npy(np.zeros((0, 16, 16, 3), np.uint8)), "nothing to embed"),
    ],
)
def test_an_array_of_something_else_is_refused(
    http: TestClient, body: bytes, complaint: str
) -> None:
    answer = http.post("/embed", content=body, headers=AS_NPY)
    assert (answer.status_code, answer.json()["code"]) == (422, "request_error")
    assert complaint in answer.json()["detail"]


def test_more_squares_than_a_request_may_hold_are_refused(http: TestClient) -> None:
    body = npy(np.zeros((257, 16, 16, 3), np.uint8))
    assert http.post("/embed", content=body, headers=AS_NPY).status_code == 413


def test_texts_say_how_many_tokens_they_had_and_whether_they_were_cut(http: TestClient) -> None:
    results = embed(http, texts=["a dog", "dog " * 40])["results"]
    assert isinstance(results, list)
    assert [(item["tokens"], item["truncated"]) for item in results] == [(4, False), (42, True)]
    refused = http.post("/embed", json={"texts": ["dog " * 40], "truncate": False})
    assert (refused.status_code, refused.json()["code"]) == (422, "text_error")
    assert "42 tokens" in refused.json()["detail"]


def test_a_skipped_item_is_named_and_its_neighbours_are_as_without_it(
    http: TestClient, picture: Picture
) -> None:
    images = [base64_of(picture()), base64_of(picture()[:60]), base64_of(picture("blue"))]
    answer = embed(http, texts=["dog", " "], images=images, on_error="skip")
    alone = embed(http, texts=["dog"], images=[images[0], images[2]])
    assert (vectors(answer) == vectors(alone)).all()
    errors = answer["errors"]
    assert isinstance(errors, list)
    assert [(fault["kind"], fault["index"], fault["code"]) for fault in errors] == [
        ("text", 1, "text_error"), ("image", 1, "broken_image"),
    ]  # fmt: skip


def test_bad_images_among_many_leave_their_neighbours_as_they_are_alone(
    serve: Callable[..., TestClient], picture: Picture
) -> None:
    """Of many items a worker takes a few at once."""
    http = serve(workers=2)
    images = [base64_of(picture("green", (20 + number, 30))) for number in range(70)]
    alone = np.concatenate(
        [vectors(embed(http, images=[image], format="tangent")) for image in images]
    )
    bad = [0, *range(16, 24), 69]
    for row in bad:
        images[row] = base64_of(picture()[:60])
    answer = embed(http, images=images, format="tangent", on_error="skip")
    errors = answer["errors"]
    assert isinstance(errors, list)
    assert [fault["index"] for fault in errors] == bad
    good = np.setdiff1d(np.arange(70), bad)
    np.testing.assert_allclose(vectors(answer), alone[good], rtol=1e-5, atol=1e-6)


def test_rows_of_skipped_items_are_nan_in_an_npy_answer(http: TestClient) -> None:
    body = {"texts": ["dog", "", "cat"], "on_error": "skip"}
    answer = http.post("/embed", json=body, headers={"accept": "application/x-npy"})
    array = np.load(io.BytesIO(answer.content), allow_pickle=False)
    assert np.isnan(array).all(axis=1).tolist() == [False, True, False]
    assert answer.headers["hyper3-errors"] == '[["text", 1, "text_error"]]'


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_accepted_type_is_embedded(http: TestClient, picture: Picture, kind: str) -> None:
    flat = vectors(embed(http, images=[base64_of(picture("red", (32, 32), kind))]))
    png = vectors(embed(http, images=[base64_of(picture("red", (32, 32)))]))
    assert np.linalg.norm(flat - png) < 0.35 * np.linalg.norm(png)
