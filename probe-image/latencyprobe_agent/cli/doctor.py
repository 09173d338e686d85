"""What this kernel, these capabilities and this configuration can do: each finding with its consequence and remedy.

Receives the settings, returns findings. Programs are loaded and attached for a moment, without a plan: that proves more
than any version number, and measures nothing.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec

from latencyprobe.errors import AbiMismatch, DirectoryError, Unsupported
from latencyprobe_agent.config import Config, ConfigError
from latencyprobe_agent.identity.cgroups import CgroupTree, find_root
from latencyprobe_agent.identity.pressure import RESOURCES, find_hierarchies, tells_pressure
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.hooks import (
    KERNEL_BTF,
    KERNEL_BTF_VARIABLE,
    cannot_look_into_processes,
    missing_capabilities,
)
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.kernel.libbpf import NO_OBJECT_REMEDY
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.kernel.tracking import Knobs, TrackerPrograms
from latencyprobe_agent.signals.table import EVIDENCE, EvidenceSignal
from latencyprobe_agent.signals.trackers import TRACKERS, Tracker
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from latencyprobe_agent.telemetry.endpoints import delta_requested, endpoints
from latencyprobe_agent.vocabulary.records import StackOptionFlags

_REPORTED_ABOVE = ("MissingCapability", "KernelBtfMissing")
_NEWER = "use a newer kernel"
_TRACEABLE = "use a kernel whose functions can be traced (CONFIG_FUNCTION_TRACER=y), by this process"
_WITHOUT = {  # optional events: what is lost without each, and what to do
    "loss_probe": ("`retransmits --lossprobe` counts tail loss probes instead of showing each", _TRACEABLE),
    "cong_state": ("retransmits are not told as taken back (undo)", _NEWER),
    "waking": ("who waits for a processor and who for something else is not told apart", _NEWER),
    "uring": ("first answers through io_uring are not seen", _NEWER),
}


class Verdict(StrEnum):
    """`FAIL`: measuring is impossible. `WARN`: something is lost, measuring is possible."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """One line. `consequence` and `remedy` are empty where all is well."""

    subject: str
    verdict: Verdict
    detail: str
    consequence: str = ""
    remedy: str = ""


def examine(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings, cheapest first."""
    yield Finding("kernel", Verdict.OK, f"Linux {platform.release()} on {platform.machine()}")
    yield _capabilities(Path("/proc/self/status").read_text())
    yield _type_information(Path(environ.get(KERNEL_BTF_VARIABLE) or KERNEL_BTF))
    yield _objects(config.bpf_object)
    yield (programs := _programs(config))
    if programs.verdict is not Verdict.FAIL:
        yield _http2(config)
        yield from map(partial(_evidence, config), EVIDENCE)
        yield from map(partial(_tracker, config), TRACKERS)
    yield _symbols(Path("/proc/self/status").read_text())
    yield _cgroups(config)
    yield from _pressure(config)
    yield _directory(config)
    yield from _collector(environ)


def _capabilities(status: str) -> Finding:
    if missing := missing_capabilities(status):
        return Finding(
            "capabilities",
            Verdict.FAIL,
            f"{' and '.join(missing)} missing",
            "the kernel refuses to load programs",
            "run as root, or add BPF and PERFMON to the container's securityContext.capabilities",
        )
    return Finding("capabilities", Verdict.OK, "BPF and PERFMON")


def _type_information(btf: Path) -> Finding:
    if not btf.exists():
        return Finding(
            "type information",
            Verdict.FAIL,
            f"no {btf}",
            "programs cannot be fitted to this kernel",
            f"use a kernel built with CONFIG_DEBUG_INFO_BTF=y, or name a BTF file in {KERNEL_BTF_VARIABLE}",
        )
    return Finding("type information", Verdict.OK, f"{btf}, {btf.stat().st_size >> 10:,} KiB")


def _objects(first: Path) -> Finding:
    if not first.exists():
        return Finding("eBPF objects", Verdict.FAIL, f"no {first}", "there is nothing to load", NO_OBJECT_REMEDY)
    return Finding("eBPF objects", Verdict.OK, f"{len(list(first.parent.glob('*.bpf.o')))} in {first.parent}")


