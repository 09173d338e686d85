"""`latencyprobe init`: writes a LatencyProbe to begin with."""

from typing import Any

import click
import msgspec

from latencyprobe import kubectl, listening, parsing, starting, yaml_text
from latencyprobe.errors import ClusterError

_HEADER = """\
# What to measure, and how fast it should be: set each threshold to what your users accept.
# All fields: kubectl explain latencyprobe.spec
"""
_WITHOUT_CALLERS = "# What callers saw, where they are measured too: latencyprobe init --callers\n"


@click.command(
    epilog="""\b
Examples:
  latencyprobe init deployment/web -n shop | kubectl apply -f -
  latencyprobe init service/cart -n shop --threshold 25ms > cart.yaml
  latencyprobe init service/cart -n shop --callers > cart.yaml
  latencyprobe init --port 6379 > redis.yaml; latencyprobe run -f redis.yaml
\b
KIND/NAME is read through kubectl: a Service, Deployment, StatefulSet or DaemonSet; its selector and ports are taken.
Of callers on this host, or in pods of the same namespace, --callers tells how long they waited, network included,
beside what servers took. Without such callers these objectives stay NoData.
"""
)
@click.argument("what", metavar="[KIND/NAME]", required=False)
@click.option("-n", "--namespace", help="Where it is. Default: that of kubectl's context.")
@click.option("--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="A port of this host; repeatable.")
@click.option("--threshold", default=starting.THRESHOLD, show_default=True, help="An RPC is good within this time.")
@click.option("--callers", is_flag=True, help="An objective of what callers saw, too.")
def init(what: str | None, namespace: str | None, ports: tuple[int, ...], threshold: str, callers: bool) -> None:
    """Write a LatencyProbe to begin with: of a Service, a workload, or ports of this host."""
    if bool(what) == bool(ports):
        raise click.UsageError(
            f"give KIND/NAME or --port: what to measure; {listening.told()}", click.get_current_context()
        )
    if namespace is not None and what is None:
        raise click.UsageError("-n goes with KIND/NAME: ports have no namespace", click.get_current_context())
    if what is None:
        document = starting.of_ports(ports, threshold=threshold, callers=callers)
    else:
        document = _of_cluster(what, namespace, threshold, callers)
    parsing.parse(document, source="what this would write")
    click.echo(_HEADER + ("" if callers else _WITHOUT_CALLERS) + yaml_text.dump(document), nl=False)


def _of_cluster(what: str, namespace: str | None, threshold: str, callers: bool) -> starting.Document:
    if what.count("/") != 1 or not all(what.split("/")):
        raise click.UsageError(f"{what!r} is no KIND/NAME such as deployment/web", click.get_current_context())
    asked = [what, *(["--namespace", namespace] if namespace else [])]
    printed = kubectl.get(asked)
    try:
        found = msgspec.json.decode(printed, type=dict[str, Any])
        return starting.of_object(found, threshold=threshold, callers=callers)
    except (msgspec.DecodeError, KeyError) as error:
        why = f"without {error}" if isinstance(error, KeyError) else error
        command = f"kubectl get {' '.join(asked)} --output json"
        raise ClusterError(f"kubectl printed no object of Kubernetes: {why}: see `{command}`") from error
