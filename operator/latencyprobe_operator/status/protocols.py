"""What is wrong with a target's `protocol`: pure, from what the agents reported."""

from collections import Counter

from latencyprobe.protocol import Protocol
from latencyprobe.report.now import share
from latencyprobe.variants import HTTP2, LACKING
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.targets import Resolved
from latencyprobe_operator.status.placement import some

BY_STREAM = frozenset({"unary", "streaming"})  # classes of calls that were told by stream
# classes that say nothing of how calls are told, or of what is no call
_OTHER = frozenset({"unknown", "setup", "teardown", "peer", "unsupported"})


def unsupported(resolved: Resolved, ready: list[str], agents: Agents) -> str:
    """Return on which of these nodes no streams can be told, empty if everywhere, or if nobody asks for it."""
    nodes = sorted(node for node in ready if agents.of[node].status.variants.get(HTTP2) == LACKING)
    if not nodes or not any(target.protocol is Protocol.HTTP2 for target in resolved.probe.spec.targets):
        return ""
    return (
        f"the kernel of {some(nodes)} gives no way to tell streams of HTTP/2 (Linux 6.12 and newer do): there its "
        "connections are measured by turns, and counted as multiplexed where calls overlap"
    )


def mismatch(resolved: Resolved, ready: list[str], agents: Agents) -> str:
    """Return which targets that say HTTP2 had connections of something else, empty if none did."""
    prefix, said = resolved.prefix, []
    for target in resolved.probe.spec.targets:
        if target.protocol is not Protocol.HTTP2:
            continue
        classes: Counter[str] = Counter()
        for node in ready:
            classes.update(agents.of[node].classes.get(prefix + target.name, {}))
        by_turn = sum(max(count, 0) for name, count in classes.items() if name not in BY_STREAM | _OTHER)
        if by_turn:
            total = by_turn + sum(max(classes[name], 0) for name in BY_STREAM)
            said.append(f"{share(by_turn, total)} % of the calls of target {target.name}")
    if not said:
        return ""
    return (
        f"{', '.join(said)} came on connections that are no HTTP/2 in clear text, and are measured by turns: TLS and "
        "the upgrade from HTTP/1.1 are not followed"
    )
