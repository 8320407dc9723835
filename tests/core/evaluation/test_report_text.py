from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from core.evaluation.report.document import (
    Cautions,
    Code,
    Document,
    Listing,
    Plot,
    Section,
    Text,
    plain,
    words,
)
from core.evaluation.report.html import render_html
from core.evaluation.report.markdown import escape, render_markdown
from core.evaluation.report.svg import alone, inline

HOSTILE = (
    '<script>alert(1)</script> <img src=x onerror="alert(1)"> [a](javascript:alert(1)) '
    "![b](http://c) | `d` ```e``` **f** __g__ ~~h~~ $i$ @someone www.j.example https://k.example\n"
    "# l\n- m\u202e\x00"
)
SVG = '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><g/></svg>\n'

texts = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="`*_[]()<>&|~$#+-=.1! \\\n:/@aw", max_size=20),
    st.just(HOSTILE),
)


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_markdown(text: str) -> Page:
    return Page(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def everywhere(text: str) -> Document:
    blocks = (
        Text(text),
        Text(text, is_heading=True),
        Cautions((text,)),
        words(("name", "command"), [(text, text)], code=[1]),
        Listing(text, ((text, (text,)),)),
        Code(text, text),
        Plot("a-plot", text, inline(SVG)),
    )
    return Document(text, (Section(text, blocks),))


@given(texts)
def test_text_in_markdown_is_shown_as_it_is(text: str) -> None:
    page = read_markdown(f"| head |\n|---|\n| {escape(text)} |\n")
    assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    assert page.text.split() == ["head", *plain(text).split()]


@given(texts)
def test_a_paragraph_in_markdown_is_one_paragraph(text: str) -> None:
    page = read_markdown(render_markdown(Document("title", (Section("part", (Text(text),)),))))
    assert page.tags == ["h1", "h2", *["p"] * bool(plain(text))]
    assert page.text.split() == ["title", "part", *plain(text).split()]


@given(texts.filter(plain))
def test_a_page_holds_the_tags_of_the_report_alone(text: str) -> None:
    page = Page(render_html(everywhere(text)))
    assert page.tags == Page(render_html(everywhere("plain"))).tags
    assert not page.open


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    page = render_html(everywhere(HOSTILE))
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert " src=" not in page.replace("src=x", "")


def test_words_bring_their_heading_for_windows_too_narrow_for_columns() -> None:
    table = words(("model", "about"), [("m", "step 1")])
    page = render_html(Document("a", (Section("b", (table,)),)))
    assert '<td data-label="about">step 1</td>' in page
    assert "attr(data-label)" in page


def test_markdown_names_the_files_of_its_plots() -> None:
    assert "](plots/a-plot.svg)" in render_markdown(everywhere("a"))


def test_a_fence_is_longer_than_those_inside() -> None:
    code = Code("title", "```\nin\n```")
    text = render_markdown(Document("a", (Section("b", (code,)),)))
    assert "````\n```\nin\n```\n````" in text


def test_plain_text_has_no_control_characters_and_no_overrides_of_direction() -> None:
    assert plain(" a\u202eb\x00\t\nc\ud800 ") == "ab c"


def test_a_plot_alone_brings_its_colours_for_the_night_and_one_in_a_page_does_not() -> None:
    assert "prefers-color-scheme: dark" in alone(inline(SVG))
    assert "prefers-color-scheme" not in inline(SVG)
    assert inline(SVG).startswith("<svg")
