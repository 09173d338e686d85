"""What is attached while a slice runs: nothing, empty hooks, the programs on other sockets or on these, evidence."""

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, Role, SpanPolicy, Target, TargetPod
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.table import EVIDENCE, Signal

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
OBJECTS = ROOT / "build" / "bpf"
OTHER_CGROUP = 2**63 - 1  # id of no cgroup
Batches = list[NDArray[np.void]]


def build() -> None:
    """Compile the empty hooks and the ping-pong."""
    BUILD.mkdir(parents=True, exist_ok=True)
    source = ROOT / "benchmarks"
    includes = [word for path in Path("/usr/include").glob("*-linux-gnu") for word in ("-idirafter", str(path))]
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v2", *includes]
    subprocess.run(["clang-19", *flags, "-c", source / "empty.bpf.c", "-o", BUILD / "empty.bpf.o"], check=True)
    subprocess.run(["cc", "-O2", "-o", BUILD / "pingpong", source / "pingpong.c"], check=True)


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
def measuring(port: int, targeted: bool, kept: Batches | None = None) -> Iterator[None]:
    """Attach the real programs with a plan for `port` on this machine, or for a pod whose cgroup is not ours."""
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
        ports=(port,),
        clients=True,
        pods=(TargetPod("pod", (port,)),),
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=(), host=targeted)
    with Programs.open(OBJECTS / "exchange.bpf.o") as programs:
        rules = compile_rules(plan, {"pod": [OTHER_CGROUP]})
        programs.apply(rules, idle_timeout_ns=2_000_000_000, own_tgid=0, owner_by_process=False)
        with drained(programs, kept):
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


Variant = Callable[[], AbstractContextManager[None]]


def variants(port: int) -> dict[str, Variant]:
    """All of them by name; "none" twice, for the A/A control."""
    return {
        "none": nullcontext,
        "empty hooks": empty_hooks,
        "untargeted": lambda: measuring(port, targeted=False),
        "targeted": lambda: measuring(port, targeted=True),
        "none again": nullcontext,
    }


def evidence(port: int) -> dict[str, Variant]:
    """Each signal of evidence alone and all together; "none" twice, as above."""
    alone = {one.switch: partial(explaining, port, (one,)) for one in EVIDENCE}
    together = partial(explaining, port, EVIDENCE)
    return {"none": nullcontext, **alone, "all together": together, "none again": nullcontext}
