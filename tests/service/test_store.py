"""What is acknowledged is on the disk, and only the right process and model get at it."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.errors import FingerprintMismatch, NotFound, StorageError
from service.store import Change, Delete, Item, Put, Store


def item(id_: str, value: float = 1.0) -> Item:
    return Item(id_, "vector", np.full(3, value, np.float32), "{}")


def ignore(_: Change) -> None:
    """Nobody follows this store."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path, "f", 3, ignore)
    yield opened
    opened.close()


def test_an_item_comes_back_as_it_was_put(store: Store) -> None:
    whole = Item("a/b", "image", np.array([1, 2, 3], np.float32), '{"x": [1]}', None, b"\x89")
    store.put([whole])
    back = store.get("a/b")
    assert (back.id, back.kind, back.metadata, back.image) == (
        "a/b",
        "image",
        '{"x": [1]}',
        b"\x89",
    )
    assert back.space.tolist() == [1, 2, 3]


def test_of_two_items_with_one_id_the_later_wins(store: Store) -> None:
    store.put([item("a", 1), item("b", 2), item("a", 3)])
    store.put([item("b", 4)])
    assert (store.get("a").space[0], store.get("b").space[0]) == (3, 4)
    assert [id_ for ids, _ in store.vectors() for id_ in ids] == ["a", "b"]


def test_deleting_what_is_not_there_says_so(store: Store) -> None:
    store.put([item("a")])
    store.delete("a")
    with pytest.raises(NotFound, match="'a'"):
        store.delete("a")
    with pytest.raises(NotFound, match="'a'"):
        store.get("a")


def test_pages_follow_the_order_of_ids(store: Store) -> None:
    store.put([item(id_) for id_ in ("b", "é", "a", "Z")])
    assert [row[0] for row in store.page("", 2)] == ["Z", "a"]
    assert [row[0] for row in store.page("a", 9)] == ["b", "é"]


def test_writes_of_many_threads_are_heard_of_in_the_order_they_are_stored(tmp_path: Path) -> None:
    heard: list[Change] = []
    store = Store(tmp_path, "f", 3, heard.append)

    def write(thread: int) -> None:
        for number in range(20):
            store.put([item("same", thread * 100 + number), item(f"{thread}-{number}")])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = [change for change in heard if isinstance(change, Put)][-1]
    assert len(heard) == 160
    assert store.get("same").space[0] == last.items[0].space[0]
    store.delete("same")
    assert heard[-1] == Delete("same")
    store.close()


def test_a_second_store_on_the_same_folder_is_refused(store: Store, tmp_path: Path) -> None:
    store.put([item("a")])
    with pytest.raises(StorageError, match="in use by another process"):
        Store(tmp_path, "f", 3, ignore)


def test_the_folder_can_be_opened_again_once_it_is_closed(tmp_path: Path) -> None:
    first = Store(tmp_path, "f", 3, ignore)
    first.put([item("a")])
    first.close()
    second = Store(tmp_path, "f", 3, ignore)
    assert second.get("a").id == "a"
    second.close()


def test_a_folder_of_another_model_is_refused_and_both_are_named(tmp_path: Path) -> None:
    Store(tmp_path, "first-print", 3, ignore).close()
    with pytest.raises(FingerprintMismatch, match=r"first-print.*second-print.*--data"):
        Store(tmp_path, "second-print", 3, ignore)
    Store(tmp_path, "first-print", 3, ignore).close()


def test_a_damaged_vector_is_named_when_it_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path, "f", 3, ignore)
    store.put([item("good"), item("bad")])
    store.close()
    with sqlite3.connect(tmp_path / "items.sqlite3") as connection:
        connection.execute("UPDATE items SET vector = zeroblob(12) WHERE id = 'bad'")
    connection.close()
    store = Store(tmp_path, "f", 3, ignore)
    with pytest.raises(StorageError, match="'bad' is damaged"):
        list(store.vectors())
    store.close()


def test_a_full_disk_fails_the_write_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count = 16")  # SQLite then says that the disk is full
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    store = Store(tmp_path, "f", 3, ignore)
    store.put([item("kept")])
    large = Item("large", "image", np.ones(3, np.float32), "{}", None, bytes(200_000))
    with pytest.raises(StorageError, match="full"):
        store.put([large])
    assert store.get("kept").id == "kept"
    store.put([item("after")])
    assert store.get("after").id == "after"
    store.close()


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Store(tmp_path / "file", "f", 3, ignore)


def test_a_database_that_is_none_is_refused_and_the_lock_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "items.sqlite3").write_bytes(b"not a database at all" * 100)
    for _ in range(2):
        with pytest.raises(StorageError, match="not a database"):
            Store(tmp_path, "f", 3, ignore)
