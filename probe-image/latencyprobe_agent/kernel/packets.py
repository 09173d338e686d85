"""Programs on the packets of named interfaces: attach them by tcx, or by clsact where the kernel is older than 6.6.

Which end of a connection is ours follows from the attach point: `outgoing` programs see what leaves it. Nothing of a
packet is changed, and whatever else is attached there runs as before.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel import counts, netlink
from latencyprobe_agent.kernel.attached import Attached, counters, u32
from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.kernel.libbpf import (
    CLSACT_EGRESS,
    CLSACT_INGRESS,
    NO_OBJECT_REMEDY,
    TCX_EGRESS,
    TCX_INGRESS,
    Link,
    Object,
    Program,
    make_clsact,
    remove_clsact,
)
from latencyprobe_agent.kernel.loader import Loaded, check_layouts, explain
from latencyprobe_agent.kernel.netlink import Interface
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import CONFIG, EVIDENCE_COUNTS, HandshakeTally

_ETHERNET = (1, 772)  # ARPHRD_ETHER, ARPHRD_LOOPBACK; packets of all others begin with their IP header
_FLUSH = "flush"
VARIANTS = ("tcx", "clsact")


@dataclass(frozen=True)
class Place:
    """Where to attach. `pod`: the interface is the host's end of a pod's pair, so what comes in leaves the pod."""

    interface: Interface
    pod: bool

    @classmethod
    def find(cls, name: str, *, pod: bool) -> Self:
        """Look an interface up; a bridge port is always a pod's, for no socket is behind it on this side.

        Raises Unsupported if there is none of this name.
        """
        try:
            found = netlink.interface(name)
        except OSError as e:
            raise Unsupported("NoInterface", f"no interface {name!r} here ({e.strerror}): see `ip link`") from e
        return cls(found, pod or found.bridge_port)

    @property
    def bare(self) -> bool:
        """Whether packets begin with their IP header."""
        return self.interface.device not in _ETHERNET


class PacketPrograms(Attached):
    """The programs of `handshake_tc.bpf.c`, attached."""

    def __init__(self, loaded: Loaded, signal: Signal, made: Sequence[int]) -> None:
        super().__init__(loaded, signal)
        self._made = made
        self._tally = self.map("tally")
        drain, netns_ino = self.drain, Path("/proc/self/ns/net").stat().st_ino

        def drain_with_netns(limit: int = 16_384) -> NDArray[np.void]:
            """As of the ring; a packet does not know its network namespace."""
            batch = drain(limit)
            batch["flow"]["netns_ino"] = netns_ino
            return batch

        self.drain = drain_with_netns

    @classmethod
    def alone(
        cls,
        folder: Path,
        signal: Signal,
        socket_filter: Filter,
        *,
        places: Sequence[Place],
        timeout_ns: int,
        pull: bool = False,
        ring_bytes: int | None = None,
        variants: Sequence[str] = VARIANTS,
    ) -> Self:
        """Load, and attach to `places`. `timeout_ns`: an unanswered handshake has failed after it; `pull`: read packets
        as tcplat does. Raises Unsupported or AbiMismatch, and ValueError for a filter's wrong address.
        """
        packed = socket_filter.packed()
        path = folder / f"{signal.name}.bpf.o"
        try:
            opened = Object(path)
        except OSError as e:
            raise Unsupported("ObjectUnreadable", f"{e}: {NO_OBJECT_REMEDY}") from e
        links: dict[str, list[Link]] = defaultdict(list)
        made: list[int] = []
        try:
            check_layouts(opened, path)
            programs = _switch_on(opened, places, pull=pull)
            opened.map("evidence_counts").max_entries = counts.entries(EVIDENCE_COUNTS)
            if ring_bytes is not None:
                opened.map(signal.ring).max_entries = ring_bytes
            try:
                opened.load()
                links[_FLUSH].append(programs[_FLUSH].attach(opened.map(signal.iterated)))
            except OSError as e:
                raise Unsupported("KernelUnsupported", f"{explain(e)}; it also takes CAP_NET_ADMIN") from e
            config = np.zeros((), CONFIG)
            config["answer_timeout_ns"] = timeout_ns
            config["wakeup_bytes"] = opened.map(signal.ring).max_entries // 4
            opened.map("config").update(u32(0), config.tobytes())
            opened.map("evidence_filter").update(u32(0), packed)
            variant, refused = _attach(programs, places, links, made, pull=pull, variants=variants)
        except BaseException:
            _undo(links, made)
            opened.close()
            raise
        in_use = {"packets": variant, _FLUSH: "iter"}
        return cls(Loaded(opened, tuple(programs.values()), links, in_use, refused), signal, made)

    def close(self) -> None:
        """Detach and free everything, and what was made to attach to."""
        super().close()
        _remove(self._made)

    def tally(self) -> dict[str, int]:
        """Return what was seen and reported nowhere, by kind (`enum handshake_tally`, in lower case)."""
        return counters(self._tally, HandshakeTally)


def _names(place: Place, *, pull: bool) -> tuple[str, str]:
    kind = ("bare" if place.bare else "ethernet") + ("_pull" if pull else "")
    return f"outgoing__{kind}", f"incoming__{kind}"


def _switch_on(opened: Object, places: Sequence[Place], *, pull: bool) -> dict[str, Program]:
    """Autoload the programs that `places` need and the iterator, nothing else; return them by name."""
    needed = {name for place in places for name in _names(place, pull=pull)} | {_FLUSH}
    found = {}
    for program in opened.programs():
        program.autoload(program.name in needed)
        if program.name in needed:
            found[program.name] = program
    if missing := needed - found.keys():
        raise Unsupported("NoProgram", f"{', '.join(sorted(missing))}: --pull reads Ethernet interfaces only")
    return found


def _attach(
    programs: dict[str, Program],
    places: Sequence[Place],
    links: dict[str, list[Link]],
    made: list[int],
    *,
    pull: bool,
    variants: Sequence[str],
) -> tuple[str, dict[tuple[str, str], str]]:
    """Attach to all places by the first variant that works. Return it, and why the ones before it do not."""
    refused: dict[tuple[str, str], str] = {}
    for variant in variants:
        try:
            for place in places:
                outgoing, incoming = (programs[name] for name in _names(place, pull=pull))
                coming, leaving = (outgoing, incoming) if place.pod else (incoming, outgoing)
                for link in _attached(variant, place.interface.ifindex, coming, leaving, made):
                    links["packets"].append(link)
        except OSError as e:
            refused["packets", variant] = str(e).splitlines()[0]
            _undo({"packets": links.pop("packets", [])}, made)
            made.clear()
            continue
        return variant, refused
    raise Unsupported("KernelUnsupported", "; ".join(refused.values()) + ": it takes CAP_NET_ADMIN")


def _attached(variant: str, ifindex: int, coming: Program, leaving: Program, made: list[int]) -> Iterator[Link]:
    if variant == "tcx":
        yield coming.attach_tcx(ifindex, TCX_INGRESS)
        yield leaving.attach_tcx(ifindex, TCX_EGRESS)
        return
    if make_clsact(ifindex):
        made.append(ifindex)
    yield coming.attach_clsact(ifindex, CLSACT_INGRESS)
    yield leaving.attach_clsact(ifindex, CLSACT_EGRESS)


def _undo(links: Mapping[str, Sequence[Link]], made: Sequence[int]) -> None:
    for parts in links.values():
        for link in parts:
            link.close()
    _remove(made)


def _remove(made: Sequence[int]) -> None:
    """Remove the queueing disciplines that were made here, unless somebody else uses them by now."""
    for ifindex in made:
        try:
            used = netlink.filters(ifindex, netlink.INGRESS) or netlink.filters(ifindex, netlink.EGRESS)
        except OSError:
            continue  # the interface is gone, and all on it
        if not used:
            remove_clsact(ifindex)
