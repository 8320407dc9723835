"""`/search`, `/classify` and `/items` against direct computation."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from core import lorentz
from service.app import create_app
from service.settings import Settings

Picture = Callable[..., bytes]
Serve = Callable[..., TestClient]

COLOURS = ["red", "green", "blue", "yellow", "purple", "black"]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def call(http: TestClient, method: str, path: str, **body: object) -> Any:
    answer = http.request(method, path, json=body or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def filled(http: TestClient, picture: Picture) -> TestClient:
    """Six pictures and a text."""
    items: list[dict[str, Any]] = [
        {"id": f"c/{name}.png", "image": base64_of(picture(name)), "metadata": {"caption": name}}
        for name in COLOURS
    ]
    items.append({"id": "note", "text": "a red apple", "metadata": {"n": [1, {"é": None}]}})
    assert call(http, "PUT", "/items", items=items)["stored"] == 7
    return http


def stored_points(http: TestClient) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    ids = [item["id"] for item in call(http, "GET", "/items")["items"]]
    return {id_: np.array(call(http, "GET", f"/items/{id_}")["vector"]) for id_ in ids}


def test_hits_of_a_text_are_ordered_by_true_distance(filled: TestClient) -> None:
    answer = call(filled, "POST", "/search", text="a green house", k=7, **{"with": ["vector"]})
    query = np.array(answer["query"]["vector"])
    points = stored_points(filled)
    expected = sorted((float(lorentz.distance(query, at, 0.7)), id_) for id_, at in points.items())
    assert [hit["id"] for hit in answer["hits"]] == [id_ for _, id_ in expected]
    np.testing.assert_allclose(
        [hit["distance"] for hit in answer["hits"]], [d for d, _ in expected], rtol=1e-12
    )
    assert all(hit["score"] == -hit["distance"] for hit in answer["hits"])


def test_an_item_is_its_own_nearest_by_id_by_picture_and_by_vector(
    filled: TestClient, picture: Picture
) -> None:
    vector = call(filled, "GET", "/items/c/blue.png")["vector"]
    for query in (
        {"id": "c/blue.png"},
        {"image": base64_of(picture("blue"))},
        {"vector": vector},
        {"vector": vector[1:], "format": "space"},
    ):
        (hit,) = call(filled, "POST", "/search", k=1, **query)["hits"]
        assert (hit["id"], hit["distance"]) == ("c/blue.png", 0.0)
    tangent = lorentz.log_map(np.array(vector), 0.7).tolist()
    (hit,) = call(filled, "POST", "/search", k=1, vector=tangent, format="tangent")["hits"]
    assert (hit["id"], hit["distance"]) == ("c/blue.png", pytest.approx(0, abs=1e-5))


def test_hits_carry_what_was_asked_for_and_no_more(filled: TestClient) -> None:
    bare = call(filled, "POST", "/search", text="dog", k=2)
    assert set(bare["hits"][0]) == {"id", "distance", "score"}
    extras = ["metadata", "vector", "entailment", "radius"]
    full = call(filled, "POST", "/search", text="dog", k=7, **{"with": extras})
    query = np.array(full["query"]["vector"])
    for hit in full["hits"]:
        point = np.array(hit["vector"])
        assert hit["radius"] == pytest.approx(float(lorentz.radius(point, 0.7)))
        outward, inward = hit["entailment"].values()
        assert outward == pytest.approx(float(lorentz.entailment_score(query, point, 0.7)))
        assert inward == pytest.approx(float(lorentz.entailment_score(point, query, 0.7)))
    (note,) = (hit for hit in full["hits"] if hit["id"] == "note")
    assert note["metadata"] == {"n": [1, {"é": None}]}


def test_max_distance_keeps_those_within_it(filled: TestClient) -> None:
    hits = call(filled, "POST", "/search", id="note", k=7)["hits"]
    limit = hits[3]["distance"]
    within = call(filled, "POST", "/search", id="note", k=7, max_distance=limit)["hits"]
    assert within == hits[:4]


def test_putting_again_replaces_and_deleting_removes(filled: TestClient, picture: Picture) -> None:
    moved = {"id": "note", "image": base64_of(picture("red"))}
    assert call(filled, "PUT", "/items", items=[moved])["count"] == 7
    hits = call(filled, "POST", "/search", id="c/red.png", k=2)["hits"]
    assert [(hit["id"], hit["distance"]) for hit in hits] == [("c/red.png", 0), ("note", 0)]
    assert filled.delete("/items/c/red.png").status_code == 204
    assert filled.delete("/items/c/red.png").status_code == 404
    assert filled.get("/items/c/red.png").status_code == 404
    (hit,) = call(filled, "POST", "/search", id="note", k=1)["hits"]
    assert hit["id"] == "note"
    assert call(filled, "GET", "/items")["count"] == 6


def test_pages_give_every_item_once_in_the_order_of_ids(filled: TestClient) -> None:
    ids, cursor = [], ""
    for _ in range(3):
        page = filled.get("/items", params={"limit": 3, "cursor": cursor}).json()
        ids += [item["id"] for item in page["items"]]
        cursor = page["cursor"]
    assert page["cursor"] is None
    assert ids == sorted([f"c/{name}.png" for name in COLOURS] + ["note"])


def test_a_picture_comes_back_as_it_was_sent(filled: TestClient, picture: Picture) -> None:
    answer = filled.get("/items/c/red.png/image")
    assert (answer.content, answer.headers["content-type"]) == (picture("red"), "image/png")
    missing = filled.get("/items/note/image")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(("keep", "status"), [("thumbnail", 200), ("none", 404)])
def test_a_service_keeps_of_pictures_what_it_is_set_to(
    serve: Serve, picture: Picture, keep: str, status: int
) -> None:
    http = serve(keep_images=keep)
    large = {"id": "a", "image": base64_of(picture("red", (2000, 1000)))}
    call(http, "PUT", "/items", items=[large])
    answer = http.get("/items/a/image")
    assert answer.status_code == status
    if keep == "thumbnail":
        assert answer.headers["content-type"] == "image/jpeg"
        assert len(answer.content) < 10_000


@pytest.mark.parametrize("policy", ["retrieval", "classification", "letterbox"])
def test_pictures_are_stored_and_searched_as_preprocess_says(
    http: TestClient, picture: Picture, policy: str
) -> None:
    wide = base64_of(picture("blue", (60, 20)))
    call(http, "PUT", "/items", items=[{"id": "wide", "image": wide}], preprocess=policy)
    sent = call(http, "POST", "/embed", images=[wide], preprocess=policy)["results"][0]["vector"]
    np.testing.assert_allclose(stored_points(http)["wide"], sent, rtol=1e-6)
    for other in ("retrieval", "classification", "letterbox"):
        (hit,) = call(http, "POST", "/search", image=wide, preprocess=other)["hits"]
        assert (hit["distance"] < 1e-5) == (other == policy)


def test_odd_ids_lead_back_to_their_items(http: TestClient) -> None:
    ids = ["a b", "é/ü.png", "100%", "?q=1#x", "/rooted", "a//b", "x" * 512]
    call(http, "PUT", "/items", items=[{"id": id_, "text": "dog"} for id_ in ids])
    for id_ in ids:
        assert call(http, "GET", f"/items/{quote(id_, safe='')}")["id"] == id_


def test_what_was_stored_is_found_after_a_restart(bundle: Path, tmp_path: Path) -> None:
    settings = Settings(bundle=bundle, data=tmp_path)
    with TestClient(create_app(settings)) as http:
        call(http, "PUT", "/items", items=[{"id": "a", "text": "dog"}, {"id": "b", "text": "cat"}])
        http.delete("/items/b")
        before = call(http, "POST", "/search", text="a dog")
    with TestClient(create_app(settings)) as http:
        assert call(http, "POST", "/search", text="a dog") == before
        assert [hit["id"] for hit in before["hits"]] == ["a"]


def test_classes_are_mean_tangents_lifted_once_at_the_models_temperature(
    http: TestClient, picture: Picture
) -> None:
    labels, templates = ["apple", "dog", "red house"], ["a photo of {a}", "the {}"]
    texts = [
        "a photo of an apple", "the apple", "a photo of a dog", "the dog",
        "a photo of a red house", "the red house",
    ]  # fmt: skip
    embedded = call(http, "POST", "/embed", texts=texts, format="tangent")["results"]
    tangents = np.array([item["vector"] for item in embedded]).reshape(3, 2, 6)
    classes = lorentz.lift(tangents.mean(1), 0.7)
    image = base64_of(picture("blue", (40, 20)))
    sent = call(http, "POST", "/embed", images=[image], preprocess="classification", format="space")
    point = lorentz.from_space(np.array(sent["results"][0]["vector"]), 0.7)
    logits = -9.0 * lorentz.distance(point, classes, 0.7)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    for _ in range(2):  # the second time from the kept label set
        answer = call(http, "POST", "/classify", images=[image], labels=labels, templates=templates)
        (named,) = answer["results"]
        got = {item["label"]: item["probability"] for item in named["labels"]}
        assert got == pytest.approx(dict(zip(labels, shares.tolist(), strict=True)), abs=1e-4)
        assert list(got.values()) == sorted(got.values(), reverse=True)


def test_multi_label_scores_stand_alone(http: TestClient) -> None:
    answers = [
        call(http, "POST", "/classify", texts=["a dog"], labels=labels, multi_label=True)
        for labels in (["dog", "cat"], ["dog", "cat", "house", "apple"])
    ]
    few, many = ({it["label"]: it for it in answer["results"][0]["labels"]} for answer in answers)
    assert few["dog"] == many["dog"]
    assert set(few["dog"]) == {"label", "score"}


def test_top_gives_the_best_labels_of_each_thing(http: TestClient) -> None:
    answer = call(http, "POST", "/classify", texts=["dog", "cat"], labels=["cat", "dog"], top=1)
    assert [named["labels"][0]["label"] for named in answer["results"]] == ["dog", "cat"]
    assert all(len(named["labels"]) == 1 for named in answer["results"])
