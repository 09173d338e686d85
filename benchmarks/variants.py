"""What the bench attaches to the kernel while a slice runs: nothing, empty hooks, the programs on other sockets or on
these, evidence."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.builds import BUILD, OBJECTS
from benchmarks.rounds import Variant
from latencyprobe.plan import NodePlan, Role, SpanPolicy, Target, TargetPod, WaitPolicy
from latencyprobe_agent.config import Config
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.table import EVIDENCE, WAITS, Signal

OTHER_CGROUP = 2**63 - 1  # id of no cgroup
Batches = list[NDArray[np.void]]


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
    waits: bool = False,
    kept: Batches | None = None,
) -> Iterator[None]:
    """Attach the real programs with a plan for `ports` on this machine, or for a pod whose cgroup is not ours.

    `every_record`: without the default limit of records. `waits`: and those of servers that are longer than 20 ms.
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
        evidence=WAITS.asked_by if waits else (),
        waits=WaitPolicy(slow_call_ns=20_000_000, slow_offcpu_ns=20_000_000, stacks=True),
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=(), host=targeted)
    with Programs.open(OBJECTS / "exchange.bpf.o") as programs:
        rules = compile_rules(plan, {"pod": [OTHER_CGROUP]})
        limit = 0 if every_record else Config().records_per_second
        programs.apply(
            rules, idle_timeout_ns=2_000_000_000, own_tgid=0, owner_by_process=False, records_per_second=limit
        )
        with ExitStack() as stack:
            stack.enter_context(drained(programs, kept))
            if waits:
                beside = stack.enter_context(EvidencePrograms.beside(programs, OBJECTS, WAITS))
                stack.enter_context(drained(beside))
            yield
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
def drained(programs: Attached, kept: Batches | None = None) -> Iterator[None]:
    """Read the records, as an agent would, and drop them, or keep them in `kept`; none may be lost."""
    ended = threading.Event()

    def drain() -> None:
        while not ended.wait(0.05):
            while len(batch := programs.drain()):
                if kept is not None:
                    kept.append(batch)

    drainer = threading.Thread(target=drain)
    drainer.start()
    try:
        yield
    finally:
        ended.set()
        drainer.join()
        assert not any(programs.lost().values()), programs.lost()


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


def waiting(port: int) -> dict[str, Variant]:
    """Measuring, and with it waits, of which none is long enough for a record of it."""
    return {
        "measuring": partial(measuring, (port,), targeted=True),
        "measuring, waits": partial(measuring, (port,), targeted=True, waits=True),
        "measuring again": partial(measuring, (port,), targeted=True),
    }
