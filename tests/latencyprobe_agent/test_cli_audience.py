"""Who listens: where nothing can be exported, counts are kept all the same."""

import sys

import pytest

from latencyprobe_agent.cli.audience import Export, audience
from latencyprobe_agent.config import Config, ConfigError
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.telemetry.endpoints import endpoints
from latencyprobe_agent.vocabulary.now import Now

GRPC = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def test_an_agent_without_grpc_that_is_asked_for_it_measures_and_exports_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its image has none."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    guard, export = Guard(), Export(endpoints(GRPC))
    with audience(Config(), FakeControl(), export, guard=guard).open(Now(0, 0)) as listeners:
        assert [listener.name for listener in listeners] == ["sli"]
    assert guard.failures == {"export": 1}
    assert "OTEL_EXPORTER_OTLP_PROTOCOL: grpc needs" in caplog.text
    with pytest.raises(ConfigError), audience(Config(), FakeControl(), export).open(Now(0, 0)):
        pass
