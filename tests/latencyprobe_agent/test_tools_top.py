"""`latencyprobe top`: what an interval adds up to, what of it is shown, and how keys change that."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from latencyprobe import group
from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.tools.top import screen, tally
from latencyprobe_agent.tools.top.tally import Tally
from latencyprobe_agent.tools.top.view import Row, Sort, View, rows
from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded, Outcome, Role
from tests.latencyprobe_agent.processes import DEADLINE_S, Echo, started
from tests.support.exchanges import at_level, exchanges
from tests.support.ports import free_port

SETS = {1: TargetSet(("shop/p/cart",), (), 0, SpanPolicy(1, 0.0, 1), "shop/p")}
MS = 1_000_000


def measured(*records: np.ndarray) -> Halves:
    return halves(np.concatenate([np.zeros(0, EXCHANGE), *records]))


def told(some: Tally, seconds: float = 1.0) -> list[Row]:
    return rows(some.take(), SETS, str, seconds)


@pytest.fixture
def added() -> Tally:
    return Tally()


def test_rpcs_add_up_by_end_process_and_peer(added: Tally) -> None:
    ours = {"reader_tgid": 7, "writer_tgid": 8}
    added.add(measured(exchanges(3, Role.SERVER, **ours), exchanges(2, Role.CLIENT, **ours)))
    added.add(measured(exchanges(4, Role.SERVER, **ours), exchanges(1, Role.SERVER, peer="10.0.0.9", **ours)))

    found = {(row.side, row.process, row.peer): row.rate for row in told(added, 2.0)}

    assert found == {
        ("server", "7", "10.0.0.2"): 3.5,
        ("client", "8", "10.0.0.2"): 1.0,
        ("server", "7", "10.0.0.9"): 0.5,
    }
    assert told(added) == [], "of the next interval"


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=200))
def test_quantiles_are_those_of_the_durations(durations_ns: list[int]) -> None:
    added = Tally()
    added.add(measured(exchanges(len(durations_ns), Role.CLIENT, stages=(0, np.array(durations_ns), 0, 0))))
    (row,) = told(added)
    in_order = sorted(durations_ns)
    for found_ns, q in ((row.p50_ns, 0.5), (row.p99_ns, 0.99)):
        exact_ns = in_order[int(np.ceil(q * len(in_order))) - 1]
        assert found_ns == pytest.approx(exact_ns, rel=0.022, abs=1e3)  # the first bucket has all below 1 us


def test_failures_stages_and_samples_are_weighed(added: Tally) -> None:
    slow = {"stages": (0, 3 * MS, 0, 0), "flags": at_level(2)}
    added.add(measured(exchanges(1, Role.CLIENT, **slow), exchanges(4, Role.CLIENT, stages=(MS, 0, 0, 0))))
    added.add(measured(exchanges(2, Role.CLIENT, outcome=Outcome.RESET)))
    (row,) = told(added)
    assert (row.rate, row.errors) == (10, 0.2)
    assert dict(row.stages) == pytest.approx({"send": 0.25, "wait": 0.75, "receive": 0, "read_delay": 0})
    assert row.mostly == "wait"


def test_turns_that_are_no_rpc_are_not_in_it(added: Tally) -> None:
    added.add(measured(exchanges(5, Role.SERVER, excluded=Excluded.PUSH)))
    assert told(added) == []


def test_groups_beyond_the_bound_are_one(added: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MAX_GROUPS", 3)
    added.add(measured(exchanges(10, Role.SERVER, reader_tgid=np.arange(1, 11))))
    found = told(added)
    assert len(found) == 4
    assert {row.rate for row in found if row.process == "(others)"} == {7.0}


def row(process: str = "web", rate: float = 1.0, p50_ns: int = 1, p99_ns: int = 1, errors: float = 0.0) -> Row:
    stages = (("receive", 0.1), ("read_delay", 0.2), ("process", 0.6), ("send", 0.1))
    return Row("cart", "server", process, "10.0.0.2", rate, p50_ns, p99_ns, errors, stages)


ROWS = [row("a", rate=9), row("b", p50_ns=9), row("c", p99_ns=9), row("d", errors=0.5)]


@pytest.mark.parametrize(("sort", "first"), [(Sort.RATE, "a"), (Sort.P50, "b"), (Sort.P99, "c"), (Sort.ERRORS, "d")])
def test_rows_are_sorted_by_what_was_asked_the_largest_first(sort: Sort, first: str) -> None:
    assert View(sort).shown(ROWS)[0].process == first


def pressed(keys: str, view: View | None = None) -> View:
    view = view or View()
    for key in keys:
        view = view.pressed(key)
    return view


def test_s_goes_through_all_orders_and_back() -> None:
    assert [pressed("s" * n).sort for n in range(5)] == [*Sort, Sort.P99]


def test_a_filter_is_typed_mended_kept_and_taken_back() -> None:
    typing = pressed("/WEx\x7fb")
    assert (typing.wanted, typing.typing) == ("WEb", True)
    assert [one.process for one in typing.shown([row("web"), row("redis")])] == ["web"]
    assert pressed("q", typing).wanted == "WEbq", "keys are text meanwhile"
    kept = pressed("\n", typing)
    assert (kept.wanted, kept.typing) == ("WEb", False)
    assert pressed("\x1b", kept).wanted == ""


def test_space_pauses_and_q_ends() -> None:
    assert [pressed(" ").paused, pressed("  ").paused, pressed("q").ended, pressed("x").ended] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    file = io.StringIO()
    long = row("p" * 60, rate=1_234_567.8, p50_ns=123_456, p99_ns=98_765_432, errors=0.123)
    screen.print_plain(Console(file=file, width=width), View(wanted="p", paused=True), [long, row("x")], 7)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for said in ("1,234,569 RPC/s", "sorted by p99", "7 lost", "98.8ms", "12.3 %"):
        assert said in text


def test_stages_have_letters_where_there_are_no_colours() -> None:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=120), View(), [row()], 0)
    assert "rrdddPPPPPPPPPss" in file.getvalue()


def test_an_interval_without_rpcs_says_so_in_its_headline() -> None:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=120), View(), [], 0)
    assert "0 RPC/s  0 rows" in file.getvalue()


@pytest.mark.parametrize("args", [[], ["--port", "80", "-f", "x.yaml"]])
def test_it_says_what_it_lacks(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["top", *args]) == 2
    assert "give -f FILE or --port PORT: what to measure" in capfd.readouterr().err


@pytest.fixture
def echo() -> Any:
    server = Echo(free_port())
    yield server
    server.close()


@pytest.mark.root
def test_what_a_client_does_is_seen_at_both_ends_within_the_interval(echo: Echo) -> None:
    process = started("top", "--port", str(echo.port), "--interval", "1s", "-o", "json", "--duration", "6s")
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            echo.ask(1000)

    with ThreadPoolExecutor(1) as pool:  # beside: a pipe that nobody reads would hold it up
        asking = pool.submit(ask)
        out, err = process.communicate(timeout=DEADLINE_S)
        over.set()
        asking.result(DEADLINE_S)
    assert process.returncode == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert {one["side"] for one in found} == {"server", "client"}
    servers = [one for one in found if one["side"] == "server"]
    assert {one["process"] for one in servers} == {f"{sys.executable.rpartition('/')[2][:15]} {echo.process.pid}"}
    assert sum(one["rate"] for one in servers) >= 100
    assert all(0 < one["p50_ns"] <= one["p99_ns"] for one in found)


@pytest.mark.root
def test_a_terminal_is_drawn_on_and_left_as_it_was(echo: Echo) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from latencyprobe.cli import main; main()"]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "24"}
    command += ["top", "--port", str(echo.port), "--interval", "500ms"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    text = ""

    def read_until(pattern: str) -> None:
        nonlocal text
        while not re.search(pattern, text):
            text += os.read(ours, 4096).decode(errors="replace")

    signal.alarm(DEADLINE_S)
    read_until("no RPC in this interval")
    echo.ask(100)
    read_until(rf"port-{echo.port}.*server")
    os.write(ours, b"ss")
    read_until("sorted by rate")
    os.write(ours, b"q")
    read_until(re.escape("\x1b[?1049l"))  # the screen that was there before
    signal.alarm(0)
    assert process.wait(DEADLINE_S) == 0
    os.close(ours)
