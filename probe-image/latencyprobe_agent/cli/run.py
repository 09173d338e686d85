"""`latencyprobe run`: this host alone, with a live line while it measures and the report at its end."""

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

import click
import msgspec

from latencyprobe.ending import ending
from latencyprobe.errors import StoreError
from latencyprobe.plan import NodePlan
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.spec import LatencyProbe
from latencyprobe.store import SqliteStore
from latencyprobe_agent.cli.audience import Export, audience
from latencyprobe_agent.config import Config
from latencyprobe_agent.kernel.libbpf import one_arena
from latencyprobe_agent.loop.agent import Agent
from latencyprobe_agent.loop.control import LocalControl
from latencyprobe_agent.measure.turn import Listener

_COMPACT_EVERY_S = 3600.0


class Run(AbstractContextManager["Run"]):
    """One run over `probes`, whose counts go to `store`. Within it, and once attached, SIGINT and SIGTERM end measuring
    and the report follows."""

    def __init__(self, probes: Sequence[LatencyProbe], store: SqliteStore) -> None:
        self._probes = probes
        self._store = store
        self._compacted = time.monotonic()
        self._problem = ""
        self._signals = ExitStack()
        for probe in probes:
            store.define(probe.namespace, probe.name, objectives(probe))

    def __exit__(self, *_: object) -> None:
        self._signals.close()

    def measure(self, config: Config, plan: NodePlan, export: Export, duration_s: float | None) -> None:
        """Measure until Ctrl-C, SIGTERM or the end of the duration. Raises Unsupported when this host cannot."""

        def live() -> Sequence[Listener]:
            self._signals.enter_context(ending(agent.stop))
            # Rich takes 30 ms to import: the programs count already.
            from rich.console import Console  # noqa: PLC0415

            from latencyprobe_agent.cli.live import LiveLine, LogAbove  # noqa: PLC0415

            console = Console(stderr=True)
            logging.basicConfig(level=logging.WARNING, handlers=[LogAbove(console)], force=True)
            ports = ", ".join(f"{target.name} ({_ports(target.ports)})" for target in plan.targets)
            console.print(f"measuring {ports}; Ctrl-C ends with the report", highlight=False, soft_wrap=True)
            return (LiveLine(console),)

        one_arena()
        control = LocalControl(plan, self._keep)
        agent = Agent(config, control, audience(config, control, export, live))
        agent.run(duration_s)

    def report(self, output: str) -> None:
        """Print the report of this file's LatencyProbes, one document per namespace."""
        from latencyprobe.output import figures_console  # noqa: PLC0415 - as above
        from latencyprobe.report import build, table  # noqa: PLC0415 - only now needed

        now = int(time.time()) + 1  # what happened in this very second belongs to it
        namespaces = sorted({probe.namespace for probe in self._probes})
        for namespace in namespaces:
            mine = [o for probe in self._probes if probe.namespace == namespace for o in objectives(probe)]
            document = build.document(namespace, build.build(self._store, mine, now))
            if output == "json":
                click.echo(msgspec.json.encode(document).decode())
            else:
                table.render(document, figures_console(), namespace if len(namespaces) > 1 else "")

    def _keep(self, rows: Sequence[SliRow]) -> None:
        try:
            self._store.add(rows)
            if time.monotonic() - self._compacted > _COMPACT_EVERY_S:
                self._compacted = time.monotonic()
                self._store.compact(int(time.time()))
        except StoreError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logging.getLogger(__name__).error("%s: the report will miss these counts", error)


def _ports(ports: Sequence[int]) -> str:
    return f"port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))}" if ports else "every port"
