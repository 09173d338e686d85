"""Load and attach one variant of every event of a BPF object.

A program is named `<event>__<variant>`, or `<event>` if it has but one; `<event>__<variant>__<part>` if only several
programs together see every such event. Variants are tried in the order in which the object lists them, whole or not at
all. libbpf refuses a whole object when one of its programs fails: then the next variant is tried. For kernels without
socket storage an object may have a twin that needs none, `<object>_hash`.
"""

import errno
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from latencyprobe.errors import AbiMismatch, Unsupported
from latencyprobe_agent.kernel.hooks import Hooks
from latencyprobe_agent.kernel.libbpf import NO_OBJECT_REMEDY, Link, Object, Program
from latencyprobe_agent.vocabulary.records import STRUCTS

OUT_OF_MEMORY = "OutOfMemory"  # the reason of what may go better a minute later
_LOCKDOWN = Path("/sys/kernel/security/lockdown")


Chosen = dict[str, tuple[str, list[Program]]]  # event → (variant, its parts)


@dataclass(frozen=True)
class Loaded:
    """A running object. `links`: event → links, one per part of its variant; `variants`: event → the variant in use;
    `refused`: (event, variant) → why it is not."""

    object: Object
    programs: tuple[Program, ...]
    links: dict[str, list[Link]]
    variants: dict[str, str]
    refused: dict[tuple[str, str], str]

    def close(self) -> None:
        """Detach everything and free the object."""
        _detach(self.links)
        self.object.close()


def event_of(program: Program) -> tuple[str, str]:
    """Return (event, variant) of a program; without a variant in its name, that is the kind of its section."""
    event, *variant_part = program.name.split("__")
    return event, variant_part[0] if variant_part else program.section.partition("/")[0]


@dataclass(frozen=True)
class Behind:
    """Events whose programs are not attached, but go on where those of another object end: `put` does that. `variants`:
    event → the variant that the other object uses."""

    variants: Mapping[str, str]
    put: Callable[[Program], Link]


@dataclass(frozen=True)
class Demands:
    """What an object demands of its loader. `optional`: events that may be left without a variant; `iterated`: the map
    that its iterators walk; `adjust`: resizes or shares maps of the opened object; `left_out`: events that nobody asks
    for, whose programs are not even loaded; `behind`: None attaches every program."""

    adjust: Callable[[Object], None]
    optional: frozenset[str] = frozenset()
    iterated: str = "connections"
    left_out: frozenset[str] = frozenset()
    behind: Behind | None = None


def load(path: Path, kernel_btf: Path | None, hooks: Hooks, demands: Demands) -> Loaded:
    """Load and attach the object at `path`.

    Raises Unsupported when an event is left without a variant, AbiMismatch when the layouts are not ours.
    """
    refused: dict[tuple[str, str], str] = {}
    if not hooks.socket_storage:
        path = without_storage(path)
    while True:
        try:
            opened = Object(path, kernel_btf)
        except OSError as e:
            raise Unsupported("ObjectUnreadable", f"{e}: {NO_OBJECT_REMEDY}") from e
        try:
            check_layouts(opened, path)
            chosen = _choose(opened.programs(), hooks, refused, demands)
            demands.adjust(opened)
            loaded = _try(opened, chosen, refused, demands)
        except BaseException:
            opened.close()
            raise
        if loaded:
            return loaded
        opened.close()


def without_storage(path: Path) -> Path:
    """Return the object that was made of the same source for kernels without socket storage for tracing programs.

    Raises Unsupported if there is none.
    """
    other = path.with_name(path.name.replace(".", "_hash.", 1))
    if not other.exists():
        raise Unsupported(
            "KernelUnsupported",
            "this kernel gives tracing programs no socket storage, and these need it: use Linux 5.11 or newer",
        )
    return other


def check_layouts(opened: Object, path: Path) -> None:
    """Raise AbiMismatch when a record of the object is not laid out as here."""
    for name, dtype in STRUCTS.items():
        here = (dtype.itemsize, {field: offset for field, (_, offset, *_) in (dtype.fields or {}).items()})
        there = opened.struct(name)
        if there not in (None, here):  # an object has the structs that it uses
            raise AbiMismatch(f"struct {name} of {path} is not as in records.py: run `make gen bpf`")


