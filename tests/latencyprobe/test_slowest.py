"""slowest.py: what slow and explain print and return, of a store and of a cluster."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.report import units
from latencyprobe.report.model import Result, Stage
from latencyprobe.store import SqliteStore
from tests.latencyprobe import report_examples
from tests.latencyprobe.commands_run import InCluster, run
from tests.latencyprobe.report_examples import IDLE, RICH, SLOW
from tests.support.fake_kubectl import FakeKubectl


def test_slow_prints_one_object_a_line(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    code, out, _ = run(capfd, "slow", "--store", store_of_today.path, "--target", "cart", "-o", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (0, 5) == (code, len(lines))
    assert ["ok", "rto"] == [hit["what"] for hit in lines[0]["evidence"]]
    assert ("cart", "Server", f"{59:032x}") == tuple(lines[0][name] for name in ("target", "perspective", "traceId"))


def test_slow_table_shows_stages_and_trace_ids(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    out = run(capfd, "slow", "--store", store_of_today.path)[1]
    assert f"{59:032x}" in out
    assert "process 40.1ms" in out
    assert "resent rto, 812ms" in out


def test_slow_refuses_an_unknown_target(capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore) -> None:
    code, _, err = run(capfd, "slow", "--store", store_of_today.path, "--target", "basket")
    assert (2, True) == (code, "'basket' is no target: one of cart" in err)


def test_slow_and_explain_of_several_namespaces_say_of_which_each_is(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, fake_kubectl: FakeKubectl, tmp_path: Path
) -> None:
    document = json.loads(run(capfd, "report", "--store", store_of_today.path, "-o", "json")[1])
    of_staging = json.loads(
        json.dumps(document).replace('"traceId": "0000', '"traceId": "ffff').replace('"shop"', '"staging"')
    )
    (tmp_path / "reports").write_text(json.dumps({"items": [document, of_staging]}))
    fake_kubectl(f"/bin/cat {tmp_path}/reports")
    lines = [json.loads(line) for line in run(capfd, "slow", "-A", "-o", "json")[1].splitlines()]
    assert {"shop", "staging"} == {one["namespace"] for one in lines}
    table = run(capfd, "slow", "-A")[1]
    assert ("shop/cart, server" in table, "staging/cart, server" in table) == (True, True)
    explained = run(capfd, "explain", "-A", f"ffff{59:028x}")[1]
    assert "objective staging/checkout/fast: Violated" in " ".join(explained.split())


def test_slow_of_the_last_minutes_leaves_out_older_ones(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    recent = run(capfd, "slow", "--store", store_of_today.path, "--since", "15m", "--limit", "2", "-o", "json")[1]
    assert [f"{number:032x}" for number in (59, 58)] == [json.loads(line)["traceId"] for line in recent.splitlines()]
    code, out, _ = run(capfd, "slow", "--store", store_of_today.path, "--since", "5m")
    assert (0, "None of the slowest RPCs of each hour began within the last 5m") == (code, out.partition(":")[0])


def test_explain_shows_the_slowest_or_the_one_whose_trace_id_begins_so(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    for trace in ("", f"{59:032x}"):
        out = run(capfd, "explain", "--store", store_of_today.path, *([trace] if trace else []))[1]
        assert out.startswith(f"trace {59:032x}\n")
        assert "why: a segment was sent again after a timeout" in out
        assert "objective checkout/fast: Violated" in " ".join(out.split())
    out = run(capfd, "explain", "--store", store_of_today.path, "--target", "cart")[1]
    assert out.startswith(f"trace {59:032x}\n")
    code, _, err = run(capfd, "explain", "--store", store_of_today.path, "--target", "nowhere")
    assert (code, "'nowhere' is no target: one of cart" in err) == (2, True)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("0", "'0' begins 5 trace ids: give more of one: 0000"),
        ("f", "no RPC whose trace id begins with 'f' is among the slowest: `latencyprobe slow --store"),
    ],
)
def test_explain_says_which_it_cannot_tell(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore, trace: str, message: str
) -> None:
    code, out, err = run(capfd, "explain", "--store", store_of_today.path, trace)
    assert (1, "", True) == (code, out, err.startswith(f"latencyprobe: {message}"))


def test_explain_of_the_last_minutes_leaves_out_older_ones_and_asks_again_about_the_same(
    capfd: pytest.CaptureFixture[str], in_cluster: InCluster
) -> None:
    now_ns = time.time_ns()
    began = {f"{ago_s:032x}": units.iso(now_ns - ago_s * 10**9) for ago_s in (90, 120, 600)}
    recent, other, old = (replace(SLOW, trace_id=trace, time=at) for trace, at in began.items())
    slower = replace(other, duration="1s", stages=(Stage("client_send", "1s"),))
    in_cluster(report_examples.document(replace(RICH, slowest=(recent, slower, old))))
    out = run(capfd, "explain", "-n", "shop", "--since", "3m")[1]
    assert out.startswith(f"trace {recent.trace_id}\n")
    assert f"by another stage, client_send: latencyprobe explain -n shop --since 3m {slower.trace_id}\n" in out
    code, out, err = run(capfd, "explain", "-n", "shop", "--since", "1m")
    assert (1, "") == (code, out)
    assert "slowest RPCs of each hour began within the last 1m: `latencyprobe slow -n shop` lists all" in err


def test_explain_keeps_to_a_peer_and_prints_for_programs_what_slow_does(
    capfd: pytest.CaptureFixture[str], store_of_today: SqliteStore
) -> None:
    both = [
        run(capfd, command, *trace, "--store", store_of_today.path, "--peer", "shop/frontend", "-o", "json")
        for command, trace in (("explain", [f"{57:032x}"]), ("slow", []))
    ]
    (_, explained, _), (_, listed, _) = both
    assert (explained in listed.splitlines(keepends=True), json.loads(explained)["traceId"]) == (True, f"{57:032x}")
    code, _, err = run(capfd, "explain", "--store", store_of_today.path, "--peer", "nobody")
    assert (2, True) == (code, "no peer has 'nobody' in its name" in err)


def test_a_command_is_named_for_a_call_that_can_be_explained_whatever_else_was_asked(
    capfd: pytest.CaptureFixture[str], in_cluster: InCluster
) -> None:
    trace = SLOW.waited_for[0].trace_id
    called = replace(RICH, target="redis", slowest=(replace(SLOW, trace_id=trace),))
    in_cluster(report_examples.document(RICH, called))
    lines = run(capfd, "explain", "-n", "shop", "--target", "cart")[1].splitlines()
    assert f"latencyprobe explain -n shop {trace}" in map(str.strip, lines)


def test_explain_shows_both_ends_also_where_they_are_of_several_targets_and_peers(
    capfd: pytest.CaptureFixture[str], in_cluster: InCluster
) -> None:
    served = replace(SLOW, peer="shop/frontend", stages=(Stage("process", "18.4ms"),))
    in_cluster(report_examples.document(RICH, replace(RICH, target="web", perspective="Server", slowest=(served,))))
    for kept in (["--target", "web"], ["--peer", "frontend"], ["--target", "cart"], [SLOW.trace_id[:4]]):
        out = " ".join(run(capfd, "explain", "-n", "shop", *kept)[1].split())
        assert ("at the client's side of cart" in out, "at the server's side of web" in out) == (True, True)


def test_explain_as_a_page_has_links_where_an_address_is_given(
    capfd: pytest.CaptureFixture[str], in_cluster: InCluster
) -> None:
    in_cluster(report_examples.document(RICH))
    linked = ["-o", "html", "--trace-url", "http://jaeger/trace/{traceId}"]
    code, out, err = run(capfd, "explain", "-n", "shop", *linked)
    assert (0, "", True) == (code, err, out.startswith("<!doctype html>") and out.endswith("</html>\n"))
    assert f'<a href="http://jaeger/trace/{SLOW.trace_id}" rel="noreferrer">' in out
    assert (1, "") == run(capfd, "explain", "-n", "shop", "ffff", *linked)[:2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trace-url", "http://jaeger/trace/{traceId}"], "--trace-url goes with -o html"),
        (["-o", "html", "--trace-url", "jaeger"], "no http or https address"),
    ],
)
def test_explain_refuses_an_address_that_it_cannot_use(
    capfd: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    code, out, err = run(capfd, "explain", *options)
    assert (2, "", True) == (code, out, said in err)


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (None, "No report yet: `kubectl apply` a LatencyProbe"),
        ((), "No objectives: add spec.objectives"),
        ((IDLE,), "no RPC was recorded yet: send traffic"),
    ],
)
def test_explain_says_what_to_do_where_there_is_nothing_yet(
    capfd: pytest.CaptureFixture[str], in_cluster: InCluster, results: tuple[Result, ...] | None, said: str
) -> None:
    in_cluster(*(() if results is None else (report_examples.document(*results),)))
    code, out, err = run(capfd, "explain", "-A")
    assert (1, "", True) == (code, out, err.startswith(f"latencyprobe: {said}"))
