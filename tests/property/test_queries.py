"""Laws of the query hierarchy, for any caption."""

from hypothesis import given
from hypothesis import strategies as st

from core.queries import WEIGHTS, build_queries

pieces = st.sampled_from(
    ["a dog", "red", " and ", "next to", "\n", ". ", "; ", ", ", "é", "it's", "A Dog", "(", " "]
)
captions = st.one_of(st.text(max_size=80), st.lists(pieces, max_size=20).map("".join))
boxes = st.lists(captions, max_size=40)
limits = st.one_of(st.none(), st.integers(1, 12))


@given(captions, boxes, limits)
def test_every_parent_comes_earlier_and_is_a_caption_or_a_sentence(
    caption: str, boxes: list[str], limit: int | None
) -> None:
    queries = build_queries(caption, boxes, limit)
    for index, query in enumerate(queries):
        assert -1 <= query.parent < index
        if query.parent >= 0:
            assert queries[query.parent].kind in ("caption", "sentence")


@given(captions, boxes, limits)
def test_the_capped_list_is_the_start_of_the_whole_one(
    caption: str, boxes: list[str], limit: int | None
) -> None:
    assert build_queries(caption, boxes, limit) == build_queries(caption, boxes, None)[:limit]


@given(captions, boxes)
def test_texts_are_normal_and_differ(caption: str, boxes: list[str]) -> None:
    queries = build_queries(caption, boxes, None)
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
