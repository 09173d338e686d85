"""`latencyprobe run` as a process, with real programs and sockets."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.latencyprobe_agent.processes import DEADLINE_S, PROBE, Echo, started
from tests.support.otlp import OtlpSink, of_rpcs, points, spans
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

GOOD = ("latencyprobe.slo.events", "echo", "echo", "fast", "server", "good")
PAIRS = ("latencyprobe.pairs", "echo", "echo", "client", "local")


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo(free_port())
    yield server
    server.close()


def counters_of(sink: OtlpSink) -> Counter[tuple[str, ...]]:
    """Return the newest value of each counter by metric and its attributes, resources added up; without the namespace
    and the digest of an objective's definition."""
    left_out = ("latencyprobe.probe.namespace", "latencyprobe.objective.definition")
    found: Counter[tuple[str, ...]] = Counter()
    for series, point in points(sink.bodies("metrics")).items():
        labels = [value for name, value in series.labels if name not in left_out]
        found[series.metric, *labels] += int(point.value)
    return found


def test_run_measures_every_rpc_links_its_halves_and_reports(echo: Echo, otlp_sink: OtlpSink, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--otlp", otlp_sink.url)
    agent = started("run", *arguments, "-o", "json", OTEL_METRIC_EXPORT_INTERVAL="500")
    assert agent.stderr
    assert "measuring echo" in agent.stderr.readline()
    echo.ask(500)
    echo.ask(7)
    # at its end it gives the collector a second
    wait_until(lambda: len(of_rpcs(otlp_sink.bodies("traces"))) == 2 * 507, "the spans")
    wait_until(lambda: counters_of(otlp_sink)[GOOD] == counters_of(otlp_sink)[PAIRS] == 507, "the counts")
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    assert "507 RPCs" in err
    assert "507 pairs, 0 lost" in err

    (result,) = json.loads(out)["results"]
    assert (result["events"], result["bad"], result["state"]) == (507, 0, "Met")
    assert result["coverage"]["joined"] == 507

    by_trace: dict[bytes, dict[int, tuple[dict[str, Any], Span]]] = {}
    for resource, span in spans(otlp_sink.bodies("traces")):
        by_trace.setdefault(span.trace_id, {})[span.kind] = resource, span
    assert len(by_trace) == 507
    for halves in by_trace.values():
        client, server = halves[Span.SPAN_KIND_CLIENT], halves[Span.SPAN_KIND_SERVER]
        assert server[1].parent_span_id == client[1].span_id
        assert server[0]["process.pid"] == echo.process.pid
        assert server[0]["service.name"].startswith("python")
        starts = [half[1].start_time_unix_nano for half in (client, server)]
        assert starts[0] < starts[1] < client[1].end_time_unix_nano
    counters = counters_of(otlp_sink)
    assert (counters[GOOD], counters[PAIRS]) == (507, 507)


def test_a_port_is_enough_to_measure(echo: Echo, tmp_path: Path) -> None:
    agent = started("run", "--port", str(echo.port), "--store", str(tmp_path / "sli.db"), "-o", "json")
    assert agent.stderr
    assert f"measuring port-{echo.port} (port {echo.port})" in agent.stderr.readline()
    echo.ask(200)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    (result,) = json.loads(out)["results"]
    assert (result["objective"], result["events"]) == (f"port-{echo.port}-fast", 200)


def test_an_absent_collector_is_one_message_and_delays_nothing(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "-o", "json")
    agent = started("run", *arguments, "--otlp", f"http://127.0.0.1:{free_port()}", OTEL_METRICS_EXPORTER="none")
    assert agent.stderr
    agent.stderr.readline()
    echo.ask(50)
    told = agent.stderr.readline()
    assert "Connection refused: no spans delivered" in told
    echo.ask(50)
    agent.send_signal(signal.SIGTERM)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert json.loads(out)["results"][0]["events"] == 100
    assert err.count("Connection refused") == 0
    assert "200 spans could not be delivered" in err


def test_run_ends_by_itself_after_its_duration(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--duration", "300ms")
    out, err = started("run", *arguments).communicate(timeout=DEADLINE_S)
    assert "needs 100 events to judge, has 0" in out
    assert "0 RPCs" in err


@pytest.mark.parametrize("every", [False, True])
def test_above_the_limit_the_report_says_how_many_rpcs_were_recorded(every: bool, echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=echo.port))
    arguments = ["-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), *["--every"] * every]
    agent = started("run", *arguments, "-o", "json", LATENCYPROBE_RECORDS_PER_SECOND="10")
    assert agent.stderr
    agent.stderr.readline()
    echo.ask(2000)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    (result,) = json.loads(out)["results"]
    sampled_out, joined = result["coverage"].get("sampledOut", 0), result["coverage"]["joined"]
    assert (result["events"], result["coverage"]["ratio"], result["coverage"]["recordsLost"]) == (2000, "100", 0)
    assert (sampled_out > 1000) == ("records sampled out" in err) == (not every)
    assert 0 <= 2000 - sampled_out - joined <= 200 * (not every), "what was recorded is joined, but where levels change"
