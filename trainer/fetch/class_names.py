"""The names of classes: as the data set has them, and as published comparisons write them."""

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from trainer.fetch.draft import Classes

_CLIP_BENCHMARK = {
    "caltech101": "caltech101",
    "country211": "country211",
    "eurosat": "eurosat",
    "flowers102": "flowers",
}
"""Data sets whose published names are those of the package clip-benchmark, and its key of each."""


def tidy(name: str) -> str:
    """The name in a folder's: ``001.Black_footed_Albatross`` is "Black footed Albatross"."""
    return re.sub(r"^\d+\.", "", name).replace("_", " ").replace("/", " ").strip()


def same_name(name: str) -> str:
    """What two spellings of one name have in common: its letters and digits, in lower case."""
    return re.sub(r"[\W_]", "", tidy(name).casefold())


def variants(name: str, own: Sequence[str], origin: str) -> Classes:
    """The names of the classes of a data set, the published ones first.

    Args:
        name: Of the data set.
        own: Its own names, in the order of the classes.
        origin: Where these came from.
    """
    own = tuple(own)
    published = clip_benchmark(name)
    if published == own:
        return Classes({"data set": own}, {"data set": f"{origin}; clip-benchmark has the same"})
    if published is None or len(published) != len(own):
        return Classes({"data set": own}, {"data set": origin}, warnings=_lacking(name, own))
    differing = sum(a != b for a, b in zip(published, own, strict=True))
    return Classes(
        {"clip-benchmark": published, "data set": own},
        {"clip-benchmark": "the package clip-benchmark, English names", "data set": origin},
        notes=(f"{differing:,} of {len(own):,} names differ between the two variants.",),
    )


def clip_benchmark(name: str) -> tuple[str, ...] | None:
    """The English names in the package clip-benchmark; None if it is not there or has none."""
    if name not in _CLIP_BENCHMARK:
        return None
    spec = find_spec("clip_benchmark")  # found, not imported: only its data are wanted
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / "datasets" / "en_classnames.json"
    if not file.is_file():
        return None
    return tuple(json.loads(file.read_text(encoding="utf-8"))[_CLIP_BENCHMARK[name]])


def _lacking(name: str, own: Sequence[str]) -> tuple[str, ...]:
    if name not in _CLIP_BENCHMARK or name == "flowers102":  # whose own names are the published
        return ()
    warning = (
        f"the classes have the data set's own names, as {own[0]!r}; for the published ones "
        f"`pip install --no-deps clip-benchmark` and fetch {name} again with --force"
    )
    return (warning,)
