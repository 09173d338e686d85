"""bounds.py: what passes can do no harm: stored, added up a million times and reported."""

import io
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from latencyprobe import exclusions
from latencyprobe.bounds import MAX_EVENTS, MAX_MEASURED_MS, MAX_NS, MAX_SUM_NS, MAX_UNIX_NS, TORN, Impossible, bounded
from latencyprobe.plan import Role
from latencyprobe.report import build, csv, html, markdown, model, table
from latencyprobe.sli import (
    HISTOGRAM_INDEXES,
    Coverage,
    EvidenceCount,
    EvidenceSummary,
    PeerCounts,
    SliRow,
    SlowExchange,
)
from latencyprobe.stages import BY_NAME
from latencyprobe.store import SqliteStore, statements
from tests.latencyprobe.bounds_rows import NOW, OBJECTIVES, row

REPORT = yaml.safe_load((Path(__file__).parents[2] / "crds" / "latencyreport.yaml").read_text())
SCHEMA = REPORT["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

names = st.one_of(st.sampled_from([*BY_NAME, "tcprt", "[/red]", "\x1b[2J", ""]), st.text(max_size=400))


def numbers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([least, most]), st.integers(least, most))


events, ns = numbers(0, MAX_EVENTS), numbers(0, MAX_NS)
summaries = st.builds(EvidenceSummary, names, names, events, numbers(-(1 << 64), 1 << 64))
by_peer = st.builds(
    lambda most, bad, index: PeerCounts(most, min(most, bad), {index: most}),
    *(events, events, st.sampled_from(HISTOGRAM_INDEXES)),
)
exchanges = st.builds(
    SlowExchange,
    trace_id=st.integers(0, 3).map("{:032x}".format),
    start_unix_ns=numbers(0, MAX_UNIX_NS),
    duration_ns=ns,
    stages=st.dictionaries(st.sampled_from([*BY_NAME, "a stage of tomorrow"]), ns, max_size=4),
    peer=names,
    error=names,
    joined=st.booleans(),
    evidence=st.lists(summaries, max_size=8).map(tuple),
)


TOMORROW = {either: exclusions.ALL[0]._replace(ambiguous=either) for either in (True, False)}


@st.composite
def possible(draw: st.DrawFn) -> SliRow:
    """Rows at and within their bounds."""
    role = draw(st.sampled_from(Role))
    good = draw(numbers(-TORN, MAX_EVENTS))
    bad = draw(numbers(0 if good < 0 else -TORN, MAX_EVENTS))
    fast, late = draw(st.sampled_from(HISTOGRAM_INDEXES[:500])), draw(st.sampled_from(HISTOGRAM_INDEXES[500:]))
    least = -1 if role is Role.CLIENT else 0
    stages, signals = (
        st.sampled_from(["send", "wait", "tomorrow"]),
        st.sampled_from(["tcprt", "retransmits", "tomorrow"]),
    )
    evidence = st.builds(EvidenceCount, events, events, numbers(-9, 1 << 64))
    reasons = draw(st.dictionaries(st.sampled_from([*exclusions.BY_NAME, "tomorrow"]), numbers(0, MAX_EVENTS >> 4)))
    either = draw(st.sampled_from([True, False]))  # what a reason of tomorrow is
    ambiguous = sum(n for reason, n in reasons.items() if exclusions.BY_NAME.get(reason, TOMORROW[either]).ambiguous)
    excluded = sum(reasons.values()) - ambiguous
    seen = [draw(numbers(ambiguous + excluded, MAX_EVENTS)), ambiguous, excluded, *(draw(events) for _ in range(3))]
    return row(
        role,
        good=good,
        bad=bad,
        histogram={fast: max(0, good), late: max(0, bad)},
        stage_ns=draw(st.dictionaries(stages, numbers(least * MAX_SUM_NS, MAX_SUM_NS))),
        dominant=draw(st.dictionaries(stages, numbers(least * MAX_EVENTS, MAX_EVENTS))),
        coverage=Coverage(*seen, measured_ms=draw(numbers(0, MAX_MEASURED_MS))),
        slowest=draw(st.lists(exchanges, max_size=5).map(tuple)),
        peers=draw(st.dictionaries(names, events, max_size=20)),
        by_peer=draw(st.dictionaries(names, by_peer, max_size=20)),
        evidence=draw(st.dictionaries(signals, evidence)),
        exclusions=reasons,
    )


