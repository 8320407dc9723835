"""The two rules beside the paper's: the sentence above a phrase, and where a phrase ends."""

from core.queries import NO_PARENT, Query, build_queries, split_phrases

CAPTION = "A dog runs, tail up. A black cat sleeps near a warm stove; it snores"


def parents(queries: list[Query]) -> dict[str, str]:
    """The text above each phrase."""
    return {query.text: queries[query.parent].text for query in queries if query.kind == "phrase"}


def test_a_phrase_stands_below_the_sentence_it_was_cut_from() -> None:
    queries = build_queries(
        CAPTION, [], None, phrase_parent="containing", phrases_end_at_sentences=True
    )
    assert parents(queries) == {
        "A dog runs": "A dog runs, tail up.",
        "tail up": "A dog runs, tail up.",
        "A black cat sleeps": "A black cat sleeps near a warm stove;",
        "a warm stove": "A black cat sleeps near a warm stove;",
    }  # "it snores" is a sentence already


def test_a_phrase_over_a_sentence_end_stands_below_the_sentence_where_it_starts() -> None:
    queries = build_queries(CAPTION, [], None, phrase_parent="containing")
    assert parents(queries) == {
        "A dog runs": "A dog runs, tail up.",
        "tail up A black cat sleeps": "A dog runs, tail up.",
        "a warm stove": "A black cat sleeps near a warm stove;",
    }


def test_each_window_of_a_long_run_has_a_sentence_of_its_own() -> None:
    queries = build_queries(
        "One two three four. five six seven eight nine ten", [], None, phrase_parent="containing"
    )
    assert parents(queries) == {
        "One two three four five six": "One two three four.",
        "nine ten": "five six seven eight nine ten",
    }  # the window between is the second sentence


def test_below_the_caption_stands_a_phrase_of_a_sentence_that_is_no_query() -> None:
    sixth = "One a. Two b. Three c. Four d. Five e. Six f, seven g"
    queries = build_queries(
        sixth, [], None, phrase_parent="containing", phrases_end_at_sentences=True
    )
    assert parents(queries)["seven g"] == sixth

    repeated = "Red sky, calm sea. Red sky, calm sea."
    queries = build_queries(repeated, [], None, phrase_parent="containing")
    assert parents(queries) == {
        "Red sky": "Red sky, calm sea.",
        "calm sea Red sky": "Red sky, calm sea.",
        "calm sea": repeated,
    }


def test_a_caption_that_starts_with_line_breaks_loses_no_parent() -> None:
    queries = build_queries("\n\n ab, c d\r\nx, y z", [], None, phrase_parent="containing")
    assert parents(queries) == {"c d x": "ab, c d", "y z": "x, y z"}


def test_the_cap_leaves_no_phrase_without_its_sentence() -> None:
    for limit in range(1, 9):
        queries = build_queries(CAPTION, ["a tail"], limit, phrase_parent="containing")
        assert len(queries) <= limit
        assert all(query.parent < place for place, query in enumerate(queries))


def test_a_sentence_end_ends_a_phrase_when_asked() -> None:
    caption = "A man waves. And a boy jumps!\nthe end"
    assert split_phrases(caption) == ["A man waves", "a boy jumps the end"]
    assert split_phrases(caption, end_at_sentences=True) == [
        "A man waves",
        "a boy jumps",
        "the end",
    ]
    assert split_phrases("a 3.5 inch disk", end_at_sentences=True) == ["a 3 5 inch disk"]


def test_one_sentence_is_cut_the_same_by_every_rule() -> None:
    caption = "two children, one with a kite, run along the beach under a grey sky."
    paper = build_queries(caption, ["a kite"], None)
    other = build_queries(
        caption, ["a kite"], None, phrase_parent="containing", phrases_end_at_sentences=True
    )
    assert other == paper
    assert paper[0].parent == NO_PARENT
