"""SVG, page and profile: well-formed, whole, and of nothing but themselves."""

import gzip
import json
import re
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.flame import html, pprof, svg
from latencyprobe_agent.flame.folding import Folded
from latencyprobe_agent.flame.telling import EMPTY, share, told
from latencyprobe_agent.flame.tree import tree

NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=";"), min_size=1)
FRAMES = st.lists(NAMES, min_size=1, max_size=6)
FOLDED = st.dictionaries(FRAMES.map(tuple), st.integers(1, 10**12), max_size=20)
EVIL: Folded = {("[</script><script>alert(1)</script>]", '"><img src=x>', "-", "&amp;'"): 7, ("[b]", "]]>", "<!--"): 5}
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Elements of a page, its data, and the text of its title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self._open = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


def words(folded: Folded, **missing: int):
    return told(sum(folded.values()), "redis", missing)


def page(folded: Folded) -> Page:
    return Page(html.render(tree(folded), words(folded)))


def boxes(text: str) -> list[tuple[str, str]]:
    """Names and what is said of them."""
    root = ElementTree.fromstring(text)
    return [tuple(group.find(f"{SVG}title").text.rsplit("\n", 1)) for group in root.iter(f"{SVG}g")]


@given(FOLDED)
def test_a_picture_is_well_formed_and_has_every_frame(folded: Folded) -> None:
    nodes = tree(folded)
    drawn = boxes(svg.render(nodes, words(folded)))
    total = sum(folded.values())
    assert len(drawn) == sum(node.ns * 1168 / total >= 0.3 for node in nodes)


def test_what_a_picture_says_of_a_frame_and_of_what_it_leaves_out() -> None:
    folded = {("[a]", "main"): 3_000_000, ("[b]",): 1_000_000, ("[tiny]",): 10}
    text = svg.render(tree(folded), words(folded, **{"stacks dropped": 3}))
    assert [("[a]", "3ms, 75.0 %"), ("main", "3ms, 75.0 %"), ("[b]", "1ms, 25.0 %")] == boxes(text)
    assert "4ms in slow system calls · redis" in text
    assert "1 frames too narrow to draw · missing: 3 stacks dropped" in text


@given(FOLDED)
def test_a_pages_data_are_the_stacks(folded: Folded) -> None:
    found = page(folded)
    data = json.loads(found.texts["data"])
    names = [data["names"][i] for i in data["name"]]
    assert [(n.name, n.depth, n.start_ns, n.ns, n.end) for n in tree(folded)] == list(
        zip(names, data["depth"], data["start"], data["ns"], data["end"], strict=True)
    )


@pytest.mark.parametrize("form", [svg, html])
@pytest.mark.parametrize("folded", [EVIL, {}], ids=["evil names", "empty"])
def test_a_picture_fetches_nothing_and_names_run_nothing(form, folded: Folded) -> None:
    text = form.render(tree(folded), told(sum(folded.values()), "<b>&\x1b", {"<i>": 1}))
    assert ["http://www.w3.org/2000/svg"] * (form is svg) == re.findall(r"\w+://[^\s\"'<>]+", text)
    found = Page(text)
    assert not found.tags.keys() & {"img", "link", "iframe"}
    assert (0 if form is svg else 2) == found.tags["script"]
    assert not [(name, value) for name, value in found.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text


def test_an_empty_graph_says_what_to_do() -> None:
    assert "--slower-than" in EMPTY
    assert EMPTY in page({}).texts["p"]
    picture = " ".join(ElementTree.fromstring(svg.render([], words({}))).itertext())
    assert EMPTY in picture
    assert "No slow system calls" in picture


def stacks(raw: bytes) -> dict[tuple[str, ...], int]:
    profile = pprof.message()
    profile.ParseFromString(gzip.decompress(raw))
    strings = profile.string_table
    functions = {function.id: strings[function.name] for function in profile.function}
    names = {location.id: functions[location.line[0].function_id] for location in profile.location}
    assert ("time", "nanoseconds") == tuple(
        strings[i] for i in (profile.sample_type[0].type, profile.sample_type[0].unit)
    )
    return {tuple(names[i] for i in reversed(sample.location_id)): sample.value[0] for sample in profile.sample}


@given(FOLDED)
def test_a_profile_read_back_is_the_same_stacks(folded: Folded) -> None:
    folded = {stack: ns for stack, ns in folded.items() if "-" not in stack}
    assert folded == stacks(pprof.encode(folded))


def test_a_profile_has_no_frame_for_the_border_and_tells_the_kernels_functions_apart() -> None:
    raw = pprof.encode({("[a]", "read", "-", "read"): 5}, "of redis")
    assert {("[a]", "read", "read"): 5} == stacks(raw)
    profile = pprof.message()
    profile.ParseFromString(gzip.decompress(raw))
    files = [profile.string_table[function.filename] for function in profile.function]
    assert ["", "", "[kernel]"] == files
    assert "of redis" == profile.string_table[profile.comment[0]]


def test_shares() -> None:
    assert ["0.0 %", "< 0.1 %", "0.1 %", "33.3 %", "100.0 %"] == [share(n, 3000) for n in (0, 1, 3, 1000, 3000)]
