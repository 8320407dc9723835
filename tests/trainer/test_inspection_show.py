"""`hyper3 data show`: what a drawing holds, and that no sample stops it."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from core.cli import build_app
from core.errors import ConfigError, DataError
from core.queries import build_queries
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import encode_jpeg
from trainer.data.shards import find_shards
from trainer.inspection.page import write_page
from trainer.inspection.panel import Panel, panel_of
from trainer.inspection.samples import Found, named, some_of
from trainer.inspection.tree import outline
from trainer.inspection.wrap import width, wrap
from trainer.sections import DataSection

OPTIONS = DataSection(train="unused", side=32)
CAPTION = "Two dogs run along a wide beach. One of them, the brown one, carries a stick."


def noise(width: int, height: int, seed: int = 0) -> bytes:
    return encode_jpeg(np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8))


def panel(sample: Sample | None, options: DataSection = OPTIONS, fault: str = "") -> Panel:
    return panel_of(Found(Path("a.tar"), sample, fault), options, np.random.default_rng(0))


def drawn(path: Path, *panels: Panel) -> tuple[int, int]:
    """The size of the page."""
    write_page(path, panels)
    with Image.open(path) as picture:
        picture.load()
        return picture.size


def test_crops_are_those_that_are_stored_or_are_cut_from_the_whole() -> None:
    red, blue = (
        encode_jpeg(np.full((40, 40, 3), colour, np.uint8)) for colour in ((250, 0, 0), (0, 0, 250))
    )
    box = (0.5, 0.0, 1.0, 1.0)
    crops = panel(
        Sample("p", red, "A text.", (Part(blue, "stored"), Part(None, "cut", None, box)))
    ).crops
    assert [crop.text for crop in crops] == ["stored", "cut"]
    assert [crop.box for crop in crops] == [None, box]
    stored, cut = (np.asarray(crop.pixels).reshape(-1, 3) for crop in crops)
    assert stored.shape == (32 * 32, 3)
    assert np.median(stored, axis=0).argmax() == 2
    assert np.median(cut, axis=0).argmax() == 0


def test_queries_are_those_of_training_and_those_beyond_the_limit_are_counted() -> None:
    sample = Sample("p", noise(8, 8), CAPTION, (Part(noise(8, 8), "a brown dog"),))
    for limit in (1, 4, 64):
        found = panel(sample, OPTIONS.model_copy(update={"max_queries": limit}))
        expected = build_queries(CAPTION, ["a brown dog"], limit=limit)
        assert list(found.queries) == expected
        assert found.beyond == len(build_queries(CAPTION, ["a brown dog"], limit=None)) - len(
            expected
        )


def test_of_too_many_parts_a_random_few_are_taken_and_queries_point_at_them() -> None:
    parts = tuple(Part(noise(8, 8), f"thing {number}") for number in range(9))
    found = panel(Sample("p", noise(8, 8), "Things.", parts))
    taken = {number for number, crop in enumerate(found.crops) if crop.is_taken}
    assert len(found.crops) == 9
    assert len(taken) == OPTIONS.max_parts
    boxes = [query for query in found.queries if query.kind == "text_box"]
    assert boxes
    assert all(query.text == f"thing {query.source_part}" for query in boxes)
    assert {query.source_part for query in boxes} <= taken


def test_what_training_would_leave_out_is_said() -> None:
    whole = noise(16, 16)
    assert panel(Sample("p", b"<html>", "A text.", ())).faults[0].startswith("unreadable image")
    assert panel(Sample("p", whole, "", ())).faults == ("empty caption",)
    assert (
        "part 1 has an empty phrase"
        in panel(Sample("p", whole, "A.", (Part(whole, ""),))).faults[0]
    )
    assert "part 1" in panel(Sample("p", whole, "A text.", (Part(b"", "dog"),))).faults[0]
    assert panel(None, fault="sample 7: broken").faults == ("sample 7: broken",)


def test_a_page_takes_any_sample(tmp_path: Path) -> None:
    """Letters that no font has, mathematics, marks of Rich, many parts, bad ones, long texts."""
    texts = [
        "犬が浜辺を走る。" * 9, "🐕🏖️ a dog 👩‍👩‍👧 at sea", "כלב רץ על החוף كلب",
        "$x^2 [bold]{\\frac", "\0\a\x1b[31m", "word" * 99, "a " * 300, "\u0301\u200f",
    ]  # fmt: skip
    place = (0.1, 0.1, 0.4, 0.9)
    parts = tuple(Part(None, text, None, place) for text in texts)
    all_queries = OPTIONS.model_copy(update={"max_queries": 64})
    panels = [
        panel(Sample(texts[0], noise(90, 9), ". ".join(texts), parts), all_queries),
        panel(Sample("p", b"", "A dog.", (Part(b"", "a dog"), parts[0]))),
        panel(Sample("p", noise(9, 90), "", ())),
        panel(None, fault="sample 7: no picture " * 40),
    ]
    across, high = drawn(tmp_path / "page.png", *panels)
    assert across > 1_000
    assert high > across


def test_letters_that_no_font_has_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letter = "\U00014400"  # of Anatolia, three thousand years ago
    with caplog.at_level("WARNING"):
        drawn(
            tmp_path / "page.png", panel(Sample("p", noise(9, 9), f"A {letter}. B {letter}.", ()))
        )
    assert [letter in said for said in caplog.messages] == [True]
    caplog.clear()
    with caplog.at_level("WARNING"):
        drawn(tmp_path / "page.png", panel(Sample("p", noise(9, 9), "A café.", ())))
    assert not caplog.messages


def test_a_name_of_another_kind_of_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.jpg: a PNG is written"):
        write_page(tmp_path / "a.jpg", [panel(None, fault="no tar")])
    assert not list(tmp_path.iterdir())


def test_a_page_of_nothing_but_a_broken_shard_is_small(tmp_path: Path) -> None:
    _, high = drawn(tmp_path / "page.png", panel(None, fault="no tar"))
    assert high < 300


def test_the_outline_has_each_query_once_below_its_parent() -> None:
    queries = build_queries(
        CAPTION, ["a brown dog", "a stick"], limit=None, phrase_parent="containing"
    )
    lines, high = outline(queries, 5.0)
    assert sorted(line.query.text for line in lines) == sorted(query.text for query in queries)
    heights = [line.y for line in lines]
    assert heights == sorted(heights)
    assert heights[-1] < high
    for line in lines:
        if line.query.parent >= 0:
            assert line.above is not None
            parent = next(other for other in lines if other.query == queries[line.query.parent])
            assert line.above == (parent.x, parent.y)
            assert line.x > parent.x


@given(st.text(max_size=300), st.integers(4, 40), st.integers(1, 4))
def test_wrapped_lines_fit_and_lose_nothing_unless_they_say_so(
    text: str, columns: int, most: int
) -> None:
    lines = wrap(text, columns, most)
    assert 1 <= len(lines) <= most
    assert all(width(line) <= columns + 2 for line in lines)
    whole = wrap(text, columns, 1_000)
    if len(whole) <= most:
        assert lines == whole
    else:
        assert lines[-1].endswith("…")


def test_random_samples_come_from_as_many_shards_as_possible(shards: Path) -> None:
    found = some_of(find_shards(str(shards)), 6, np.random.default_rng(0))
    assert len({(each.shard, each.sample.key) for each in found if each.sample}) == 6
    assert sorted(each.shard.name for each in found) == ["00000.tar"] * 3 + ["00001.tar"] * 3
    assert found == some_of(find_shards(str(shards)), 6, np.random.default_rng(0))


def test_a_sample_is_found_by_its_key_or_its_place(shards: Path) -> None:
    paths = find_shards(str(shards))
    found = named(paths, ["00001000002", "0", "14"])
    assert [each.sample.key for each in found if each.sample] == [
        "00001000002",
        "00000000000",
        "00001000002",
    ]
    for name in ("24", "00009000000", "other"):
        with pytest.raises(DataError, match=f"no sample {name} among 24"):
            named(paths, [name])


def test_a_broken_shard_is_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(b"no tar" * 99)
    with tarfile.open(tmp_path / "1.tar", "w") as tar:
        entry = tarfile.TarInfo("7.child.txt")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    found = some_of(find_shards(str(tmp_path)), 2, np.random.default_rng(0))
    faults = {each.shard.name: each.fault for each in found}
    assert faults["0.tar"] == "not a tar of samples: no tar header at byte 0"
    assert faults["1.tar"].startswith("sample 7: missing or broken member")


def test_the_command_draws_what_a_recipe_takes(shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages" / "a.png"
    words = ["data", "show", str(shards), "--out", str(out), "--sample", "3", "--recipe", "demo"]
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 0, result.output
    assert "1 sample" in result.output
    with Image.open(out) as picture:
        assert picture.format == "PNG"


def test_the_same_seed_draws_the_same_picture(shards: Path, tmp_path: Path) -> None:
    pages = [tmp_path / name for name in ("a.png", "b.png")]
    for page in pages:
        write_shard_page(shards, page)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def write_shard_page(shards: Path, page: Path) -> None:
    rng = np.random.default_rng(1)
    found = some_of(find_shards(str(shards)), 2, rng)
    write_page(page, [panel_of(each, OPTIONS, rng) for each in found])
