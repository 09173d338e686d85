"""Load and attach one variant of every event of a BPF object; `Programs` calls it.

A program is named `<event>__<variant>`, or `<event>` if it has but one; variants are tried in the order in which the
object lists them. libbpf refuses a whole object when one of its programs fails: then the next variant has its turn.
"""

import errno
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from latencyprobe.errors import AbiMismatch, Unsupported
from latencyprobe_agent.kernel.hooks import Hooks
from latencyprobe_agent.kernel.libbpf import Link, Object, Program
from latencyprobe_agent.kernel.records import STRUCTS

_LOCKDOWN = Path("/sys/kernel/security/lockdown")


@dataclass(frozen=True)
class Loaded:
    """A running object. `links`: event → link; `variants`: event → the variant in use; `refused`: (event, variant) →
    why it is not."""

    object: Object
    programs: tuple[Program, ...]
    links: dict[str, Link]
    variants: dict[str, str]
    refused: dict[tuple[str, str], str]

    def close(self) -> None:
        """Detach everything and free the object."""
        for link in self.links.values():
            link.close()
        self.object.close()


def event_of(program: Program) -> tuple[str, str]:
    """Return (event, variant) of a program; without a variant in its name, that is the kind of its section."""
    event, _, variant = program.name.partition("__")
    return event, variant or program.section.partition("/")[0]


def load(path: Path, kernel_btf: Path | None, hooks: Hooks, adjust: Callable[[Object], None]) -> Loaded:
    """Load and attach the object at `path`. `adjust` is called on the opened object, to resize maps.

    Raises Unsupported when an event is left without a variant, AbiMismatch when the layouts are not ours.
    """
    refused: dict[tuple[str, str], str] = {}
    while True:
        try:
            opened = Object(path, kernel_btf)
        except OSError as e:
            raise Unsupported("ObjectUnreadable", f"{e}: build it with `make bpf`") from e
        try:
            _check_layouts(opened, path)
            chosen = _choose(opened.programs(), hooks, refused)
            adjust(opened)
            loaded = _try(opened, chosen, refused)
        except BaseException:
            opened.close()
            raise
        if loaded:
            return loaded
        opened.close()


def _check_layouts(opened: Object, path: Path) -> None:
    for name, dtype in STRUCTS.items():
        here = (dtype.itemsize, {field: offset for field, (_, offset, *_) in (dtype.fields or {}).items()})
        there = opened.struct(name)
        if there != here:
            raise AbiMismatch(f"struct {name} of {path} is not as in records.py: run `make gen bpf`")


def _choose(
    programs: list[Program], hooks: Hooks, refused: dict[tuple[str, str], str]
) -> dict[str, tuple[str, Program]]:
    """Switch one variant per event on; `refused` gains those that the kernel has no hook for."""
    by_event: dict[str, dict[str, Program]] = defaultdict(dict)
    for program in programs:
        event, variant = event_of(program)
        by_event[event][variant] = program
        program.autoload(False)
        if why := hooks.refusal(program.section):
            refused.setdefault((event, variant), why)
    chosen: dict[str, tuple[str, Program]] = {}
    for event, variants in by_event.items():
        usable = [variant for variant in variants if (event, variant) not in refused]
        if not usable:
            reasons = "; ".join(f"{variant}: {refused[event, variant]}" for variant in variants)
            raise Unsupported("KernelUnsupported", f"this kernel gives no way to see `{event}` ({reasons})")
        chosen[event] = (usable[0], variants[usable[0]])
        variants[usable[0]].autoload(True)
    return chosen


def _try(opened: Object, chosen: dict[str, tuple[str, Program]], refused: dict[tuple[str, str], str]) -> Loaded | None:
    """Load and attach; None after a failure that one more entry in `refused` explains."""
    try:
        opened.load()
    except OSError as e:
        for event, (variant, program) in chosen.items():
            if re.search(rf"prog '{program.name}': .*failed", str(e)):
                refused[event, variant] = _in_short(str(e))
                return None
        raise Unsupported("KernelUnsupported", _explain(e)) from e
    links: dict[str, Link] = {}
    for event, (variant, program) in chosen.items():
        over = opened.map("connections") if variant == "iter" else None
        try:
            links[event] = program.attach(over)
        except OSError as e:
            refused[event, variant] = _in_short(str(e))
            for link in links.values():
                link.close()
            return None
    programs = tuple(program for _, program in chosen.values())
    return Loaded(opened, programs, links, {event: variant for event, (variant, _) in chosen.items()}, refused)


def _in_short(message: str) -> str:
    """Return what the verifier said last, or without a log of it, the first line."""
    log = re.search(
        r"BEGIN PROG LOAD LOG --\n(.*?)\n(?:processed \d+ insns.*)?-- END PROG LOAD LOG", message, re.DOTALL
    )
    return f"verifier: {log[1].splitlines()[-1]}" if log else message.splitlines()[0]


def _explain(error: OSError) -> str:
    if error.errno != errno.EPERM:
        return str(error)
    lockdown = _LOCKDOWN.read_text() if _LOCKDOWN.exists() else ""
    if "[confidentiality]" in lockdown:
        return f"kernel lockdown forbids reading kernel memory (mode confidentiality): boot without it. {error}"
    return f"the kernel refuses BPF to this process, perhaps by a seccomp profile or a security module: {error}"
