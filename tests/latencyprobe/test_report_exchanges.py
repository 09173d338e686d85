"""report/exchanges.py: slow exchanges, where their time went, and what explains them."""

import io
import json
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from latencyprobe import stages
from latencyprobe.report import exchanges, model
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

NETWORK = (model.Stage("network", "50ms"),)
STAGES = (model.Stage("server_read_delay", "123.4ms"),)
SLOW = model.Slow(f"{7:032x}", "2026-09-21T14:03:00Z", "123.4ms", STAGES, "shop/frontend")


def listed(*some: model.Slow, width: int) -> str:
    file = io.StringIO()
    result = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.MET, 1, 0, 1, COVERAGE, "")
    exchanges.render([Exchange(result, slow) for slow in some], Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_long_names_wrap_and_leave_the_trace_id_whole(width: int) -> None:
    evidence = (
        model.EvidenceSummary("retransmits", "zero_window_probe", 12, "1.02s"),
        model.EvidenceSummary("tcprt", "P reordered", 1, "201ms"),
    )
    found = listed(replace(SLOW, evidence=evidence), width=width)
    assert max(map(len, found.splitlines())) <= width
    assert SLOW.trace_id in found
    words = {"123ms", "resent", "zero_window_probe", "×12,", "1.02s", "tcprt", "P", "reordered,", "201ms"}
    assert words <= set(found.split())


def test_names_in_brackets_are_no_markup() -> None:
    evidence = (model.EvidenceSummary("retransmits", "[/what]", 1, "1s"),)
    odd = replace(SLOW, trace_id="[/id]", peer="[/peer]", stages=(model.Stage("[/stage]", "1s"),), evidence=evidence)
    found = listed(odd, replace(odd, error="[/error]"), width=140)
    assert all(f"[/{name}]" in found for name in ("id", "peer", "stage", "what", "error"))


@pytest.mark.parametrize(
    ("stage", "said"), [("network", "of it held by the server's kernel for 41ms:"), ("send", "held by the server's")]
)
def test_bytes_that_waited_to_be_sent_are_part_of_what_they_are_part_of(stage: str, said: str) -> None:
    held = (model.EvidenceSummary("unsent", "server nagle", 500, "41ms"),)
    slow = replace(SLOW, stages=(model.Stage(stage, "50ms"), model.Stage("server_process", "1ms")), evidence=held)
    found = " ".join(listed(slow, width=300).split())
    assert f"{stage} 50ms" in found
    assert said in found
    assert ("of it" in found) == (stage == "network")
    assert "held by the server's kernel for 41ms: Nagle, until the client's ACK: set TCP_NODELAY or write once" in found


def test_what_a_server_waited_for_is_said_in_the_words_of_the_report() -> None:
    waits = ("fsync", 3, "41ms"), ("run_queue", 0, "9ms"), ("throttled (another thread)", 2, "5ms")
    evidence = tuple(model.EvidenceSummary("waits", what, count, wait) for what, count, wait in waits)
    found = " ".join(listed(replace(SLOW, evidence=evidence), width=300).split())
    for said in (
        "of it fsync ×3, 41ms",
        "of it woken and waiting for a CPU, 9ms",
        "of it throttled by the CPU quota (another thread) ×2, 5ms",
    ):
        assert said in found


def test_list_without_evidence_says_nothing_of_it() -> None:
    header, row, *_ = listed(SLOW, width=150).splitlines()
    assert ["slowest", "stages", "mostly", "seen"] == header.split()[:4]
    assert ["123.4ms", "dddddddddddddd", "server_read_delay", "123ms", "cart,"] == row.split()[:5]


@pytest.mark.parametrize("width", [60, 80, 110, 120, 140, 200])
def test_where_and_when_and_at_which_end_are_said_at_every_width(width: int) -> None:
    found = listed(SLOW, width=width)
    assert max(map(len, found.splitlines())) <= width
    for said in ("cart,", "client", "shop/frontend", "14:03:00", SLOW.trace_id):
        assert said in found


def test_a_letter_stands_once_in_the_legend() -> None:
    both = (
        replace(SLOW, stages=(model.Stage("process", "40ms"),)),
        replace(SLOW, stages=(model.Stage("server_process", "40ms"),)),
    )
    legend = listed(*both, width=120).splitlines()[-1]
    assert legend.strip() == "P server_process, process"


def test_a_long_sentence_has_room_before_anything_else_has_a_column() -> None:
    told = replace(SLOW, evidence=(model.EvidenceSummary("unsent", "server nagle", 1, "41ms"),))
    short = replace(SLOW, evidence=(model.EvidenceSummary("retransmits", "rto", 1, "41ms"),))
    for width in (80, 120, 165):
        assert "of it held by the server's kernel for 41ms:" in listed(replace(told, stages=NETWORK), width=width)
    assert ["seen at" in listed(one, width=120) for one in (SLOW, short, told)] == [True, True, False]
    assert "cart, client; peer shop/frontend; 09-21 14:03:00" in listed(told, width=80)


def test_legend_is_broken_between_its_entries_alone() -> None:
    every = tuple(model.Stage(stage.name, "1s") for stage in stages.BY_NAME.values())
    found = listed(*(replace(SLOW, stages=(one,)) for one in every), width=60)
    entries = re.findall(r"\S+ [a-z_]+(?:, [a-z_]+)*", found.partition(SLOW.trace_id)[2].rpartition(SLOW.trace_id)[2])
    assert {stage.name for stage in stages.BY_NAME.values()} <= {
        name for entry in entries for name in entry.split(" ", 1)[1].split(", ")
    }
    assert max(map(len, found.splitlines())) <= 60


def test_for_a_program_it_is_one_line_with_the_end_that_it_was_measured_at() -> None:
    result = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.MET, 1, 0, 1, COVERAGE, "")
    line = exchanges.document(Exchange(result, SLOW, "shop"))
    about = {"namespace": "shop", "probe": "p", "target": "cart", "perspective": "Client", "traceId": SLOW.trace_id}
    assert about.items() <= json.loads(line).items()
    assert "\n" not in line
