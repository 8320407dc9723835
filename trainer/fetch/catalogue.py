"""The data sets that are known, each with its terms and where it is to be had."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from core.errors import ConfigError
from core.evaluation.manifest import Family

TREE = "imagenet-tree"


class Archive(BaseModel):
    """A file to download."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    md5: str = ""
    """As its publisher or torchvision states it; "" where nobody does."""
    into: str = ""
    """Folder to unpack it in, below that of the data set."""
    inner: tuple[str, ...] = ()
    """Archives inside it that are to be unpacked too."""


class Entry(BaseModel):
    """What is known of a data set before anything is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    families: tuple[Family, ...] = ()
    split: str
    classes: int = 0
    """Official number of classes; 0 where there are none, or any will do."""
    test: int = 0
    """Official number of records; 0 where any will do."""
    size_gb: float = 0
    licence: str
    files: str
    """What ``--from`` takes."""
    images: str = ""
    """What ``--images`` takes; "" where pictures lie beside what describes them."""
    where: str = ""
    needs: str = ""
    """How the command goes on where files must be given."""
    archives: tuple[Archive, ...] = ()
    keeps_archive: bool = True
    """Whether the pictures stay where the archives were unpacked."""
    notes: str = ""


OWN = Entry(
    title="",
    families=("classification",),
    split="as given",
    licence="As its owner says",
    files="a folder per class",
    where="its owner",
    needs="--from FOLDER",
)
"""A data set of the user's own."""


@cache
def catalogue() -> Mapping[str, Entry]:
    """The known data sets by name."""
    content = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
    return {name: Entry.model_validate(fields) for name, fields in content.items()}


def entry_of(name: str, *, is_own: bool) -> Entry:
    """What is known of a data set, or `OWN` with the name as title where it is the user's.

    Raises:
        ConfigError: The name is unknown and not the user's, or it cannot name a folder.
    """
    known = catalogue().get(name)
    if known:
        return known
    if not is_own:
        close = " or ".join(near(name))
        hint = f"did you mean {close}? " if close else ""
        raise ConfigError(
            f"{name}: no data set of that name; {hint}`hyper3 data fetch --list` shows all, and "
            "`--from FOLDER` takes your own, a folder per class"
        )
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ConfigError(f"{name!r}: name your data set with letters, digits, - and _ alone")
    return OWN.model_copy(update={"title": name})


def near(name: str, likeness: float = 0.6) -> list[str]:
    """The known names that are spelt much like one that is not known, the nearest first."""
    return difflib.get_close_matches(name.lower(), catalogue(), n=3, cutoff=likeness)


def command(name: str) -> str:
    """The command that makes the folder of a data set."""
    return f"hyper3 data fetch {name} {catalogue().get(name, OWN).needs}".strip()
