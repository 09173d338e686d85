"""Real Prometheus-compatible servers as children of a test, with what they are to know of the past.

Prometheus and VictoriaMetrics are those of Debian; `scripts/setup --test` installs both. Each is on a free loopback
port with files and a bounded memory of its own, and ends with the test, or with the test's process.
"""

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

from tests.support.ports import free_port
from tests.support.programs import needs
from tests.support.servers import running
from tests.support.waiting import wait_until

_ASK_S = 60
_BOUNDED = {"PATH": "/usr/bin:/bin", "GOMEMLIMIT": "256MiB", "GOMAXPROCS": "1"}
_WITH_US = ("setpriv", "--pdeathsig", "KILL")

needs_prometheus = needs("prometheus")
needs_victoria_metrics = needs("victoria-metrics")


class Series(NamedTuple):
    """Samples of one series: (Unix s, value), in the order of time. A counter's `name` ends in `_total`."""

    name: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


class Sample(NamedTuple):
    """What one series answered: its labels, and (Unix s, value), one of a `query`, one per step of a `query_range`."""

    labels: dict[str, str]
    values: list[tuple[float, float]]

    @property
    def value(self) -> float:
        return self.values[-1][1]


class Exemplar(NamedTuple):
    """One exemplar: the labels of its series, its own, and its value."""

    series: dict[str, str]
    labels: dict[str, str]
    value: float


class Server(NamedTuple):
    """A server that answers the HTTP API of Prometheus at `url`."""

    url: str

    def query(self, expression: str, at_s: float | None = None) -> list[Sample]:
        """What it answers at one moment (Unix s, now if `None`), for an instant vector."""
        at = {} if at_s is None else {"time": at_s}
        return [Sample(one["metric"], [_pair(one["value"])]) for one in self._ask("query", expression, at)]

    def query_range(self, expression: str, since_s: float, until_s: float, step_s: float) -> list[Sample]:
        """What it answers at each step of a span, both ends included."""
        span = {"start": since_s, "end": until_s, "step": step_s}
        found = self._ask("query_range", expression, span)
        return [Sample(one["metric"], [_pair(pair) for pair in one["values"]]) for one in found]

    def exemplars(self, expression: str, since_s: float, until_s: float) -> list[Exemplar]:
        """The exemplars of all series that an expression selects."""
        found = self._data("query_exemplars", expression, {"start": since_s, "end": until_s})
        return [
            Exemplar(of["seriesLabels"], one["labels"], float(one["value"])) for of in found for one in of["exemplars"]
        ]

    def _ask(self, what: str, expression: str, more: Mapping[str, float]) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self._data(what, expression, more)["result"]
        return result

    def _data(self, what: str, expression: str, more: Mapping[str, float]) -> Any:
        asked = {"query": expression, **more}
        answer = requests.post(f"{self.url}/api/v1/{what}", data=asked, timeout=_ASK_S)
        assert answer.ok, f"{expression}: {answer.status_code}: {answer.text[:2000]}"
        return answer.json()["data"]


def openmetrics(series: Iterable[Series]) -> str:
    """Series as OpenMetrics text: counters where the name says so, else gauges."""
    lines = []
    for name, same in groupby(sorted(series, key=lambda one: one.name), key=lambda one: one.name):
        kind = "counter" if name.endswith("_total") else "unknown"
        lines.append(f"# TYPE {name.removesuffix('_total')} {kind}")
        lines += [f"{_written(one)} {value:.15g} {at:.15g}" for one in same for at, value in one.samples]
    return "\n".join([*lines, "# EOF", ""])


@contextmanager
def prometheus(
    folder: Path, backfill: str = "", *, scraping: Callable[[], str] | None = None, options: Sequence[object] = ()
) -> Iterator[Server]:
    """A Prometheus that has the samples of an OpenMetrics text (each with its time in Unix s), and that scrapes, once a
    second, what `scraping` exposes. `folder`: an empty one for its files."""
    folder.mkdir(parents=True, exist_ok=True)
    port, data = free_port(), folder / "data"
    if backfill:
        (folder / "backfill.txt").write_text(backfill)
        blocks = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", folder / "backfill.txt", data)
        done = subprocess.run(blocks, check=False, capture_output=True, text=True, env=_BOUNDED)
        assert done.returncode == 0, done.stdout + done.stderr
    with ExitStack() as stack:
        targets = [f"127.0.0.1:{stack.enter_context(exposed(scraping))}"] if scraping else []
        jobs = [{"job_name": "scraped", "static_configs": [{"targets": targets}]}] if targets else []
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        words = (
            *("prometheus", f"--config.file={folder}/prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"),
            *(f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=10y", "--query.max-samples=5000000"),
            *("--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h"),  # nothing to compact
        )
        stack.enter_context(_running(*words, *options, port=port, log=folder / "log"))
        server = Server(f"http://127.0.0.1:{port}")
        _wait_until_ready(f"{server.url}/-/ready", folder / "log")
        yield server


@contextmanager
def victoria_metrics(folder: Path, backfill: str = "", *, options: Sequence[object] = ()) -> Iterator[Server]:
    """A VictoriaMetrics that has the samples of the same text."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    words = (
        *("victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={folder}/data"),
        *("-retentionPeriod=10y", "-memory.allowedBytes=128MB", "-search.latencyOffset=0s"),
    )
    with _running(*words, *options, port=port, log=folder / "log"):
        server = Server(f"http://127.0.0.1:{port}")
        _wait_until_ready(f"{server.url}/health", folder / "log")
        if backfill:
            body = "".join(map(_with_ms, backfill.splitlines()))
            answer = requests.post(f"{server.url}/api/v1/import/prometheus", data=body.encode(), timeout=_ASK_S)
            assert answer.ok, answer.text[:2000]
            for what in ("force_flush", "resetRollupResultCache"):
                assert requests.get(f"{server.url}/internal/{what}", timeout=_ASK_S).ok, what
        yield server


@contextmanager
def exposed(exposition: Callable[[], str]) -> Iterator[int]:
    """The port of a target that exposes what `exposition` returns whenever it is scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition().encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _running(*words: object, port: int, log: Path) -> Iterator[None]:
    with running(*_WITH_US, *words, port=port, env=_BOUNDED, timeout_s=60, log=log):
        yield


def _wait_until_ready(address: str, log: Path) -> None:
    wait_until(
        lambda: requests.get(address, timeout=_ASK_S).ok,
        f"{address} is ready",
        60,
        unready=requests.ConnectionError,
        seen=lambda: log.read_text()[-2000:],
    )


def _written(series: Series) -> str:
    """A series as the text formats write it."""
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in series.labels.items())
    return f"{series.name}{{{labels}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _with_ms(line: str) -> str:
    """A line of OpenMetrics as Prometheus's older text format has it, whose times are in ms."""
    if line.startswith("#"):
        return ""
    rest, at = line.rsplit(" ", 1)
    return f"{rest} {round(float(at) * 1000)}\n"


def _pair(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
