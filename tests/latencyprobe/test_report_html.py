"""report/html.py: what a browser gets. Nothing that a report holds becomes markup."""

import io
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from latencyprobe import stages
from latencyprobe.report import choosing, html, table
from latencyprobe.report.model import BadStage, BurnDown, LatencyReport, Stage
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable
from tests.latencyprobe.html_page import (
    Parsed,
    assert_alone,
    assert_links_lead_somewhere,
    assert_only_text,
    assert_readable_without_seeing,
)
from tests.latencyprobe.report_examples import HOSTILE, IDLE, RICH, SLOW, document, hostile, many

ROOT = Path(__file__).parents[2]
TRACES = "http://jaeger:16686/trace/{traceId}"


class Page(Parsed):
    """The page of these reports."""

    def __init__(self, reports: list[LatencyReport], trace_url: str = TRACES) -> None:
        super().__init__(html.render(reports, trace_url))


REPORTS = {
    "none": [],
    "no objectives": [document()],
    "rich and idle": [document(RICH, IDLE), document(IDLE, namespace="bank")],
    "256": [many()],
    "long names": [document(replace(RICH, probe="p" * 63, objective="o" * 63), namespace="n" * 63)],
    "hostile": [hostile()],
}
every = pytest.mark.parametrize("name", REPORTS)


@cache
def page_of(name: str) -> Page:
    return Page(REPORTS[name])


@every
def test_page_is_well_formed_and_its_links_lead_somewhere(name: str) -> None:
    page = page_of(name)
    assert page.source.startswith("<!doctype html>\n<html lang=")
    assert_links_lead_somewhere(page)


@every
def test_page_needs_nothing_else_and_runs_nothing(name: str) -> None:
    assert_alone(page_of(name), "http://jaeger:16686/trace/")


@every
def test_page_can_be_read_without_seeing_it(name: str) -> None:
    page = page_of(name)
    assert_readable_without_seeing(page)
    assert len(page.all("article")) == sum(len(one.results) for one in REPORTS[name])


def test_every_figure_of_the_table_is_on_the_page() -> None:
    shown = [document(RICH, IDLE)]
    file = io.StringIO()
    table.render(shown[0], Console(file=file, width=200), "shop")
    figures = {word.strip("();:,×") for word in file.getvalue().split() if any(c.isdigit() for c in word)}
    text = Page(shown).text
    assert len(figures) > 50
    assert [] == sorted(figure for figure in figures if figure not in text)


@pytest.mark.parametrize(
    "said",
    [
        "0 of 2 objectives met; worst: checkout/fast is Violated",
        "as of 2026-09-21 14:13:00 UTC",
        "10.2× spent; the budget ends at the line",
        "Burn-down what was left of the budget, since 2026-09-20 14:13 UTC",
        "28d beforenow: 10.2× spent",
        "budget left46.5 %10.2× spent",
        "bad events31 of 58,000612 of 60,000",
        "mostly burned byserver_process 80.6 %network 70.4 %",
        "812ms above",
        "no events in 5m",
        "bytes of the slowest were held by the server's kernel: Nagle, until the client's ACK",
        "one turn that overlaps the next",
        "time not measured",
        "63.43ms, mostly network 41.2ms",
        "2 segments were sent again after a timeout",
        "waited for shop/redis:6379 ×3, 17.1ms",
        "what neither host accounts for",
        "needs 100 events to judge, has 0",
    ],
)
def test_page_says(said: str) -> None:
    assert said in " ".join(page_of("rich and idle").text.split())


def test_no_line_parts_a_figure_from_its_unit() -> None:
    assert [] == re.findall(
        r"\d %", page_of("rich and idle").source.partition('<ul class="notes"')[2].partition("</ul>")[0]
    )


def test_the_page_of_a_moment_that_is_over_says_then() -> None:
    of_now, of_then = (html.render([document(RICH)], past=past) for past in (False, True))
    assert ("<span>now: 10.2× spent" in of_now, "<span>then: 10.2× spent" in of_then) == (True, True)
    assert not re.search(r"\bnow\b", of_then.partition("</style>")[2])


def test_hostile_text_is_only_text_and_nothing_turns_it_around() -> None:
    page = page_of("hostile")
    assert_only_text(page, printable(HOSTILE))
    assert "{{ 7*7 }}" in page.text


