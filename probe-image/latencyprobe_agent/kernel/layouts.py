"""What the maps of the measuring programs hold, as bytes in the kernel's layout (bpf/events.h, bpf/maps.bpf.h)."""

import numpy as np

from latencyprobe.plan import DEFAULT_PAUSE_NS
from latencyprobe.protocol import Protocol
from latencyprobe_agent.measure.canary import CANARY_SET
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.vocabulary.records import RULE_KEY, SCOPE, TARGET_SET, StackOptionFlags
from latencyprobe_agent.vocabulary.records import Protocol as KernelProtocol


def scope(groups: tuple[int, int]) -> bytes:
    """Return the groups of a cgroup's server and client sockets."""
    return np.array(groups, SCOPE).tobytes()


def target_set(one: TargetSet, share: int, *, user_stacks: bool, http2: bool) -> bytes:
    """Return what a target set asks for; `share`: the number of its namespace's."""
    value = np.zeros((), TARGET_SET)
    value["share"] = share
    value["thresholds_ns"][: len(one.thresholds_ns)] = one.thresholds_ns
    value["slow_ns"] = min([*one.thresholds_ns, one.spans.slower_than_ns])
    value["pause_ns"], value["setup_turns"], value["evidence"] = one.pause_ns, one.setup_turns, one.evidence
    value["tls"] = one.tls
    value["slow_call_ns"], value["slow_offcpu_ns"] = one.waits.slow_call_ns, one.waits.slow_offcpu_ns
    stacks = (StackOptionFlags.KERNEL, one.waits.stacks), (StackOptionFlags.USER, one.waits.user_stacks and user_stacks)
    value["protocol"] = KernelProtocol.HTTP2 if http2 and one.protocol is Protocol.HTTP2 else KernelProtocol.TURNS
    value["wait_stacks"] = sum(flag for flag, wanted in stacks if wanted)
    return value.tobytes()


def canary_set() -> bytes:
    """Return the target set of the canary: a record of each exchange, whatever else is sampled."""
    value = np.zeros((), TARGET_SET)
    value["share"], value["pause_ns"] = CANARY_SET, DEFAULT_PAUSE_NS
    return value.tobytes()


def rule_key(address: bytes, group: int, port: int, side: int) -> bytes:
    """Return the key of a rule; `address`: 16 bytes."""
    return np.array((np.frombuffer(address, np.uint8), group, port, side, 0), RULE_KEY).tobytes()
