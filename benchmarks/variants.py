"""What the bench attaches to the kernel while a slice runs: nothing, empty hooks, the programs on other sockets or on
these, evidence."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.builds import BUILD, OBJECTS
from benchmarks.rounds import Variant
from latencyprobe.plan import NodePlan, Role, SpanPolicy, Target, TargetPod, WaitPolicy
from latencyprobe.protocol import Protocol
from latencyprobe_agent.config import Config
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.table import EVIDENCE, WAITS, Signal
from latencyprobe_agent.vocabulary.records import Lost

OTHER_CGROUP = 2**63 - 1  # id of no cgroup
Batches = list[NDArray[np.void]]
_NEVER_NS = 2**63
_NO_WAIT = WaitPolicy(slow_call_ns=_NEVER_NS, slow_offcpu_ns=_NEVER_NS, stacks=True)


@dataclass
class Taken:
    """How many records have been read so far."""

    records: int = 0


@contextmanager
def empty_hooks() -> Iterator[None]:
    """Attach programs that only return: the dispatch floor."""
    opened = Object(BUILD / "empty.bpf.o")
    try:
        opened.load()
        links = [program.attach() for program in opened.programs()]
        try:
            yield
        finally:
            for link in links:
                link.close()
    finally:
        opened.close()


@contextmanager
def measuring(
    ports: Sequence[int],
    targeted: bool,
    *,
    every_record: bool = False,
    waits: WaitPolicy | None = None,
    watched: bool = True,
    kept: Batches | None = None,
    protocol: Protocol = Protocol.TURNS,
) -> Iterator[Taken]:
    """Attach the real programs with a plan for `ports` on this machine, or for a pod whose cgroup is not ours.

    `every_record`: without the default limit of records. `waits`: those of servers as well, which are read; not
    `watched`: attached, but no target asks for them.
    """
    target = Target(
        id="bench/bench/server",
        namespace="bench",
        probe="bench",
        probe_uid="",
        name="server",
        role=Role.SERVER,
        thresholds_ns=(25_000_000,),
        setup_turns=0,
        spans=SpanPolicy(slower_than_ns=25_000_000, ratio=0.01, max_per_second=100),
        ports=tuple(ports),
        clients=True,
        pods=(TargetPod("pod", tuple(ports)),),
        evidence=WAITS.asked_by if waits and watched else (),
        waits=waits or _NO_WAIT,
        protocol=protocol,
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=(), host=targeted)
    rules, http2 = compile_rules(plan, {"pod": [OTHER_CGROUP]}), protocol is Protocol.HTTP2
    with Programs.open(OBJECTS / "exchange.bpf.o") as programs:
        with ExitStack() as stack:
            if http2:
                stack.enter_context(Http2Programs.beside(programs, OBJECTS))
            programs.apply(
                rules,
                idle_timeout_ns=2_000_000_000,
                own_tgid=0,
                owner_by_process=False,
                records_per_second=0 if every_record else Config().records_per_second,
                http2=http2,
            )
            taken = stack.enter_context(drained(programs, kept))
            if waits:
                beside = stack.enter_context(EvidencePrograms.beside(programs, OBJECTS, WAITS))
                taken = stack.enter_context(drained(beside))
            yield taken
        assert targeted == bool(len(programs.counts()[0])), "the slice was not what it says"


@contextmanager
def explaining(port: int, signals: Sequence[Signal]) -> Iterator[None]:
    """Attach signals of evidence for the sockets of `port`, each as its tool does."""
    with ExitStack() as stack:
        for signal in signals:
            stack.enter_context(
                drained(stack.enter_context(EvidencePrograms.alone(OBJECTS, signal, Filter(port=port))))
            )
        yield


@contextmanager
def drained(
    programs: Attached, kept: Batches | None = None, also: Callable[[], object] = lambda: None
) -> Iterator[Taken]:
    """Read the records, as an agent would, and drop them, or keep them in `kept`; none may be lost but by a limit.

    `also`: what else is to be read each time.
    """
    ended, taken = threading.Event(), Taken()

    def drain() -> None:
        while not ended.wait(0.05):
            while len(batch := programs.drain()):
                taken.records += len(batch)
                if kept is not None:
                    kept.append(batch)
            also()

    drainer = threading.Thread(target=drain)
    drainer.start()
    try:
        yield taken
    finally:
        ended.set()
        drainer.join()
        lost = {why: n for why, n in programs.lost().items() if n and why != Lost.LIMIT.name.lower()}
        assert not lost, lost


def with_control(variants: dict[str, Variant]) -> dict[str, Variant]:
    """These between "none" and, for the A/A control, "none again"."""
    return {"none": nullcontext, **variants, "none again": nullcontext}


def kernel_alone(port: int) -> dict[str, Variant]:
    """The hooks, and the programs behind them, without the agent's other work."""
    return with_control(
        {
            "empty hooks": empty_hooks,
            "untargeted": partial(measuring, (port,), targeted=False),
            "targeted": partial(measuring, (port,), targeted=True),
            "every record": partial(measuring, (port,), targeted=True, every_record=True),
        }
    )


def evidence(port: int) -> dict[str, Variant]:
    """Each signal of evidence alone and all together; waits, which explain what is measured, beside measuring."""
    alone = {one.switch: partial(explaining, port, (one,)) for one in EVIDENCE}
    return with_control({**alone, "all together": partial(explaining, port, EVIDENCE), **waiting(port)})


def http2(port: int) -> dict[str, Variant]:
    """By turns, which cannot tell calls that overlap, and by stream."""
    by_stream = partial(measuring, (port,), targeted=True, protocol=Protocol.HTTP2)
    return with_control(
        {
            "by turns": partial(measuring, (port,), targeted=True),
            "by stream": by_stream,
            "by stream, every record": partial(by_stream, every_record=True),
        }
    )


def waiting(port: int) -> dict[str, Variant]:
    """Measuring, and with it waits: asked for by no target, none long enough for a record, above 20 ms and 0.2 ms."""
    alone = partial(measuring, (port,), targeted=True)
    usual = WaitPolicy(slow_call_ns=20_000_000, slow_offcpu_ns=20_000_000, stacks=True)
    small = WaitPolicy(slow_call_ns=200_000, slow_offcpu_ns=200_000, stacks=True)
    return {
        "measuring": alone,
        "measuring, waits of nobody": partial(alone, waits=_NO_WAIT, watched=False),
        "measuring, waits, nothing above the threshold": partial(alone, waits=_NO_WAIT),
        "measuring, waits above 20 ms with stacks": partial(alone, waits=usual),
        "measuring, waits above 0.2 ms with stacks": partial(alone, waits=small),
        "measuring again": alone,
    }


def waiting_elsewhere(port: int) -> dict[str, Variant]:
    """The same for a load that is no target's."""
    alone = partial(measuring, (port,), targeted=False)
    return {"measuring": alone, "measuring, waits": partial(alone, waits=_NO_WAIT), "measuring again": alone}
