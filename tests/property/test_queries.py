"""Laws of the query hierarchy, for any caption."""

import re
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.queries import WEIGHTS, build_queries, split_phrases, split_sentences

pieces = st.sampled_from(
    ["a dog", "red", " and ", "next to", "\n", ". ", "; ", ", ", "é", "it's", "A Dog", "(", " "]
)
captions = st.one_of(st.text(max_size=80), st.lists(pieces, max_size=20).map("".join))
boxes = st.lists(captions, max_size=40)
limits = st.one_of(st.none(), st.integers(1, 12))
rules: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({
    "phrase_parent": st.sampled_from(["first", "containing"]),
    "phrases_end_at_sentences": st.booleans(),
})  # fmt: skip


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)?", text)


def stands_in(phrase: str, text: str) -> bool:
    """Whether the words of a phrase follow each other in a text."""
    run, whole = words(phrase), words(text)
    return any(whole[at : at + len(run)] == run for at in range(len(whole)))


@given(captions, boxes, limits, rules)
def test_every_parent_comes_earlier_and_is_a_caption_or_a_sentence(
    caption: str, boxes: list[str], limit: int | None, rule: dict[str, Any]
) -> None:
    queries = build_queries(caption, boxes, limit, **rule)
    for index, query in enumerate(queries):
        assert -1 <= query.parent < index
        if query.parent >= 0:
            assert queries[query.parent].kind in ("caption", "sentence")


@given(captions, boxes, limits, rules)
def test_the_capped_list_is_the_start_of_the_whole_one(
    caption: str, boxes: list[str], limit: int | None, rule: dict[str, Any]
) -> None:
    whole = build_queries(caption, boxes, None, **rule)
    assert build_queries(caption, boxes, limit, **rule) == whole[:limit]


@given(captions, boxes, rules)
def test_texts_are_normal_and_differ(caption: str, boxes: list[str], rule: dict[str, Any]) -> None:
    queries = build_queries(caption, boxes, None, **rule)
    texts = [query.text for query in queries]
    assert len({text.casefold() for text in texts}) == len(texts)
    for text in texts:
        assert len(text) >= 3
        assert text == " ".join(text.split())


@given(captions, boxes)
def test_a_query_knows_its_kind_its_weight_and_its_box(caption: str, boxes: list[str]) -> None:
    queries = build_queries(caption, boxes, None)
    kinds = [query.kind for query in queries]
    assert kinds == sorted(kinds, key=list(WEIGHTS).index)
    assert sum(kind in ("text_box", "phrase") for kind in kinds) <= 30
    for query in queries:
        assert query.weight == WEIGHTS[query.kind]
        if query.kind == "text_box":
            assert query.text == " ".join(boxes[query.source_part].split())
        else:
            assert query.source_part == -1


@given(captions, boxes, limits, st.booleans())
def test_the_rule_of_parents_changes_the_parents_of_phrases_alone(
    caption: str, boxes: list[str], limit: int | None, end: bool
) -> None:
    first = build_queries(caption, boxes, limit, phrases_end_at_sentences=end)
    own = build_queries(
        caption, boxes, limit, phrase_parent="containing", phrases_end_at_sentences=end
    )
    assert [
        replace(query, parent=paper.parent) if query.kind == "phrase" else query
        for query, paper in zip(own, first, strict=True)
    ] == first


@given(captions, boxes)
def test_the_words_of_a_phrase_stand_in_its_parent(caption: str, boxes: list[str]) -> None:
    queries = build_queries(
        caption, boxes, None, phrase_parent="containing", phrases_end_at_sentences=True
    )
    for query in queries:
        if query.kind == "phrase":
            assert stands_in(query.text, queries[query.parent].text)


@given(captions)
def test_no_phrase_runs_over_a_sentence_end_when_they_end_there(caption: str) -> None:
    sentences = split_sentences(caption)
    for phrase in split_phrases(caption, end_at_sentences=True):
        assert any(stands_in(phrase, sentence) for sentence in sentences)


@given(captions, boxes, limits, rules)
def test_one_sentence_is_cut_the_same_by_every_rule(
    caption: str, boxes: list[str], limit: int | None, rule: dict[str, Any]
) -> None:
    caption = re.sub(r"[.!?;\r\n]", " ", caption)
    assert build_queries(caption, boxes, limit, **rule) == build_queries(caption, boxes, limit)
