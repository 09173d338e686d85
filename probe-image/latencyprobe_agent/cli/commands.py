"""The agent's commands for a person: `run` and `plan` on this host, `doctor` also in a cluster.

Imports that not every command needs stand inside: `run` has 0.8 s from its start until it measures.
"""

import os
from pathlib import Path

import click
import msgspec

from latencyprobe import asked
from latencyprobe.errors import LatencyProbeError
from latencyprobe.options import DURATION, FILE, OUTPUT
from latencyprobe.plan import NodePlan, Target
from latencyprobe.protocol import Protocol
from latencyprobe_agent import config as settings
from latencyprobe_agent.telemetry.endpoints import delta_requested, endpoints


@click.command(
    epilog="""\b
Examples:
  latencyprobe run --port 6379
  latencyprobe run --port 50051 --protocol HTTP2 --threshold 25ms
  latencyprobe run -f examples/redis.yaml
  latencyprobe run -f examples/redis.yaml --duration 1m -o json
  latencyprobe run -f examples/redis.yaml --otlp http://localhost:4318
  latencyprobe run -f examples/redis.yaml --every
\b
Measures until Ctrl-C, SIGTERM or the end of --duration, then prints the report.
Needs root, or CAP_BPF and CAP_PERFMON. All OTEL_EXPORTER_OTLP_* variables are honoured.
"""
)
@asked.file_or_ports
@click.option("--threshold", metavar="DURATION", help="With --port: an RPC is good within this time. Default: 100ms.")
@click.option(
    "--protocol",
    type=click.Choice(list(Protocol)),
    help="With --port: how RPCs are told. Default: Turns; HTTP2 on 50051.",
)
@click.option(
    "--otlp", metavar="URL", help="Export spans and metrics to this collector, such as http://localhost:4318."
)
@click.option("--store", type=click.Path(path_type=Path), metavar="FILE", help="Keep the counts here, not in your own.")
@DURATION
@click.option(
    "--every",
    is_flag=True,
    help="Record every RPC. Default: slow and failed ones, and 5,000 records a second of others. Counts are of all.",
)
@click.option("--pair-key", metavar="TEXT", help="The same text on two hosts links their halves. Default: random.")
@OUTPUT
def run(
    *,
    file: Path | None,
    ports: tuple[int, ...],
    threshold: str | None,
    protocol: str | None,
    otlp: str | None,
    store: Path | None,
    duration: float | None,
    every: bool,
    pair_key: str | None,
    output: str,
) -> None:
    """Measure the RPCs of this host, without a cluster."""
    from latencyprobe.store import SqliteStore, default_path  # noqa: PLC0415
    from latencyprobe_agent.cli.audience import Export  # noqa: PLC0415
    from latencyprobe_agent.cli.run import Run  # noqa: PLC0415
    from latencyprobe_agent.identity.local import local_plan, pairing_key  # noqa: PLC0415

    config = settings.from_environment()
    if every:
        config = msgspec.structs.replace(config, records_per_second=0)
    probes = asked.probes(file, ports, threshold, protocol)
    plan, notices = local_plan(probes, config.node, pairing_key(pair_key))
    exported = endpoints(os.environ, otlp)
    export = Export(exported, delta_requested(os.environ, exported), shared_key=pair_key is not None)
    for notice in notices:
        click.echo(f"latencyprobe: {notice}", err=True)
    if not plan.targets:
        raise LatencyProbeError(f"{file}: nothing to measure: every LatencyProbe in it is suspended")
    with SqliteStore(store or default_path()) as opened, Run(probes, opened) as this:
        this.measure(config, plan, export, duration)
        this.report(output)


@click.command(
    epilog="""\b
Examples:
  latencyprobe doctor
  kubectl -n latencyprobe-agents exec ds/latencyprobe-agent -- latencyprobe doctor
"""
)
@OUTPUT
def doctor(output: str) -> int:
    """Show what this kernel, these capabilities and this configuration can do.

    Each line is ok, or says what is missing, what follows (so) and what to do (do). Exits 0 where RPCs can be measured,
    also where something is missing (warn), and 1 where nothing can be (fail).
    """
    from latencyprobe_agent.cli.doctor import Verdict, examine  # noqa: PLC0415

    colours = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}
    failed = False
    for finding in examine(settings.from_environment(), os.environ):
        failed |= finding.verdict is Verdict.FAIL
        if output == "json":
            click.echo(msgspec.json.encode(finding).decode())
            continue
        mark = click.style(f"{finding.verdict.value:<5}", fg=colours[finding.verdict])
        click.echo(f"{mark} {finding.subject:<19} {finding.detail}")
        for lead, text in (("so", finding.consequence), ("do", finding.remedy)):
            if text:
                click.echo(f"{'':<25} {lead}: {text}")
    return int(failed)


@click.command(
    epilog="""\b
Examples:
  latencyprobe plan -f examples/redis.yaml
  latencyprobe plan -f examples/redis.yaml -o json | jq .targets
"""
)
@FILE
@OUTPUT
def plan(file: Path, output: str) -> None:
    """Show what `run` would measure on this host with a file, and what it would not."""
    from latencyprobe import parsing  # noqa: PLC0415
    from latencyprobe.listening import listening_ports  # noqa: PLC0415
    from latencyprobe_agent.identity.local import local_plan  # noqa: PLC0415

    config = settings.from_environment()
    made, notices = local_plan(parsing.load_file(file), config.node, b"")
    if output == "json":
        click.echo(msgspec.json.encode(made).decode())
        return
    listening = listening_ports()
    for target in made.targets:
        click.echo(click.style(target.id, bold=True))
        for line in _describe(made, target, listening):
            click.echo(f"  {line}")
    for notice in notices:
        click.echo(f"note: {notice}")


def _describe(made: NodePlan, target: Target, listening: frozenset[int]) -> list[str]:
    from latencyprobe.report import units  # noqa: PLC0415

    ports = ", ".join(map(str, target.ports)) or "any"
    lines = []
    if target.role == "Server":
        absent = [port for port in target.ports if port not in listening]
        now = f" (nothing listens on {', '.join(map(str, absent))} in this network namespace now)" if absent else ""
        lines.append(f"servers: sockets of this host with local port {ports}{now}")
    if target.role == "Client" or target.clients:
        lines.append(f"clients: sockets of this host that connected to port {ports}")
    policy = target.spans
    share = f", and {policy.ratio:.4g} of the others" if policy.ratio else ""
    slow = units.duration(policy.slower_than_ns)
    lines.append(f"spans:   failed ones, those over {slow}{share}; at most {policy.max_per_second}/s")
    for objective in made.objectives:
        if objective.target == target.id:
            threshold = units.duration(target.thresholds_ns[objective.threshold_index])
            side = objective.perspective.value.lower()
            lines.append(
                f"goal:    {objective.name}: {objective.goal}% within {threshold} ({side}, {objective.window})"
            )
    return lines
