"""tools/top/cluster.py, and `top -n` as a person runs it, with a script in kubectl's place."""

import io
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from latencyprobe import group
from latencyprobe.errors import ClusterError
from latencyprobe.report import build, headline, kubectl, model, units
from latencyprobe.slo.evaluate import State
from latencyprobe_agent.tools.top import cluster, screen
from latencyprobe_agent.tools.top.view import OF_CLUSTER, By, Row, Sort, View
from tests.support.fake_kubectl import FakeKubectl

UPDATED_NS = 1_790_000_000 * 10**9
STAGES = (model.BadStage("process", 60, "80", "3s"), model.BadStage("receive", 15, "20", "1s"))
NOW = model.Now("5m", "120", "1.2", "560us", "9.1ms", "42ms", "84ms", STAGES)


def result(name: str, now: model.Now | None, **changes: object) -> model.Result:
    coverage = model.Coverage("100", *(0,) * 7, "0s")
    updated = units.iso(UPDATED_NS)
    of = ("checkout", name, "cart", "Server", "25ms", "99", "28d", State.AT_RISK, 60, 1, 100)
    return replace(model.Result(*of, coverage, updated, now=now), **changes)


def report(*results: model.Result, namespace: str = "shop", omitted: int = 0) -> model.LatencyReport:
    return build.document(namespace, model.Report(headline.summary(results), results, omitted))


OBJECTIVES = View(Sort.STATE, sorts=OF_CLUSTER)
BY_PEER = OBJECTIVES._replace(by=By.PEER)
PEERS = (
    model.PeerNow("shop/frontend", "20", "7.5", "1.2ms", "9.9ms"),
    model.PeerNow("203.0.113.7", "90", "0", "550us", "2.1ms"),
    model.PeerNow("", "10", "0", "540us", "2.2ms"),
)
WITH_PEERS = replace(NOW, peers=PEERS)


def drawn(rows: Sequence[Row], width: int, view: View = OBJECTIVES) -> str:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=width), view, rows, Text())
    return file.getvalue()


def test_rows_have_both_ends_and_tell_how_old_they_are() -> None:
    found = cluster.looked([report(result("fast", NOW), result("idle", None), omitted=3)], UPDATED_NS + 20 * 10**9)
    (row,) = found.rows
    assert (row.p50_ns, row.p99_ns) == (560_000, 9_100_000)
    assert (row.other_p50_ns, row.other_p99_ns) == (42_000_000, 84_000_000)
    assert (row.rate, row.errors, row.mostly, row.state) == (120, 0.012, "process", "AtRisk")
    assert found.told == "updated 20s ago, 1 objective without RPCs, 3 objectives found no room in the reports"
    assert found.fresh


def test_a_report_that_nobody_renews_is_a_warning() -> None:
    found = cluster.looked([report(result("fast", NOW))], UPDATED_NS + 600 * 10**9)
    assert not found.fresh
    assert found.told == "updated 10m ago: is the operator running?"


def test_of_several_namespaces_it_is_said_whose_report_nobody_renews() -> None:
    fresh = replace(result("fast", NOW), updated=units.iso(UPDATED_NS + 600 * 10**9))
    both = [report(fresh), report(result("fast", NOW), namespace="bank")]
    assert cluster.looked(both, UPDATED_NS + 600 * 10**9).told == "bank updated 10m ago: is the operator running?"


@pytest.mark.parametrize(
    ("reports", "told"),
    [
        ([], "`kubectl apply` a LatencyProbe with objectives"),
        ([report(result("idle", None))], "`kubectl get latencyprobes` says in MEASURING why"),
        ([report(result("idle", None, reason="the disk is full"))], "the disk is full"),
    ],
)
def test_without_rows_it_says_why(reports: list[model.LatencyReport], told: str) -> None:
    found = cluster.looked(reports, UPDATED_NS)
    assert not found.rows
    assert told in found.told


