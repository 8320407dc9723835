"""Whatever is sent, the answer is a problem document that says what was wrong, never a 500."""

import base64
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

Picture = Callable[..., bytes]
Serve = Callable[..., TestClient]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def refuse(
    http: TestClient, method: str, path: str, body: object, *expected: int | str
) -> dict[str, Any]:
    """Send JSON (with NaN and half surrogates where the body has them); expect this problem:
    its status, its code, and a part of its detail.
    """
    status, code, says = expected
    answer = http.request(
        method, path, content=json.dumps(body), headers={"content-type": "application/json"}
    )
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(says).lower() in problem["detail"].lower()
    assert problem["status"] == status
    assert "Traceback" not in answer.text
    return problem


def bomb() -> bytes:
    """A small PNG whose header claims 100,000 x 100,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/embed", "/search", "/classify", "/items"])
@pytest.mark.parametrize(
    ("make", "status", "code", "says"),
    [
        (lambda png: base64_of(png[:70]), 422, "broken_image", "decoded"),
        (lambda _: base64_of(b"%PDF-1.7 not a picture"), 415, "unsupported_image", "JPEG, PNG"),
        (lambda _: base64_of(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), 415,
         "unsupported_image", "PNG"),
        (lambda _: "", 415, "unsupported_image", "empty"),
        (lambda _: base64_of(bomb()), 413, "image_too_large", "pixels"),
        (lambda _: base64_of(b"\xff" * 3000), 413, "image_too_large", "2,000"),
        (lambda _: "not base64!", 422, "broken_image", "base64"),
        (lambda _: "\ud800", 422, "broken_image", "base64"),
        (lambda _: "https://example.org/a.png", 415, "unsupported_image", "URL"),
        (lambda _: "data:image/png,abc", 415, "unsupported_image", "base64"),
    ],
)  # fmt: skip
def test_a_bad_image_is_refused_and_the_next_request_works(
    serve: Serve,
    picture: Picture,
    *,
    path: str,
    make: Callable[[bytes], str],
    status: int,
    code: str,
    says: str,
) -> None:
    http = serve(max_image_bytes=2000)
    image = make(picture())
    method, body = {
        "/embed": ("POST", {"images": [image]}),
        "/search": ("POST", {"image": image}),
        "/classify": ("POST", {"images": [image], "labels": ["dog"]}),
        "/items": ("PUT", {"items": [{"id": "a", "image": image}]}),
    }[path]
    refuse(http, method, path, body, status, code, says)
    assert http.post("/embed", json={"images": [base64_of(picture())]}).status_code == 200
    assert http.get("/items").json()["count"] == 0


@pytest.mark.parametrize("path", ["/embed", "/search", "/classify", "/items"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "blank"), (" \n\t", "blank"), ("a\0b", "NUL"), ("half \ud83d", "surrogate"),
        ("x" * 10_001, "10,000"),
    ],
)  # fmt: skip
def test_a_bad_text_is_refused(http: TestClient, path: str, text: str, says: str) -> None:
    method, body = {
        "/embed": ("POST", {"texts": ["dog", text]}),
        "/search": ("POST", {"text": text}),
        "/classify": ("POST", {"texts": ["dog"], "labels": ["cat", text]}),
        "/items": ("PUT", {"items": [{"id": "a", "text": text}]}),
    }[path]
    refuse(http, method, path, body, 422, "text_error", says)


@pytest.mark.parametrize(
    ("vector", "form", "says"),
    [
        ([1.0, 0.0], "lorentz", "2 values"),
        ([1.0] * 7, "space", "7 values"),
        ([float("nan")] * 6, "space", "nan at position 0"),
        ([0.0, float("inf"), 0, 0, 0, 0], "tangent", "inf at position 1"),
        ([5.0, 0, 0, 0, 0, 0, 0], "lorentz", "off the hyperboloid"),
        ([-((1 / 0.7) ** 0.5), 0, 0, 0, 0, 0, 0], "lorentz", "off the hyperboloid"),
        ([1e30, 0, 0, 0, 0, 0], "space", "beyond"),
        ([1e300] * 6, "space", "beyond"),
        ([100.0, 0, 0, 0, 0, 0], "tangent", "beyond"),
        ([], "space", "0 values"),
    ],
)
def test_a_vector_that_is_no_point_of_the_space_is_refused(
    http: TestClient, vector: list[float], form: str, says: str
) -> None:
    query = {"vector": vector, "format": form}
    refuse(http, "POST", "/search", query, 422, "vector_error", says)
    refuse(http, "PUT", "/items", {"items": [query | {"id": "a"}]}, 422, "vector_error", says)


def test_vectors_of_another_model_or_space_are_refused(http: TestClient) -> None:
    vector = {"vector": [0.0] * 6, "format": "space"}
    other, mine = "0" * 64, http.get("/info").json()["fingerprint"]
    for method, path, body in (
        ("POST", "/search", vector),
        ("PUT", "/items", {"items": [vector | {"id": "a"}]}),
    ):
        refuse(
            http, method, path, body | {"fingerprint": other}, 409, "fingerprint_mismatch", other
        )
        refuse(http, method, path, body | {"curvature": 1.0}, 422, "vector_error", "curvature 1.0")
        claims = {"fingerprint": mine, "curvature": 0.7}
        assert http.request(method, path, json=body | claims).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/embed", {"texts": ["a"], "colour": 1}, "colour"),
        ("POST", "/embed", {"texts": "a"}, "texts"),
        ("POST", "/embed", {"texts": [1]}, "texts.0"),
        ("POST", "/embed", {"texts": ["a"], "format": "klein"}, "format"),
        ("POST", "/embed", [1], "object"),
        ("POST", "/search", {}, "exactly one"),
        ("POST", "/search", {"text": "a", "id": "b"}, "text and id"),
        ("POST", "/search", {"text": "a", "k": 0}, "k"),
        ("POST", "/search", {"text": "a", "max_distance": -1}, "max_distance"),
        ("POST", "/search", {"text": "a", "with": ["price"]}, "with"),
        ("POST", "/search", {"vector": ["x"]}, "vector.0"),
        ("POST", "/search", None, "object"),
        ("POST", "/search", {"text": "a", "\ud800": 1}, "string"),
        ("POST", "/classify", {"texts": ["a"], "labels": []}, "labels"),
        ("PUT", "/items", {"items": [{"text": "a"}]}, "items.0.id"),
        ("PUT", "/items", {"items": [{"id": "a"}]}, "exactly one"),
        ("PUT", "/items", {"items": [{"id": "a", "text": "b", "metadata": 3}]}, "metadata"),
    ],
)
def test_a_body_of_the_wrong_shape_names_the_field(
    http: TestClient, method: str, path: str, body: object, says: str
) -> None:
    code = "invalid_request" if isinstance(body, dict) else "request_error"
    refuse(http, method, path, body, 422, code, says)


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/embed", {}, "nothing to embed"),
        ("POST", "/search", {"text": "a", "k": 1001}, "1,000"),
        ("POST", "/classify", {"labels": ["a"]}, "nothing to name"),
        ("POST", "/classify", {"texts": ["a"], "labels": ["a", "a"]}, "2 times"),
        ("POST", "/classify", {"texts": ["a"], "labels": ["a"], "templates": ["x"]}, "template"),
        ("PUT", "/items", {"items": [{"id": "", "text": "a"}]}, "0 bytes"),
        ("PUT", "/items", {"items": [{"id": "é" * 257, "text": "a"}]}, "514 bytes"),
        ("PUT", "/items", {"items": [{"id": "a\0", "text": "a"}]}, "printed"),
        ("PUT", "/items", {"items": [{"id": "\ud800", "text": "a"}]}, "surrogate"),
        ("PUT", "/items", {"items": [{"id": "a/../b", "text": "a"}]}, ".."),
        ("PUT", "/items", {"items": [{"id": "a/image", "text": "a"}]}, "/image"),
        ("PUT", "/items", {"items": [{"id": "a", "text": "a", "metadata": {"x": float("nan")}}]},
         "metadata"),
        ("PUT", "/items", {"items": [{"id": "a", "text": "a", "metadata": {"x": "\ud800"}}]},
         "metadata"),
        ("PUT", "/items", {"items": [{"id": "a", "text": "a", "metadata": {"x": "y" * 70_000}}]},
         "65,536"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_done_says_why(
    http: TestClient, method: str, path: str, body: object, says: str
) -> None:
    refuse(http, method, path, body, 422, "request_error", says)


def test_too_many_items_are_refused(serve: Serve) -> None:
    http = serve(max_items=2, max_labels=5)
    items = [{"id": str(number), "text": "dog"} for number in range(3)]
    for method, path, body in (
        ("POST", "/embed", {"texts": ["a", "b", "c"]}),
        ("PUT", "/items", {"items": items}),
        ("POST", "/classify", {"texts": ["a"], "labels": ["a", "b"]}),
    ):
        refuse(http, method, path, body, 413, "request_too_large", "the limit is")


def test_one_bad_item_of_many_fails_all_or_is_skipped_as_asked(http: TestClient) -> None:
    items = [{"id": "a", "text": "dog"}, {"id": "b", "text": ""}, {"id": "c", "text": "cat"}]
    problem = refuse(http, "PUT", "/items", {"items": items}, 422, "text_error", "item 1")
    assert [(it["index"], it["id"]) for it in problem["errors"]] == [(1, "b")]
    assert http.get("/items").json()["count"] == 0
    answer = http.put("/items", json={"items": items, "on_error": "skip"}).json()
    assert (answer["stored"], answer["count"], answer["errors"][0]["id"]) == (2, 2, "b")


def test_a_missing_item_cannot_be_searched_for(http: TestClient) -> None:
    for id_ in ("none", "\ud800", ""):
        refuse(http, "POST", "/search", {"id": id_}, 404, "not_found", "no item")
