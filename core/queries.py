"""A caption and its boxes to the query hierarchy: the rules of Hyper3-CLIP, section 3.

::

    caption                      the root, weight 0
    ├── sentences                of the caption
    │   └── phrases              of the caption; children of the first sentence, or of their own
    └── text boxes               the parts' texts

Used in training for every sample, and for decomposed search.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

QueryKind = Literal["caption", "sentence", "text_box", "phrase"]
PhraseParent = Literal["first", "containing"]

WEIGHTS: dict[QueryKind, float] = {
    "caption": 0.0,
    "sentence": 1.0,
    "text_box": 0.75,
    "phrase": 0.5,
}

NO_PARENT = -1
NO_PART = -1

_MIN_CHARS = 3
_MAX_SENTENCES = 5  # fragments, counted before any is rejected
_MAX_BELOW_SENTENCES = 30  # text boxes and phrases together

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|[\r\n]+")
_PHRASE_END = re.compile(
    r"[,;:()]|\s+(?:and|with|near|beside|behind|under|above|around|next to)\s+", re.IGNORECASE
)
_PHRASE_OR_SENTENCE_END = re.compile(
    f"{_PHRASE_END.pattern}|{_SENTENCE_END.pattern}", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)?")

_LONGEST_PHRASE, _WINDOW, _STRIDE = 8, 6, 4


@dataclass(frozen=True, slots=True)
class Query:
    """A node of the hierarchy of one image."""

    text: str
    kind: QueryKind
    parent: int
    """Index of the more general node, always an earlier one; -1 for none."""
    weight: float
    """Reliability, as a factor of its losses."""
    source_part: int
    """Index of the box whose text it is; -1 for none."""


def build_queries(
    caption: str,
    boxes: Sequence[str],
    limit: int | None = 6,
    *,
    phrase_parent: PhraseParent = "first",
    phrases_end_at_sentences: bool = False,
) -> list[Query]:
    """The queries of an image: caption, sentences, text boxes, phrases, in this order.

    A text enters once (whatever its case) and only from three characters on. A caption that
    is too short gives no root, and then sentences and boxes have no parent.

    Args:
        caption: As it stands in the data, not normalised.
        boxes: The texts of the parts, in stored order.
        limit: The most queries that are kept, from the start; None keeps all.
        phrase_parent: The sentence above a phrase: "first" is the caption's first (the
            paper's rule), "containing" the one in which the phrase starts. The caption,
            where that sentence is no query.
        phrases_end_at_sentences: Whether a phrase ends where its sentence does; the paper's
            phrases run on.
    """
    queries: list[Query] = []
    seen: set[str] = set()

    def add(raw: str, kind: QueryKind, parent: int, source_part: int = NO_PART) -> bool:
        text = " ".join(raw.split())
        key = text.casefold()
        if len(text) < _MIN_CHARS or key in seen:
            return False
        seen.add(key)
        queries.append(Query(text, kind, parent, WEIGHTS[kind], source_part))
        return True

    root = 0 if add(caption, "caption", NO_PARENT) else NO_PARENT
    starts, sentences = _sentences(caption)
    above = [root] * len(sentences)  # the phrases of each
    for number, sentence in enumerate(sentences[:_MAX_SENTENCES]):
        if add(sentence, "sentence", root):
            above[number] = len(queries) - 1
    if phrase_parent == "first":
        above = [next((query for query in above if query != root), root)] * len(sentences)
    full = len(queries) + _MAX_BELOW_SENTENCES
    if limit is not None:
        full = min(full, limit)
    for part, box in enumerate(boxes):
        if len(queries) >= full:
            break
        add(box, "text_box", root, part)
    if len(queries) < full:
        for start, phrase in _phrases(caption, end_at_sentences=phrases_end_at_sentences):
            add(phrase, "phrase", above[bisect_right(starts, start) - 1])
            if len(queries) >= full:
                break
    return queries[:limit]


def split_sentences(caption: str) -> list[str]:
    """The non-empty fragments between sentence ends; the punctuation stays with its sentence."""
    return _sentences(caption)[1]


def split_phrases(caption: str, *, end_at_sentences: bool = False) -> list[str]:
    """Runs of 2 to 8 words between commas, brackets and connectors such as "next to".

    Longer runs become windows of up to six words, four apart. Words are of ASCII letters and
    digits with at most one hyphen or apostrophe inside. A sentence end does not end a phrase,
    unless ``end_at_sentences``.
    """
    return [text for _, text in _phrases(caption, end_at_sentences=end_at_sentences)]


def _sentences(caption: str) -> tuple[list[int], list[str]]:
    """Where each sentence starts in the caption, and its text."""
    found = [
        (start, sentence)
        for start, end in _between(_SENTENCE_END, caption)
        if (sentence := caption[start:end].strip())
    ]
    return [start for start, _ in found], [sentence for _, sentence in found]


def _phrases(caption: str, *, end_at_sentences: bool) -> Iterator[tuple[int, str]]:
    """Where each phrase starts in the caption, and its text."""
    ends = _PHRASE_OR_SENTENCE_END if end_at_sentences else _PHRASE_END
    for clause in _between(ends, caption):
        words = list(_WORD.finditer(caption, *clause))
        if len(words) > _LONGEST_PHRASE:
            windows = [words[at : at + _WINDOW] for at in range(0, len(words), _STRIDE)]
        else:
            windows = [words]
        for window in windows:
            if len(window) >= 2:
                yield window[0].start(), " ".join(word.group() for word in window)


def _between(ends: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Start and end of everything that stands between the matches."""
    start = 0
    for match in ends.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)
