"""What the tests of every format need: prepare a place, read the samples back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.data.sample import Sample
from trainer.data.shards import find_shards, index_shards, read_sample
from trainer.prepare.run import prepare
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.find import find_source
from trainer.prepare.sources.source import Request

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run() -> Run:
    """Prepare a place: ``run(place, out, split=..., workers=..., side=...)`` -> its entry."""

    def run_it(place: Path | str, out: Path, **more: Any) -> dict[str, Any]:
        request = {
            key: more.pop(key) for key in ("split", "images", "captions", "grit") & more.keys()
        }
        source = find_source(Request(str(place), **request), more.pop("format", None))
        workers, say = more.pop("workers", 1), more.pop("say", lambda _: None)
        settings = PrepareSettings(**{"side": 48, "part_side": 24} | more)
        return prepare(source, out, settings, workers=workers, advance=lambda *_: None, say=say)

    return run_it


@pytest.fixture
def read() -> Callable[[Path], list[Sample]]:
    """The samples of a folder of shards, in stored order."""

    def read_it(folder: Path) -> list[Sample]:
        index = index_shards(find_shards(str(folder)))
        return [read_sample(index, number) for number in range(len(index))]

    return read_it