def _programs(config: Config) -> Finding:
    impossible = "nothing can be measured"
    try:
        with Programs.open(config.bpf_object, ring_bytes=config.ring_size) as programs:
            variants = _variants(programs)
            refused = "; ".join(f"{event} by {variant}: {why}" for (event, variant), why in programs.refused.items())
            room = 0 if "flush" in programs.variants else programs.map("connections").max_entries
    except Unsupported as error:
        if error.reason in _REPORTED_ABOVE:
            return Finding("programs", Verdict.FAIL, "not tried, see above", impossible)
        return Finding("programs", Verdict.FAIL, error.reason, impossible, _one_line(error))
    except AbiMismatch as error:
        return Finding("programs", Verdict.FAIL, "AbiMismatch", impossible, _one_line(error))
    detail = variants + (f" (not: {refused})" if refused else "")
    if room:
        return Finding(
            "programs",
            Verdict.WARN,
            f"no socket storage for tracing programs; {detail}",
            "a connection's last exchange ends with its next request or its close, not after the idle timeout; "
            f"beyond {room:,} open connections of targets, further ones are counted as lost",
            "use Linux 5.11 or newer",
        )
    return Finding("programs", Verdict.OK, detail)


def _evidence(config: Config, signal: EvidenceSignal) -> Finding:
    """Attach one signal as a tool would, with a filter that no socket passes."""
    nothing = Filter(tgid=0xFFFFFFFF)
    attach = partial(EvidencePrograms.alone, config.bpf_dir, signal, nothing)
    return _attached(signal.switch, attach, f"nothing explains RPCs by their {signal.switch}")


@contextmanager
def _http2_programs(config: Config) -> Iterator[Http2Programs]:
    """Attach them beside measuring programs that measure nothing."""
    with (
        Programs.open(config.bpf_object, ring_bytes=config.ring_size) as programs,
        Http2Programs.beside(programs, config.bpf_dir) as http2,
    ):
        yield http2


def _http2(config: Config) -> Finding:
    lost = "calls on HTTP/2 are measured by turns, whatever a target's `protocol` says"
    return _attached("HTTP/2", partial(_http2_programs, config), lost)


def _tracker(config: Config, tracker: Tracker) -> Finding:
    """Attach one tracker as its tool would, with all that may be asked of it, following nobody."""
    stacks = ~StackOptionFlags(0) if tracker.stacks else StackOptionFlags(0)
    attach = partial(TrackerPrograms.open, config.bpf_dir, tracker, Knobs(0, tracking=False, stacks=stacks))
    return _attached(tracker.name, attach, f"its tool does not run: {tracker.title}")


def _attached(
    subject: str, attach: Callable[[], AbstractContextManager[Attached | Http2Programs]], lost: str
) -> Finding:
    try:
        with attach() as programs:
            variants = _variants(programs)
            absent = {event: why for (event, _), why in programs.refused.items() if event not in programs.variants}
    except (Unsupported, AbiMismatch) as error:
        return Finding(subject, Verdict.WARN, getattr(error, "reason", "AbiMismatch"), lost, _one_line(error))
    return _partly(subject, variants, absent)


def _variants(programs: Attached | Http2Programs) -> str:
    said = ", ".join(f"{event} by {variant}" for event, variant in programs.variants.items())
    return f"{said}; ring of {programs.ring_bytes >> 10:,} KiB" if isinstance(programs, Attached) else said


def _partly(subject: str, variants: str, absent: Mapping[str, str]) -> Finding:
    """Return the finding on what is attached, with what it does without. `absent`: event → why it cannot be seen."""
    if not absent:
        return Finding(subject, Verdict.OK, variants)
    lost, remedies = zip(*(_WITHOUT.get(event, (f"`{event}` is not seen", _NEWER)) for event in absent), strict=True)
    why = "; ".join(f"{event}: {' '.join(reason.split())}" for event, reason in absent.items())
    detail = f"{variants}; missing {why}"
    return Finding(subject, Verdict.WARN, detail, "; ".join(lost), "; ".join(dict.fromkeys(remedies)))


