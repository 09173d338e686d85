"""reporting.py: what report prints of a Prometheus, by the objectives of a file."""

import json
import time
from pathlib import Path

import pytest

from latencyprobe import parsing
from latencyprobe.slo.objective import objectives
from tests.latencyprobe.commands_run import run
from tests.support.prometheus import Series, needs_prometheus, openmetrics, prometheus

SHOP = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {name: checkout, namespace: shop}
spec:
  targets: [{name: cart, ports: [8080]}]
  objectives: [{name: fast, target: cart, threshold: 25ms, goal: "99", window: 7d}]
"""


@needs_prometheus
def test_report_of_a_shared_store_is_of_the_objectives_of_a_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (objective,) = (found for probe in parsing.load_file(tmp_path / "shop.yaml") for found in objectives(probe))
    labels = {
        "latencyprobe_probe_namespace": "shop",
        "latencyprobe_probe": "checkout",
        "latencyprobe_target": "cart",
        "latencyprobe_objective": "fast",
        "latencyprobe_objective_definition": objective.key.hash,
        "latencyprobe_perspective": "server",
    }
    now = int(time.time())
    events = [
        Series("latencyprobe_slo_events_total", labels | {"latencyprobe_outcome": outcome}, samples)
        for outcome, each in (("good", 10), ("bad", 1))
        if (samples := [(now - 3600 + 60 * i, each * i) for i in range(61)])
    ]
    with prometheus(tmp_path / "server", openmetrics(events)) as server:
        asked = ("report", "--store", server.url, "-f", tmp_path / "shop.yaml")
        code, out, _ = run(capfd, *asked, "-o", "json", "--fail-on", "violated")
        (result,) = json.loads(out)["results"]
        assert (code, result["state"]) == (1, "Violated")
        assert 590 <= result["events"] - result["bad"] <= 610
        assert "slowest" in result["untold"]
        assert "not in the metrics" in run(capfd, *asked)[1]
        code, _, err = run(capfd, "report", "--store", f"{server.url}/no", "-f", tmp_path / "shop.yaml")
        assert (code, err.count("give the URL that /api/v1 follows")) == (1, 1)


def test_a_shared_store_needs_a_file_and_only_report_asks_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    for words in (("report", "--store", "http://p:9090"), ("slow", "--store", "http://p:9090")):
        code, _, err = run(capfd, *words)
        assert (code, "`report` asks for it with -f FILE" in err) == (2, True)
    code, _, err = run(capfd, "report", "-f", tmp_path / "shop.yaml")
    assert (code, "-f goes with --store http://" in err) == (2, True)
    code, _, err = run(capfd, "report", "--store", "http://me:secret@p", "-f", tmp_path / "shop.yaml")
    assert (code, "TOKEN_FILE" in err, "secret" in err) == (1, True, False)
