"""Who listens to an agent's turns: the reports always, spans and metrics where somebody asked for OTLP."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.loop.agent import Audience
from latencyprobe_agent.loop.control import Control
from latencyprobe_agent.measure.turn import Listener
from latencyprobe_agent.signals.evidence import Stack
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.symbols.kallsyms import KernelNames
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.telemetry.endpoints import Settings
from latencyprobe_agent.vocabulary.now import Now

_STOP_TIMEOUT_S = 2.0  # for a collector that does not answer


class Export(NamedTuple):
    """Where to export, nowhere by default. `shared_key`: another host was given the same pairing key."""

    endpoints: tuple[Settings, ...] = ()
    delta: bool = False
    shared_key: bool = False


def audience(
    config: Config,
    control: Control,
    export: Export,
    more: Callable[[], Sequence[Listener]] = lambda: (),
    guard: Guard | None = None,
) -> Audience:
    """Return the listeners of an agent. `more`: makes others, once the programs count. `guard`: who measures on where
    nothing can be exported, for want of gRPC or of a file; without one that ends it."""

    @contextmanager
    def opened(start: Now) -> Iterator[Sequence[Listener]]:
        listeners: list[Listener] = [SliRows(control.take, config.upload_interval_s, control.peers), *more()]
        with ExitStack() as stack:

            def exporting() -> Sequence[Listener]:
                # Here and not above: protobuf and HTTP are loaded while the programs already count.
                from latencyprobe_agent.telemetry.export import Exporters  # noqa: PLC0415
                from latencyprobe_agent.telemetry.span_evidence import Names  # noqa: PLC0415

                symbols = stack.enter_context(Symbolizer())

                def of_program(of: Stack) -> list[str]:
                    return symbols.user(of.tgid, inside_calls(of.addresses), taken_ns=of.taken_ns)

                exporters = Exporters(
                    export.endpoints,
                    config,
                    control.peers,
                    start,
                    delta=export.delta,
                    shared_key=export.shared_key,
                    stop_timeout_s=_STOP_TIMEOUT_S,
                    naming=Names(KernelNames(), of_program),
                    undelivered=control.undelivered,
                )
                return stack.enter_context(exporters).listeners

            if export.endpoints:
                listeners += (guard.run("export", exporting, once=True) if guard else exporting()) or ()
            yield listeners

    return Audience(opened, sampling=any(one.signal == "traces" for one in export.endpoints))