def _symbols(status: str) -> Finding:
    """Ask for the name of the kernel's last function: that needs the process that knows names, and its table."""
    with Symbolizer() as symbolizer:
        symbolizer.kernel([(1 << 64) - 1])
    why = symbolizer.unnamed
    if why["died"]:
        remedy = "let this user start another process: limits of processes, the container's seccomp profile"
        return Finding("symbols", Verdict.WARN, "nothing finds names", "stacks have none", remedy)
    if why:
        remedy = "run as root, or add SYSLOG to the container's capabilities (chart: agent.kernelNames)"
        return Finding("symbols", Verdict.WARN, "/proc/kallsyms shows no addresses", "kernel stacks have none", remedy)
    if cannot := cannot_look_into_processes(status):
        lost = "programs' functions have no names: `stacks: User` is as Kernel"
        remedy = "run as root on the host, or set agent.userStacks of the chart: hostPID and SYS_PTRACE for the agents"
        return Finding("symbols", Verdict.WARN, cannot, lost, remedy)
    return Finding("symbols", Verdict.OK, "of the kernel and of processes")


def _one_line(error: Exception) -> str:
    return "; ".join(str(error).splitlines())


def _cgroups(config: Config) -> Finding:
    try:
        root = find_root(config.cgroup_root)
    except Unsupported as error:
        what, _, remedy = str(error).partition("; ")
        return Finding("cgroups", Verdict.WARN, what, "as a cluster's agent it could measure no pod", remedy)
    tree = CgroupTree(root)
    tree.survey()
    pods = len({cgroup.pod for cgroup in tree.scan().values()})
    return Finding("cgroups", Verdict.OK, f"version 2 at {root}, {pods} pods")


def _pressure(config: Config) -> Iterator[Finding]:
    try:
        unified = find_root(config.cgroup_root)
    except Unsupported:  # said above
        unified = None
    hierarchies = find_hierarchies(unified)
    told = "reports do not say how long containers {}"
    if hierarchies.cpu is None:
        remedy = "mount all of the host's cgroups, and name the place in LATENCYPROBE_CGROUP_ROOT"
        why = "no CPU controller can be seen"
        yield Finding("CPU quota", Verdict.WARN, why, told.format("were throttled"), remedy)
    else:
        detail = f"cpu.stat of version {hierarchies.version} at {hierarchies.cpu}"
        yield Finding("CPU quota", Verdict.OK, detail)
    if unified is not None and tells_pressure(unified):
        yield Finding("pressure", Verdict.OK, f"PSI of {', '.join(RESOURCES)}")
    else:
        remedy = "use a kernel with CONFIG_PSI=y, and boot it with psi=1 where that is not its default"
        lost = told.format("waited for CPU, memory and I/O")
        yield Finding("pressure", Verdict.WARN, "no PSI of cgroups", lost, remedy)


def _directory(config: Config) -> Finding:
    if not config.directory:
        return Finding("directory", Verdict.OK, "not configured (standalone needs none)")
    from latencyprobe_agent.directory.client import Directory  # noqa: PLC0415 - HTTP is not needed to measure

    try:
        directory = Directory(config.directory, config.node, token_file=config.token_file, ca_file=config.ca_file)
        directory.identities(())  # asks nothing, but shows that the token is accepted
    except DirectoryError as error:
        what, _, remedy = str(error).rpartition(": ")
        return Finding("directory", Verdict.WARN, what, "the last plan holds, counts are kept for 24 h", remedy)
    return Finding("directory", Verdict.OK, f"{config.directory} accepts this node's token")


def _collector(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        found = endpoints(environ)
        delta_requested(environ, found)
    except ConfigError as error:
        yield Finding("collector", Verdict.WARN, str(error), "nothing is exported", "correct the variable")
        return
    if not found:
        yield Finding("collector", Verdict.OK, "not configured: nothing is exported (OTEL_EXPORTER_OTLP_ENDPOINT)")
        return
    from latencyprobe_agent.telemetry import otlp  # noqa: PLC0415 - neither is protobuf

    for one in found:
        subject = f"collector, {one.signal}"
        answer = otlp.transport(one).send(b"")  # an empty request is a valid one
        if answer.error:
            loss = f"{one.signal} wait, then are dropped and counted; reports are not affected"
            remedy = "start the collector there, or correct OTEL_EXPORTER_OTLP_ENDPOINT"
            yield Finding(subject, Verdict.WARN, f"{one.url}: {answer.detail}", loss, remedy)
        else:
            yield Finding(subject, Verdict.OK, f"{one.url} accepts")
