"""report/markdown.py: what an issue gets, read back by a parser of Markdown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from latencyprobe.report import headline, markdown, notes, words
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable
from tests.latencyprobe.report_examples import HOSTILE, IDLE, RICH, document, hostile, many

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TRACES = "http://jaeger:16686/trace/{traceId}"


def tokens(source: str) -> list[Token]:
    """All tokens, those inside of lines too."""
    return [token for block in PARSER.parse(source) for token in (block, *(block.children or ()))]


def shown(source: str) -> str:
    """What a reader sees, without the word joiners."""
    kinds = ("text", "code_inline", "text_special")
    text = "".join(one.content if one.type in kinds else "\n" for one in tokens(source) if one.type != "inline")
    return text.replace("\u2060", "")


def cells(source: str) -> list[int]:
    """How many cells the rows of all tables have."""
    kinds = [token.type for token in tokens(source)]
    rows = " ".join(kinds).split("tr_open")[1:]
    return [row.count("th_open") + row.count("td_open") for row in rows]


def test_it_is_a_table_notes_and_the_slowest() -> None:
    source = markdown.render([document(RICH, IDLE)], TRACES)
    assert [5, 5, 5, 7, 7] == cells(source)
    text = shown(source)
    assert headline.headline(document(RICH, IDLE), "shop") in text
    for note in (*notes.told(RICH), *notes.told(IDLE)):
        assert note.text in text
    assert "waited for shop/redis:6379 ×3, 17.1ms" in text
    links = {str(token.attrs["href"]) for token in tokens(source) if token.type == "link_open"}
    assert {TRACES.replace("{traceId}", one * 32) for one in ("5", "d")} == links
    assert "<http" not in source


def test_ordinary_names_and_figures_need_no_escape() -> None:
    source = markdown.render([document(RICH, IDLE)])
    assert "\\" not in source
    assert "| Violated | checkout/fast | 98.98 % | 99.9 % | 10.2× spent |" in source.splitlines()


def test_hostile_text_is_shown_as_it_is_and_makes_no_markup() -> None:
    source = markdown.render([hostile()], TRACES)
    assert set(cells(source)) == {5, 7}
    assert printable(HOSTILE) in shown(source)
    kinds = {token.type for token in tokens(source)}
    assert kinds.isdisjoint(
        {"image", "html_block", "em_open", "fence", "code_block", "s_open", "hr", "blockquote_open"}
    )
    assert {"<br>"} == {token.content for token in tokens(source) if token.type == "html_inline"}
    assert all(
        str(token.attrs["href"]).startswith("http://jaeger:16686/trace/")
        for token in tokens(source)
        if token.type == "link_open"
    )


@pytest.mark.parametrize(
    "text",
    [
        *("# a", "- a", "+ a", "1. a", "1) a", "12.", "> a", "---", "***", "===", "~~~", "```", "    a".strip(), "#"),
        *(
            "*a*",
            "_a_",
            "a_b_c",
            "__a__",
            "[a](b)",
            "![a](b)",
            "<b>",
            "&amp;",
            "a|b",
            "\\",
            "\\|",
            "`a`",
            "~~a~~",
            "$a$",
        ),
        *("http://a.b", "www.a.b", "a@b.c", "@all", "#12", "!3", "%4", "99.9 %", "10.0× spent", "read_delay", "-920"),
    ],
)
def test_text_is_shown_as_it_is(text: str) -> None:
    assert text == shown(f"- {markdown.escaped(text)}").strip()
    assert text == shown(f"| a |\n| --- |\n| {markdown.escaped(text)} |").strip().split("\n")[-1].strip()


@pytest.mark.parametrize(
    "text", ["@all", "ask @all", "#12", "see #12", "!3", "me@example.com", "https://a.b", "www.a.b"]
)
def test_no_text_is_a_mention_a_reference_or_a_link(text: str) -> None:
    found = markdown.escaped(text)
    assert "\u2060" in found or "\\:" in found or "www\\." in found


@pytest.mark.parametrize("name", ["o", "o" * 63, "\\" * 63])
def test_report_of_256_objectives_fits_into_an_issue_and_says_what_it_leaves_out(name: str) -> None:
    listed = tuple(replace(one, objective=name) for one in many().results)
    source = markdown.render([document(*listed, omitted=1)], TRACES)
    assert len(source) < 65_000
    rows = source.count("| Violated | checkout/")
    noted = source.count("\n### ")
    assert f"{256 - rows + 1} more objectives are not shown." in source
    assert f"What else there is to know of {rows - noted} objectives found no room." in source
    assert noted >= 10


@pytest.mark.parametrize(("namespaces", "shown"), [(20, 20), (60, 60), (400, 60)])
@pytest.mark.parametrize("name", ["o", "\\" * 63])
def test_namespaces_share_the_room(namespaces: int, shown: int, name: str) -> None:
    listed = replace(many(), results=tuple(replace(one, objective=name) for one in many().results[:6]))
    reports = [replace(listed, metadata=replace(listed.metadata, namespace=f"n{i}")) for i in range(namespaces)]
    source = markdown.render(reports)
    assert len(source) < 65_000
    assert shown == source.count("\n## ") + source.startswith("## ")
    assert (f"{namespaces - shown} more namespaces found no room" in source) == (namespaces > shown)


def test_the_worst_namespaces_are_shown() -> None:
    met = replace(many(), results=(replace(RICH, state=State.MET),))
    reports = [replace(met, metadata=replace(met.metadata, namespace=f"n{i}")) for i in range(99)]
    reports.append(replace(many(), metadata=replace(met.metadata, namespace="worst")))
    assert "\n## worst: " in markdown.render(reports)


def test_empty_reports_say_what_to_do() -> None:
    assert words.no_objectives(document()) in shown(markdown.render([document()]))
    assert words.NO_REPORT in shown(markdown.render([]))


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\u2060"), max_size=40))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    kept = printable(text).split()
    assert kept == shown(f"- {markdown.escaped(text)}").split()
    assert [1, 1] == cells(f"| a |\n| --- |\n| {markdown.escaped(text)} |")
