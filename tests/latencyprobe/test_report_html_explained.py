"""report/html.py: the page of one RPC."""

from functools import cache

import pytest
from msgspec.structs import replace

from latencyprobe import stages
from latencyprobe.report import drawing, html
from latencyprobe.report.explanation import Explanation
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable
from tests.latencyprobe.explained_rpcs import CALL, CLIENT, HALF, JOINED, SERVER, explained
from tests.latencyprobe.html_page import (
    Parsed,
    assert_alone,
    assert_links_lead_somewhere,
    assert_only_text,
    assert_readable_without_seeing,
)
from tests.latencyprobe.report_examples import HOSTILE, RICH, SLOW, hostile

JAEGER = "http://jaeger:16686/trace/"
TRACES = f"{JAEGER}{{traceId}}"
CALLING = replace(HALF, waited_for=(CALL, replace(CALL, trace_id="e" * 32)))
SLOWER = "One took longer, 2s: latencyprobe explain -n shop ffff"
RPCS = {
    "both": explained((CLIENT, JOINED), (SERVER, CALLING), known=(CALL.trace_id,), said=SLOWER),
    "rich": explained((RICH, SLOW)),
    "no stages": explained((SERVER, replace(HALF, stages=(), error="ETIMEDOUT"))),
    "long names": explained((replace(CLIENT, probe="p" * 63, target="t" * 63), replace(JOINED, peer="n" * 253))),
    "hostile": explained(*((hostile().results[0], slow) for slow in hostile().results[0].slowest)),
}
every = pytest.mark.parametrize("name", RPCS)


@cache
def page_of(name: str, trace_url: str = TRACES) -> Parsed:
    return Parsed(html.explained(RPCS[name], trace_url))


@every
def test_page_is_one_file_that_everybody_can_read(name: str) -> None:
    page = page_of(name)
    assert page.source.startswith("<!doctype html>\n<html lang=")
    assert_links_lead_somewhere(page)
    assert_alone(page, JAEGER)
    assert_readable_without_seeing(page)


def told(found: Explanation) -> list[str]:
    """All that a terminal has of it."""
    lines = [line for half in found.halves for line in half.lines]
    said = [text for line in lines for text in (line.lead, line.said, line.command, line.elsewhere, line.trace_id)]
    halves = [
        text for half in found.halves for text in (half.duration, half.title, half.of.result.state.words, half.failed)
    ]
    rows = [text for half in found.halves for row in half.rows for text in row if isinstance(text, str)]
    return [found.trace_id, found.said, *halves, *rows, *said]


@every
def test_page_says_all_that_the_terminal_says(name: str) -> None:
    assert [] == [one for one in told(RPCS[name]) if printable(one) not in page_of(name).text]


def test_page_has_the_objective_of_each_half_and_the_command_that_shows_it_again() -> None:
    text = " ".join(page_of("both").text.split())
    assert 2 == text.count("objective p/")
    assert 2 == text.count("goal99 %")
    assert f"In a terminal: latencyprobe explain -n shop {JOINED.trace_id}" in text


def test_halves_lie_on_one_axis_below_which_its_time_stands() -> None:
    page = page_of("both")
    process = [one for one in page.all("rect") if str(one["class"]) == "k-red edge"]
    client, server = ([float(str(one[name]).rstrip("%")) for name in ("x", "width")] for one in process)
    assert client == pytest.approx(server, abs=0.01)
    assert ["0s", "50ms", "100ms"] == [text for text, _ in drawing.ticks(RPCS["both"].axis_ns)]
    assert "0s\n50ms\n100ms" in page.text.replace("\n\n", "\n")


def test_traces_are_links_only_where_an_address_is_given() -> None:
    linked = {one["href"] for one in page_of("both").all("a")}
    assert {f"{JAEGER}{one}" for one in (JOINED.trace_id, CALL.trace_id, "e" * 32)} <= linked
    assert all(str(one["href"]).startswith("#") for one in page_of("both", "").all("a"))
    assert "e" * 32 in page_of("both", "").text


def test_stages_that_are_drawn_are_explained_and_no_others() -> None:
    words = page_of("both").source.partition("<footer>")[2]
    shown = {*(one.name for one in stages.PAIR), "receive", "process"}
    assert shown == {name for name in stages.BY_NAME if f"</svg>{name}</dt>" in words}


def test_without_stages_there_is_no_picture_and_no_legend() -> None:
    source = page_of("no stages").source.partition("</style>")[2]
    assert "<svg" not in source
    assert "<ul" not in source
    assert "failed: ETIMEDOUT" in source


def test_hostile_text_is_only_text() -> None:
    assert_only_text(page_of("hostile"), printable(HOSTILE))


@pytest.mark.parametrize("state", State)
def test_a_half_has_the_colour_of_its_objectives_state(state: State) -> None:
    page = Parsed(html.explained(explained((replace(CLIENT, state=state), JOINED))))
    assert [f"half {drawing.state(state)}"] == [one["class"] for one in page.all("article")]
