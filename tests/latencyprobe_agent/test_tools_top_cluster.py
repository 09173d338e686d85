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
from latencyprobe.report import build, headline, model, units
from latencyprobe.slo.evaluate import State
from latencyprobe_agent.tools.top import cluster, screen
from latencyprobe_agent.tools.top.view import Row, View
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


def drawn(rows: Sequence[Row], width: int) -> str:
    file = io.StringIO()
    screen.print_plain(Console(file=file, width=width), View(), rows, Text(), screen.CLUSTER)
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


@pytest.mark.parametrize("args", [["-n", "shop", "-A"], ["-n", "shop", "--port", "80"]])
def test_a_cluster_and_a_host_exclude_each_other(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["top", *args]) == 2
    assert "exclude each other" in capfd.readouterr().err