@pytest.mark.long
@settings(max_examples=50)
@given(st.text(min_size=1, max_size=80))
def test_any_name_is_shown_as_it_is(name: str) -> None:
    slow = replace(SLOW, peer=name, trace_id=name, stages=(Stage(name, "1ms"),))
    page = Page([document(replace(RICH, objective=name, slowest=(slow,)), namespace=name)])
    assert printable(name) in page.text
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in page_of("rich and idle").tags}


def test_traces_are_links_only_where_an_address_is_given() -> None:
    found = {one["href"] for one in Page([document(RICH)]).all("a")}
    assert {TRACES.replace("{traceId}", one * 32) for one in ("5", "d")} <= found
    without = Page([document(RICH)], trace_url="")
    assert "5" * 32 in without.text
    assert all(str(one["href"]).startswith("#") for one in without.all("a"))


def test_objective_without_figures_has_no_pictures_of_them() -> None:
    article = Page([document(IDLE)]).source.partition("<article")[2].partition("</article>")[0]
    assert "<svg" not in article
    assert "<table" not in article


def test_too_few_events_have_no_budget_and_no_alert() -> None:
    article = (
        Page([document(replace(RICH, state=State.NO_DATA))]).source.partition("<article")[2].partition("</article>")[0]
    )
    assert "budget left" not in article.lower()
    assert "Error budget" not in article
    assert "Firing" not in article


def test_all_objectives_and_those_left_out_are_told() -> None:
    page = page_of("256")
    assert 256 == len(page.all("article"))
    assert "0 of 257 objectives met" in page.text
    assert "1 more objectives are not shown." in page.text


def test_stages_of_this_and_of_other_versions_have_a_colour() -> None:
    listed = tuple(BadStage(name, 1, "9", "1s") for name in (*stages.BY_NAME, "later"))
    page = Page([document(replace(RICH, bad_by_stage=listed))])
    used = {word for one in page.all("rect") for word in str(one["class"]).split() if word.startswith("k-")}
    assert {f"k-{stage.colour}" for stage in stages.BY_NAME.values()} | {"k-white"} <= used
    assert [] == [one for one in used if f".{one} {{ fill: var(" not in page.source]


@pytest.mark.parametrize("state", State)
def test_a_state_has_a_colour(state: State) -> None:
    page = Page([document(replace(RICH, state=state))])
    (article,) = page.all("article")
    assert f".{article['class']} {{ --state: var(--{article['class']}); }}" in page.source


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out(scheme: int) -> None:
    blocks = re.findall(r":root \{ ([^}]*--link[^}]*) \}", Page([]).source)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", blocks[scheme]))
    grounds = [luminance(colours[name]) for name in ("page", "card")]
    for name, colour in colours.items():
        if name in ("page", "card", "line", "track"):
            continue
        wanted = 3 if name.startswith("k-") else 4.5
        for ground in grounds:
            low, high = sorted((luminance(colour), ground))
            assert (high + 0.05) / (low + 0.05) >= wanted, name


def test_templates_go_into_the_wheel() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packed = {file for pattern in data["latencyprobe"] for file in (ROOT / "latencyprobe").glob(pattern)}
    others = {file for file in (ROOT / "latencyprobe").rglob("*.*") if file.suffix not in (".py", ".pyc")}
    assert others == packed != set()


def test_worst_is_linked_wherever_it_stands() -> None:
    calm = replace(RICH, objective="calm", state=State.MET)
    page = Page([document(calm, RICH)])
    assert "worst: checkout/fast is Violated" in " ".join(page.text.split())
    assert '<a href="#n1-2">checkout/fast</a> is' in page.source
    cut = Page([choosing.first(document(calm, RICH), 1)])
    assert "worst: checkout/fast is Violated" in " ".join(cut.text.split())
    assert "#n1-2" not in cut.source


def test_what_has_no_history_has_no_picture_of_it() -> None:
    young = replace(RICH, burn_down=BurnDown("2026-09-20T14:13:00Z", "6h", ("-920",)), week_before=None)
    source = Page([document(young)]).source
    assert "Burn-down" not in source
    assert "Against the week before" not in source
