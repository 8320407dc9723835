"""The bodies of requests and answers."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator

from core.image import Preprocess

Format = Literal["lorentz", "tangent", "space", "poincare"]
"""How a vector is written: the point with its time first; the tangent at the origin; the point
without its time; the point in the Poincaré ball."""

GivenFormat = Literal["lorentz", "tangent", "space"]
OnError = Literal["fail", "skip"]
Extra = Literal["metadata", "vector", "entailment", "radius"]

# Checked item by item later: half of a surrogate pair must not spoil its neighbours.
Text = InstanceOf[str]
ImageText = Annotated[
    InstanceOf[str], Field(description="Base64 of an image file, or a data URI of it.")
]
Claim = Annotated[
    str | None, Field(description="Of the model that made the vectors; 409 if it is another.")
]


class Body(BaseModel):
    """A request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbedRequest(Body):
    """Texts and images to embed."""

    texts: list[Text] = Field([], examples=[["a red apple"]])
    images: list[ImageText] = []
    format: Format = "lorentz"
    preprocess: Preprocess = "retrieval"
    truncate: bool = Field(default=True, description="Whether texts over the context are cut.")
    on_error: OnError = Field("fail", description="Whether one bad item fails the request.")


class SearchRequest(Body):
    """What to search for: exactly one of text, image, id and vector."""

    text: Text | None = Field(None, examples=["a red apple"])
    image: ImageText | None = None
    id: str | None = Field(None, description="Of a stored item; it is its own first hit.")
    vector: list[float] | None = None
    format: GivenFormat = Field("lorentz", description="Of the vector.")
    k: int = Field(10, ge=1)
    max_distance: float | None = Field(None, ge=0)
    with_: list[Extra] = Field([], alias="with", description="What each hit carries besides.")
    preprocess: Preprocess = "retrieval"
    truncate: bool = True
    fingerprint: Claim = None
    curvature: float | None = None

    @model_validator(mode="after")
    def _has_one_query(self) -> "SearchRequest":
        _check_one(self, "text", "image", "id", "vector")
        return self


class ClassifyRequest(Body):
    """Images and texts to name with one of the labels."""

    images: list[ImageText] = []
    texts: list[Text] = []
    labels: list[Text] = Field(min_length=1, examples=[["apple", "dog", "aeroplane"]])
    templates: list[Text] | None = Field(
        None,
        min_length=1,
        description="{} stands for the label, {a} for the label with its article.",
        examples=[["a photo of {a}"]],
    )
    multi_label: bool = Field(
        default=False, description="Scores that stand alone (-distance) instead of probabilities."
    )
    top: int | None = Field(None, ge=1, description="How many labels come back; default all.")
    preprocess: Preprocess = "classification"
    on_error: OnError = "fail"


class NewItem(Body):
    """An item to store: exactly one of text, image and vector."""

    id: Text = Field(description="1 to 512 bytes.", examples=["photos/apple.jpg"])
    text: Text | None = None
    image: ImageText | None = None
    vector: list[float] | None = None
    format: GivenFormat = Field("lorentz", description="Of the vector.")
    metadata: InstanceOf[dict] = Field({}, json_schema_extra={"type": "object"})  # type: ignore[type-arg]

    @model_validator(mode="after")
    def _has_one_source(self) -> "NewItem":
        _check_one(self, "text", "image", "vector")
        return self


class PutRequest(Body):
    """Items to insert, or to replace where their id is there."""

    items: list[NewItem]
    preprocess: Preprocess = Field("retrieval", description="Of the images: how each is squared.")
    on_error: OnError = "fail"
    fingerprint: Claim = None
    curvature: float | None = None


class Geometry(BaseModel):
    """The space of all vectors of an answer."""

    model: Literal["lorentz"] = "lorentz"
    curvature: float = Field(description="c: the space has constant curvature -c.")
    dim: int = Field(description="A point has one value more.")
    time_index: Literal[0] = 0


class Fault(BaseModel):
    """What is wrong with one item, or one field."""

    code: str
    detail: str
    index: int | None = Field(None, description="Within its list in the request.")
    kind: str | None = Field(None, description="Which list: text, image or item.")
    id: str | None = None
    field: str | None = None


class Problem(BaseModel):
    """RFC 9457: why a request was refused."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[Fault] | None = None


class Answer(BaseModel):
    """What every answer with vectors or distances says of its model."""

    fingerprint: str
    geometry: Geometry


class EmbeddedItem(BaseModel):
    """One vector; a text also says how many tokens it had."""

    kind: Literal["text", "image"]
    index: int
    vector: list[float]
    tokens: int | None = None
    truncated: bool | None = None


class EmbedAnswer(Answer):
    """Vectors of the texts, then of the images, in the order they were sent."""

    format: Format
    results: list[EmbeddedItem]
    errors: list[Fault]


class Entailment(BaseModel):
    """How far one entails the other, 0 to 1, both ways round."""

    general_query_specific_item: float
    general_item_specific_query: float


class Hit(BaseModel):
    """One neighbour."""

    id: str
    distance: float
    score: float
    metadata: dict[str, Any] | None = None
    vector: list[float] | None = None
    radius: float | None = None
    entailment: Entailment | None = None


class Query(BaseModel):
    """What was searched for."""

    radius: float
    vector: list[float] | None = None
    tokens: int | None = None
    truncated: bool | None = None


class SearchAnswer(Answer):
    """Hits, nearest first; equal distances in the order of their ids."""

    query: Query
    hits: list[Hit]


class LabelScore(BaseModel):
    """One label; `probability` unless multi_label was asked for."""

    label: str
    score: float
    probability: float | None = None


class Named(BaseModel):
    """One thing's labels, best first."""

    kind: Literal["text", "image"]
    index: int
    labels: list[LabelScore]


class ClassifyAnswer(Answer):
    """Labels of the images, then of the texts, in the order they were sent."""

    templates: list[str]
    results: list[Named]
    errors: list[Fault]


class PutAnswer(Answer):
    """How many items are now durable, and what was wrong with the rest."""

    stored: int
    count: int = Field(description="Items of the store.")
    errors: list[Fault]


class StoredItem(Answer):
    """One item."""

    id: str
    kind: Literal["image", "text", "vector"]
    metadata: dict[str, Any]
    text: str | None = None
    has_image: bool
    radius: float
    vector: list[float]


class ListedItem(BaseModel):
    """One item of a page."""

    id: str
    kind: Literal["image", "text", "vector"]
    metadata: dict[str, Any]


class Page(BaseModel):
    """Some items in the order of their ids."""

    count: int = Field(description="Items of the store.")
    items: list[ListedItem]
    cursor: str | None = Field(description="Send it back for the next page; null at the end.")


class Readiness(BaseModel):
    """Whether the service can do its work; a check that fails gives its reason."""

    ready: bool
    checks: dict[str, str]


def _check_one(body: Body, *names: str) -> None:
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        what = "none" if not given else " and ".join(given)
        raise ValueError(f"send exactly one of {', '.join(names)}; got {what}")
