"""A snapshot as text and as a page: it says why it was taken, and how far back it reaches."""

import json

import pytest

from latencyprobe_agent.recording import html, text
from latencyprobe_agent.recording.snapshot import Cpu, Snapshot, Trigger
from tests.latencyprobe_agent.test_recording_snapshot import example


def test_the_trigger_its_coverage_and_its_stack_are_told():
    said = "\n".join(text.lines(example()))
    assert said.startswith("fsync took 0s: -, process 0, thread 0, ended at 2001-09-09T01:46:40Z\n")
    assert "kept: syscalls of all tasks, window 250ns" in said
    assert "not kept: 1 (missing)" in said
    assert "| 250ns before the trigger\n" in said
    assert "only 240ns before the trigger (the recorder had just begun)" in said
    assert " => io_schedule" in said


@pytest.mark.parametrize(
    ("cpu", "said"),
    [
        (Cpu(0, 0, 100, 999, 0, 0), "200ns before the trigger"),
        (Cpu(0, 0, 101, 999, 7000, 0), "only 199ns before the trigger (older ones were overwritten: 7,000)"),
        (Cpu(0, 0, 101, 999, 0, 0), "only 199ns before the trigger (the recorder had just begun)"),
        (Cpu(0, 0, 400, 999, 9, 0), "only 0s before the trigger (older ones were overwritten: 9)"),
    ],
)
def test_what_is_not_covered_is_told_with_its_reason(cpu: Cpu, said: str):
    assert said == text.coverage(cpu, Trigger(time_ns=300), 200)


def test_json_has_the_header_and_a_line_an_event():
    header, *events = map(json.loads, text.objects(example()))
    assert "fsync" == header["trigger"]["what"]
    assert [("call", "worker", 7), ("call", "worker", 8), ("call", "worker", 9)] == [
        (one["kind"], one["comm"], one["number"]) for one in events
    ]


def test_without_events_the_words_say_so():
    empty = Snapshot(example(cpus=[]).header, [])
    assert "no CPU had an event" in list(text.lines(empty))
    assert '<body class="empty">' in html.render(empty)


def test_the_page_fetches_nothing_and_takes_nothing_for_markup():
    hostile = "</script><b>&\x1b"
    page = html.render(example(trigger=Trigger(time_ns=300, tracker="syscalls", what=hostile, user_stack=[hostile])))
    assert hostile not in page
    assert "<b>&" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in page
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert [-240, -250] == [cpu["from"] for cpu in json.loads(data)["cpus"]][::-1]
