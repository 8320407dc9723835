"""Bodies, types, paths and methods that no client of ours would send."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from service.schemas import ClassifyRequest, EmbedRequest, NewItem, PutRequest, SearchRequest

Picture = Callable[..., bytes]
Serve = Callable[..., TestClient]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"texts": [NaN'])
def test_a_body_that_is_not_json_is_refused(http: TestClient, raw: bytes) -> None:
    for path in ("/embed", "/search"):
        answer = http.post(path, content=raw, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (422, "request_error")
        assert "not valid JSON" in answer.json()["detail"]


def test_a_body_of_an_unknown_type_is_refused(http: TestClient, picture: Picture) -> None:
    for path in ("/embed", "/search"):
        answer = http.post(path, content=b"<a/>", headers={"content-type": "text/xml"})
        assert (answer.status_code, answer.json()["code"]) == (422, "request_error")
        assert "text/xml" in answer.json()["detail"]
    broken = http.post("/embed", content=b"x", headers={"content-type": "multipart/form-data"})
    assert broken.status_code == 400
    odd = http.post("/embed", data={"colour": "1"}, files={"images": ("a.png", picture())})
    assert (odd.status_code, odd.json()["code"]) == (422, "invalid_request")
    text = http.post("/embed", data={"images": "x"}, files={"texts": ("a.txt", b"dog")})
    assert text.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/embed", 405, "method_not_allowed"),
        ("POST", "/items", 405, "method_not_allowed"),
        ("DELETE", "/items/none", 404, "not_found"),
        ("GET", "/items/none", 404, "not_found"),
        ("GET", "/items/none/image", 404, "not_found"),
        ("GET", "/items?limit=0", 422, "invalid_request"),
        ("GET", "/items?limit=9999", 422, "request_error"),
        ("GET", "/items?cursor=%ff", 422, "request_error"),
        ("GET", "/items?cursor=A", 422, "request_error"),
        ("GET", "/items/%ff%00", 404, "not_found"),
    ],
)
def test_a_wrong_path_or_method_is_a_problem_document(
    http: TestClient, method: str, path: str, status: int, code: str
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    if status == 405:
        assert answer.headers["allow"]


def test_a_body_over_the_limit_is_cut_off_by_its_header_and_by_its_bytes(serve: Serve) -> None:
    http = serve(max_body_bytes=1000)

    def stream() -> Any:
        for _ in range(100):
            yield b" " * 100

    for path in ("/embed", "/search"):
        for content in (b" " * 1001, stream()):
            answer = http.post(path, content=content, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
            assert "1,000 bytes" in answer.json()["detail"]


_text = st.text(st.characters(exclude_categories=()))  # half surrogates too
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_fields = st.sampled_from(
    sorted(
        {
            name
            for model in (EmbedRequest, SearchRequest, ClassifyRequest, PutRequest, NewItem)
            for name in (*model.model_fields, "with")
        }
    )
)


def test_no_body_at_all_makes_the_service_fail(http: TestClient) -> None:
    @given(
        where=st.sampled_from(
            [("POST", "/embed"), ("POST", "/search"), ("POST", "/classify"), ("PUT", "/items")]
        ),
        body=st.dictionaries(_fields | _text, _json, max_size=5) | _json,
    )
    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    def fuzz(where: tuple[str, str], body: object) -> None:
        answer = http.request(
            *where, content=json.dumps(body), headers={"content-type": "application/json"}
        )
        assert answer.status_code < 500
        assert answer.status_code == 200 or answer.json()["code"]

    fuzz()