number = st.integers(-3, 3) | st.integers(-(10**29), 10**29)
anything = st.builds(
    partial(SliRow, *OBJECTIVES[Role.CLIENT].key),
    minute=st.sampled_from([NOW, NOW - 60, NOW + 1, -60, 10**29]),
    good=number,
    bad=number,
    histogram=st.dictionaries(st.integers(-800, 400), st.integers(-2, 1 << 65), max_size=3),
    stage_ns=st.dictionaries(names, number, max_size=3),
    dominant=st.dictionaries(names, number, max_size=3),
    coverage=st.just(Coverage()) | st.builds(Coverage, *[number] * 9),
    slowest=st.lists(exchanges, max_size=6).map(tuple),
    peers=st.dictionaries(names, number, max_size=3),
    by_peer=st.dictionaries(names, st.builds(PeerCounts, number, number, st.dictionaries(number, number)), max_size=3),
    exclusions=st.dictionaries(st.sampled_from([*exclusions.BY_NAME, "tomorrow"]) | names, number, max_size=3),
)


def violations(schema: dict[str, Any], value: Any, at: str = "") -> list[str]:
    """Return what the API server would refuse."""
    if isinstance(value, dict):
        known = {name: inner for name, inner in schema.get("properties", {}).items() if name in value}
        return [v for name, inner in known.items() for v in violations(inner, value[name], f"{at}.{name}")]
    if isinstance(value, list):
        found = [v for i, inner in enumerate(value) for v in violations(schema["items"], inner, f"{at}[{i}]")]
        return found + [at] * (len(value) > schema["maxItems"])
    if isinstance(value, str):
        long = len(value) > schema.get("maxLength", 1 << 30)
        return [f"{at}: {value}"] * (long or value not in schema.get("enum", (value,)))
    return [f"{at}: {value}"] * (not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63)


def doubled(store: SqliteStore) -> None:
    """Add all that is stored once more."""
    for statement in (statements.ADD_COUNTS, statements.ADD_EXEMPLARS):
        name = statement.split()[2]
        store._db.execute(re.sub(r"VALUES \([?, ]+\)", f"SELECT * FROM {name} WHERE true", statement))


def harmless(rows: list[SliRow]) -> None:
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "sli.db", clock=lambda: NOW) as store:
        store.define("shop", "checkout", OBJECTIVES.values())
        for one in rows:
            store.add([one])
        for times in range(3):
            store.expect([([o.key for o in OBJECTIVES.values()], NOW, 300_000_000)])
            report = build.build(store, store.objectives(), NOW + 60)
            reasons = [result.reason for result in report.results if result.reason]
            assert all("more than can be" in reason or "which cannot be" in reason for reason in reasons)
            document = build.document("shop", report)
            assert [] == violations(SCHEMA, msgspec.json.decode(msgspec.json.encode(document)))
            assert document == msgspec.json.decode(msgspec.json.encode(document), type=model.LatencyReport)
            table.render(report, Console(file=io.StringIO(), width=120))
            for form in (csv, html, markdown):
                form.render([document])
            for _ in range(15 if times < 2 else 0):
                doubled(store)
            store.compact(NOW)


@pytest.mark.long
@settings(max_examples=30)
@given(st.lists(possible(), min_size=1, max_size=3))
def test_what_passes_does_no_harm_stored_added_up_a_million_times_and_reported(rows: list[SliRow]) -> None:
    harmless([bounded(one) for one in rows])


@pytest.mark.long
@settings(max_examples=60)
@given(anything)
def test_anything_is_refused_or_harmless(one: SliRow) -> None:
    try:
        passed = bounded(one)
    except Impossible:
        return
    harmless([passed])
