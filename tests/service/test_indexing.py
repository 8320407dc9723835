"""What is indexed, and what the client refuses to send."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import DataError, RequestError, TextError
from service.client import Client
from service.commands.indexing import find_pictures, index_folder

Picture = Callable[..., bytes]
Launch = Callable[..., Any]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"image": "../secret.png"}', "leads out"),
        ('{"image": "a\\u0000.png"}', "leads out"),
        ('{"image": "a.png", "captions": {"en": "one"}}', "captions"),
        ('{"image": "a.png", "captions": "one"}', "captions"),
    ],
)
def test_a_wrong_record_is_named_by_its_line(line: str, reason: str, tmp_path: Path) -> None:
    records = tmp_path / "all.jsonl"
    records.write_text(f'{{"image": "a.png"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=rf"all\.jsonl:2: .*{reason}"):
        find_pictures(records, None)


def test_records_may_lie_apart_from_their_pictures(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    records = tmp_path / "all.jsonl"
    records.write_text('{"image": "deep/a.png", "captions": ["one", "two"]}', encoding="utf-8")
    (found,) = find_pictures(tmp_path / "photos", records)
    assert (found.id, found.path) == ("deep/a.png", tmp_path.resolve() / "photos/deep/a.png")
    assert found.metadata == {"caption": "one", "captions": ["one", "two"]}


def test_a_file_whose_name_is_not_utf8_is_left_out_and_counted(
    launch: Launch, picture: Picture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "good.png").write_bytes(picture())
    try:
        Path(os.fsdecode(os.fsencode(photos) + b"/caf\xe9.png")).write_bytes(picture())
    except OSError:
        pytest.skip("the file system takes only UTF-8 names")
    index_folder(photos, None, launch(tmp_path / "data").url, 10)
    said = capsys.readouterr().err
    assert "1 stored, 0 were there, 1 could not be used" in said
    assert r"'caf\udce9.png': the name of the file is not UTF-8" in said


def test_what_cannot_be_sent_is_refused_before_it_is_sent() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(TextError, match="ud800"):
            client.embed(["\ud800"])
        for wrong in (float("nan"), {1, 2}):
            with pytest.raises(RequestError, match="JSON"):
                client.put_items([{"id": "a", "text": "b", "metadata": {"x": wrong}}])
        with pytest.raises(RequestError, match="ud800"):
            client.item("\ud800")