def test_objectives_of_one_target_count_their_rpcs_once_and_namespaces_are_told_apart() -> None:
    shop = report(result("fast", NOW), result("faster", NOW))
    found = cluster.looked([shop, report(result("fast", NOW), namespace="bank")], UPDATED_NS)
    assert "240 RPC/s  3 rows" in drawn(found.rows, 200)
    assert [row.objective for row in View(wanted="bank").shown(found.rows)] == ["bank/checkout/fast"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_width_has_figures_whole_and_no_line_beyond_it(width: int) -> None:
    names = replace(result("objective-with-a-name-that-is-long", NOW), probe="p" * 40)
    found = drawn(cluster.looked([report(names)], UPDATED_NS).rows, width)
    assert max(map(len, found.splitlines())) <= width
    for figure in ("120.0", "9.1ms", "1.2 %", "At risk"):
        assert figure in found
    assert ("84ms" in found) == (width >= 80)
    assert ("560us" in found) == (width >= 110)


@pytest.mark.parametrize("bad", ["100", "99.9", "1.2", "0.000017"])
def test_shares_are_plain_figures(bad: str) -> None:
    assert f" {bad} % " in drawn(cluster.looked([report(result("fast", replace(NOW, bad=bad)))], UPDATED_NS).rows, 120)


def test_a_long_name_has_the_room_that_short_ones_leave() -> None:
    names = replace(result("objective-with-a-name-that-is-long", NOW), probe="p" * 20)
    found = drawn(cluster.looked([report(names)], UPDATED_NS).rows, 200)
    assert f"{'p' * 20}/objective-with-a-name-that-is-long" in found


def test_by_peer_an_objective_is_its_peers_without_what_nobody_knows_of_them() -> None:
    found = cluster.looked([report(result("fast", WITH_PEERS))], UPDATED_NS)
    first, second, others = BY_PEER.shown(found.rows)
    assert (first.peer, first.rate, first.errors, first.p50_ns, first.p99_ns) == (
        *("shop/frontend", 20, 0.075),
        *(1_200_000, 9_900_000),
    )
    assert (first.state, first.objective) == ("AtRisk", "checkout/fast")
    assert (first.stages, first.other_p50_ns, first.other_p99_ns) == ((), None, None)
    assert (second.peer, others.peer) == ("203.0.113.7", "(others)")
    assert [row.peer for row in OBJECTIVES.shown(found.rows)] == [""]


def test_peers_stay_with_their_objective_in_the_order_of_states_and_are_sorted_by_any_other() -> None:
    worse = result("worse", replace(WITH_PEERS, p99="1ms"), state=State.VIOLATED)
    found = cluster.looked([report(result("fast", WITH_PEERS), worse, result("old", NOW))], UPDATED_NS)
    said = [(row.objective.rpartition("/")[2], row.peer) for row in BY_PEER.shown(found.rows)]
    peers = ["shop/frontend", "203.0.113.7", "(others)"]
    assert said[:3] == [("worse", peer) for peer in peers]
    assert sorted(said[3:]) == sorted([*(("fast", peer) for peer in peers), ("old", "")])
    by_rate = [row.rate for row in BY_PEER._replace(sort=Sort.RATE).shown(found.rows)]
    assert by_rate == [120, 90, 90, 20, 20, 10, 10]
    assert [row.peer for row in BY_PEER._replace(wanted="frontend").shown(found.rows)] == ["shop/frontend"] * 2
    assert found.told_of(BY_PEER) == "peers of 1 objective are not known"
    assert not found.told_of(OBJECTIVES)


def test_by_peer_the_sum_is_still_that_of_all_rpcs() -> None:
    found = cluster.looked([report(result("fast", WITH_PEERS))], UPDATED_NS)
    assert "120 RPC/s  3 rows" in drawn(found.rows, 200, BY_PEER)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_by_peer_every_width_has_who_suffers_and_no_line_beyond_it(width: int) -> None:
    names = replace(result("objective-with-a-name-that-is-long", WITH_PEERS), probe="p" * 40)
    found = drawn(cluster.looked([report(names)], UPDATED_NS).rows, width, BY_PEER)
    assert max(map(len, found.splitlines())) <= width
    for figure in ("shop/frontend", "203.0.113.7", "(others)", "9.9ms", "7.5 %"):
        assert figure in found
    assert ("20.0" in found) == (width >= 80)
    assert ("1.2ms" in found, "At risk" in found) == (width >= 110,) * 2


def test_a_look_that_fails_leaves_what_was_found_and_says_so() -> None:
    first = cluster.looked([report(result("fast", NOW))], UPDATED_NS)
    seen: list[tuple[View, str, int]] = []

    def away() -> Sequence[model.LatencyReport]:
        raise ClusterError("kubectl: connection refused")

    keys: Iterator[str] = iter(("", "", "q"))
    watching = cluster.Watching(
        *(away, lambda: next(keys)),
        draw=lambda view, rows, told: seen.append((view, told.plain, len(rows))),
        ended=lambda: False,
    )
    watching.run(View(), first, poll_s=0, until_s=time.monotonic() + 60)
    assert {rows for *_, rows in seen} == {1}
    assert seen[0][1] == "not read again: kubectl: connection refused"
    assert seen[-1][0].ended


def test_a_look_that_fails_because_it_was_ended_is_no_failure() -> None:
    drawn: list[str] = []
    ended = False

    def interrupted() -> kubectl.Read:
        nonlocal ended
        ended = True
        raise ClusterError("kubectl: ended by a signal: Interrupt")

    watching = cluster.Watching(interrupted, lambda: "", lambda *told: drawn.append(told[-1].plain), lambda: ended)
    watching.run(View(), cluster.looked([], UPDATED_NS), poll_s=0, until_s=time.monotonic() + 60)
    assert not drawn


def kubectl_with(tmp_path: Path, fake_kubectl: FakeKubectl, *reports: model.LatencyReport) -> Path:
    file = tmp_path / "reports.json"
    file.write_bytes(msgspec.json.encode({"items": reports}))
    return fake_kubectl(f"/bin/cat '{file}'")


def test_top_of_a_namespace_is_printed_once_on_a_pipe(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    called = kubectl_with(tmp_path, fake_kubectl, report(result("fast", NOW)))
    assert not group.run(["top", "-n", "shop"])
    assert (
        called.read_text()
        == "get latencyreports.latencyprobe.dev --namespace shop --output json --request-timeout=15s\n"
    )
    out = capfd.readouterr().out
    assert out.count("checkout/fast") == 1
    assert "updated" in out


def test_the_worst_objective_is_at_the_top_unless_another_order_is_asked_for(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    slower = result("slower", replace(NOW, p99="20ms"))
    kubectl_with(tmp_path, fake_kubectl, report(slower, result("worse", NOW, state=State.VIOLATED)))
    for args, first in (((), "worse"), (("--sort", "p99"), "slower")):
        assert not group.run(["top", "-n", "shop", "-o", "json", *args])
        assert json.loads(capfd.readouterr().out.splitlines()[0])["objective"] == f"checkout/{first}"


def test_top_of_all_namespaces_as_json_names_what_shares_are_of(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl_with(tmp_path, fake_kubectl, report(result("fast", NOW)))
    assert not group.run(["top", "-A", "-o", "json"])
    (one,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (one["namespace"], one["objective"], one["bad_share"]) == ("shop", "checkout/fast", 0.012)
    assert (one["process_bad_share"], one["other_p99_ns"]) == (0.8, 84_000_000)
    assert not {"process", "peer", "errors"} & one.keys()


def test_by_peer_as_json_has_one_object_for_each(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl_with(tmp_path, fake_kubectl, report(result("fast", WITH_PEERS)))
    assert not group.run(["top", "-n", "shop", "--by", "peer", "-o", "json"])
    first, *others = map(json.loads, capfd.readouterr().out.splitlines())
    assert (first["peer"], first["objective"], first["bad_share"]) == ("shop/frontend", "checkout/fast", 0.075)
    assert not {"peers", "stages", "other_p99_ns", "process_bad_share"} & first.keys()
    assert [one["peer"] for one in others] == ["203.0.113.7", "(others)"]
    assert not group.run(["top", "-n", "shop", "-o", "json"])
    (whole,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert not {"peer", "peers"} & whole.keys()


@pytest.mark.parametrize("args", [["-n", "shop", "-A"], ["-n", "shop", "--port", "80"]])
def test_a_cluster_and_a_host_exclude_each_other(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["top", *args]) == 2
    assert "exclude each other" in capfd.readouterr().err


def test_a_report_written_by_hand_is_named_and_takes_nothing_from_the_others(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever may write reports of one namespace may be somebody else than who reads those of all."""
    by_hand = report(result("fast", replace(NOW, rate="many")), namespace="bank")
    kubectl_with(tmp_path, fake_kubectl, by_hand, report(result("fast", NOW)))
    why = "LatencyReport bank/latency cannot be read"
    for form in ((), ("-o", "json")):
        assert not group.run(["top", "-A", *form])
        out, err = capfd.readouterr()
        assert "checkout/fast" in out
        said = " ".join((err if form else out).split())
        assert why in said
        assert "results[0].now.rate" in said
    assert not group.run(["report", "-A"])
    assert why in capfd.readouterr().out
    for command in ("slow", "slow -o json", "explain"):
        group.run([*command.split(), "-A"])
        assert why in capfd.readouterr().err
    for changed, failed in ((by_hand, 1), (report(result("fast", NOW), namespace="bank"), 0)):
        kubectl_with(tmp_path, fake_kubectl, changed, report(result("fast", NOW)))
        assert failed == group.run(["report", "-A", "--fail-on", "violated"])


def test_a_name_with_brackets_is_no_markup(
    tmp_path: Path, fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl_with(tmp_path, fake_kubectl, report(replace(result("fast", NOW), probe="[/x]:dog:")))
    for command in ("top", "report"):
        assert not group.run([command, "-n", "shop"])
        assert "[/x]:dog:/fast" in capfd.readouterr().out
