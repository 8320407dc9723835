"""What the service says of itself."""

import socket
import sqlite3
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from core.errors import FingerprintMismatch, StorageError
from service.app import create_app
from service.commands.serving import listen
from service.settings import Settings
from service.store import Item, Put

Serve = Callable[..., TestClient]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_openapi_document_describes_every_body_and_answer(http: TestClient) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for reference in references(document):
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    names = [operation["operationId"] for operation in operations.values()]
    assert len(names) == len(set(names))
    for (method, path), operation in operations.items():
        assert operation["summary"]
        problem = operation["responses"]["default"]["content"]["application/problem+json"]
        assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert ("requestBody" in operation) == (method in ("post", "put")), path
    embed = operations["post", "/embed"]["requestBody"]["content"]
    kinds = {"application/json", "multipart/form-data", "image/*", "application/x-npy"}
    assert set(embed) == kinds


def test_the_documentation_is_served(http: TestClient) -> None:
    assert "swagger" in http.get("/docs").text.lower()


def test_info_states_the_model_and_the_limits(serve: Serve) -> None:
    info = serve(max_items=17).get("/info").json()
    assert info["limits"]["max_items"] == 17
    assert info["geometry"] == {"model": "lorentz", "curvature": 0.7, "dim": 6, "time_index": 0}
    assert (info["model"]["name"], info["model"]["image_side"], info["items"]) == ("tiny", 16, 0)
    assert info["preprocess"] == ["retrieval", "classification", "letterbox"]


def test_a_service_is_ready_until_its_index_is_behind_its_store(http: TestClient) -> None:
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    runtime = http.app.state.runtime  # type: ignore[attr-defined]  # typed as any ASGI app
    # SQLite takes vectors of any size; the index does not.
    unindexable = Item("a", "vector", np.zeros(2, np.float32), "{}")
    with pytest.raises(StorageError, match="nothing that was acknowledged is lost"):
        runtime.store._submit(Put([unindexable]))
    behind = http.get("/readyz")
    assert (behind.status_code, behind.json()["ready"]) == (503, False)
    assert "restart" in behind.json()["checks"]["index"]


def test_an_app_over_the_data_of_another_model_does_not_start(
    bundle: Path, other_bundle: Path, tmp_path: Path
) -> None:
    with TestClient(create_app(Settings(bundle=bundle, data=tmp_path))):
        pass
    with pytest.raises(FingerprintMismatch, match="index again"):
        create_app(Settings(bundle=other_bundle, data=tmp_path))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, bundle: Path) -> None:
    monkeypatch.setenv("H3_BUNDLE", str(bundle))
    monkeypatch.setenv("H3_MAX_ITEMS", "5")
    settings = Settings()
    assert (settings.bundle, settings.max_items, settings.host) == (bundle, 5, "127.0.0.1")


def test_answers_are_not_held_back_by_the_network(bundle: Path) -> None:
    """asyncio turns Nagle's algorithm off for sockets that name their protocol, and only those."""
    with listen(Settings(bundle=bundle, port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_full_disk_is_507_and_what_was_stored_is_still_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count = 16")  # SQLite then says that the disk is full
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    http = serve()
    kept, large = {"id": "a", "text": "dog"}, {"id": "b", "text": "dog " * 2000}
    assert http.put("/items", json={"items": [kept]}).status_code == 200
    for _ in range(2):
        full = http.put("/items", json={"items": [large | {"metadata": {"x": "y" * 60_000}}]})
        assert (full.status_code, full.json()["code"]) == (507, "storage_error")
        assert "full" in full.json()["detail"]
    assert [hit["id"] for hit in http.post("/search", json={"text": "dog"}).json()["hits"]] == ["a"]
    assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", ["core", "trainer", "service"])
def test_no_other_distribution_has_our_top_level_names(name: str) -> None:
    """Two of one name would overwrite, or hide, each other's modules."""
    assert set(packages_distributions().get(name, [])) <= {"hyper3-stack"}