def _choose(programs: list[Program], hooks: Hooks, refused: dict[tuple[str, str], str], demands: Demands) -> Chosen:
    """Switch one variant per event on; `refused` gains those before it that the kernel has no hook for."""
    by_event: dict[str, dict[str, list[Program]]] = defaultdict(lambda: defaultdict(list))
    for program in programs:
        event, variant = event_of(program)
        program.autoload(False)
        if event not in demands.left_out:
            by_event[event][variant].append(program)
    chosen: Chosen = {}
    behind = demands.behind.variants if demands.behind else {}
    for event, variants in by_event.items():
        for variant, parts in variants.items():
            if (event, variant) in refused or variant != behind.get(event, variant):
                continue
            if why := ", ".join(filter(None, (hooks.refusal(part.section) for part in parts))):
                refused[event, variant] = why
                continue
            chosen[event] = (variant, parts)
            break
        else:
            if event in demands.optional:
                continue
            reasons = "; ".join(f"{variant}: {why}" for (of, variant), why in refused.items() if of == event)
            raise Unsupported("KernelUnsupported", f"this kernel gives no way to see `{event}` ({reasons})")
    for _, parts in chosen.values():
        for part in parts:
            part.autoload(True)
    return chosen


def _try(opened: Object, chosen: Chosen, refused: dict[tuple[str, str], str], demands: Demands) -> Loaded | None:
    """Load and attach; None after a failure that one more entry in `refused` explains."""
    try:
        opened.load()
    except OSError as e:
        for event, (variant, parts) in chosen.items() if e.errno != errno.ENOMEM else ():
            if any(re.search(rf"prog '{part.name}': .*failed", str(e)) for part in parts):
                refused[event, variant] = in_short(str(e))
                return None
        raise Unsupported(OUT_OF_MEMORY if e.errno == errno.ENOMEM else "KernelUnsupported", explain(e)) from e
    links: dict[str, list[Link]] = defaultdict(list)
    for event, (variant, parts) in chosen.items():
        over = opened.map(demands.iterated) if variant == "iter" else None
        behind = demands.behind if demands.behind and event in demands.behind.variants else None
        try:
            for part in parts:
                links[event].append(behind.put(part) if behind else part.attach(over))
        except OSError as e:
            refused[event, variant] = in_short(str(e))
            _detach(links)
            return None
    programs = tuple(part for _, parts in chosen.values() for part in parts)
    return Loaded(opened, programs, dict(links), {event: variant for event, (variant, _) in chosen.items()}, refused)


def _detach(links: dict[str, list[Link]]) -> None:
    for parts in links.values():
        for link in parts:
            link.close()


def in_short(message: str) -> str:
    """Return the verifier's last line, or without a log of it, the message's first."""
    log = re.search(
        r"BEGIN PROG LOAD LOG --\n(.*?)\n(?:processed \d+ insns.*)?-- END PROG LOAD LOG", message, re.DOTALL
    )
    return f"verifier: {log[1].splitlines()[-1]}" if log else message.splitlines()[0]


def explain(error: OSError) -> str:
    """Return why the kernel refused an object, and what to do where that is known."""
    if error.errno == errno.ENOMEM:
        return f"no memory for maps and programs: raise the limit (agent.resources.limits.memory of the chart). {error}"
    if error.errno != errno.EPERM:
        return str(error)
    lockdown = _LOCKDOWN.read_text() if _LOCKDOWN.exists() else ""
    if "[confidentiality]" in lockdown:
        remedy = "boot with lockdown=integrity, or without Secure Boot where that sets it"
        return f"kernel lockdown forbids reading kernel memory (mode confidentiality): {remedy}. {error}"
    if "ulimit -l" in str(error):  # libbpf's guess; such kernels count maps as locked memory of the process
        return f"the limit of locked memory is too low: raise it (LimitMEMLOCK), or add SYS_RESOURCE. {error}"
    return f"the kernel refuses BPF to this process, perhaps by a seccomp profile or a security module: {error}"
