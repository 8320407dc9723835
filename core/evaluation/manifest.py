"""What `hyper3 data fetch` says of a data set that it prepared."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MANIFEST = "manifest.json"
RECORDS = "test.jsonl"
TRAIN = "train.jsonl"

Family = Literal[
    "retrieval",  # captions
    "classification",  # class
    "multilabel",  # labels
    "chains",  # levels, from general to specific
    "pairs",  # a right caption against a wrong one
    "structure",  # boxes, or captions beside names.json: radii, cones, naming of parts
]
"""What the records of a data set allow to be measured."""


class DatasetManifest(BaseModel):
    """What a prepared folder is, as `hyper3 data fetch` wrote it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    name: str
    families: tuple[Family, ...] = Field(min_length=1)
    title: str
    split: str
    source: str = Field(description="Where it came from: an address or a folder.")
    source_state: str = Field("", description="Hash by which a change of that folder is noticed.")
    licence: str = Field(description="The terms, or where to read them.")
    images: str = Field(description="Folder of the pictures; relative to this one, or absolute.")
    counts: dict[str, int]
    classes: dict[str, tuple[str, ...]] = Field(
        {}, description="Names of the classes by variant; the first is the default."
    )
    classes_origin: dict[str, str] = Field({}, description="Where each variant came from.")
    prompts: str = Field("", description="The prompt set of `core.prompts` that is official here.")
    nodes: tuple[str, ...] = Field((), description="Of each class, its node in the tree.")
    tree: str = Field("", description="File of `parent child` lines.")
    positives: str = Field(
        "",
        description="JSON of further right answers: `image_to_text`, image id to caption ids, and "
        "`text_to_image`, caption id to image ids.",
    )
    notes: str = ""
    sha256: dict[str, str] = Field({}, description="Of the files of this folder, by name.")
