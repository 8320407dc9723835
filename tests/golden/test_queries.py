"""Golden query hierarchies; see README.md for how they were made."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from core.queries import WEIGHTS, build_queries, split_phrases, split_sentences

GOLDEN = json.loads(Path(__file__).with_name("queries.json").read_text(encoding="utf-8"))

cases = pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])


@cases
def test_the_hierarchy_is_the_papers(case: dict[str, Any]) -> None:
    queries = build_queries(case["caption"], case["boxes"])
    assert [asdict(query) for query in queries] == case["paper"]


@cases
def test_without_the_cap_all_queries_stay(case: dict[str, Any]) -> None:
    queries = build_queries(case["caption"], case["boxes"], limit=None)
    assert [asdict(query) for query in queries] == case["full"]


@cases
def test_the_caption_is_split_as_in_the_paper(case: dict[str, Any]) -> None:
    assert split_sentences(case["caption"]) == case["sentences"]
    assert split_phrases(case["caption"]) == case["phrases"]


def test_the_weights_are_the_papers() -> None:
    assert GOLDEN["weights"] == WEIGHTS
