"""Addresses to names, inside the confined process: a question in, an answer out, with what is worth remembering."""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from latencyprobe.text import UNKNOWN
from latencyprobe_agent.symbols import perf_map
from latencyprobe_agent.symbols.budget import TooLong, cpu_budget
from latencyprobe_agent.symbols.elf import ElfFile, NotElf
from latencyprobe_agent.symbols.kallsyms import Kallsyms
from latencyprobe_agent.symbols.messages import KERNEL, Answer, Question
from latencyprobe_agent.symbols.names import bounded, readable
from latencyprobe_agent.symbols.processes import Mapping, Process, Refused

_FILE_CPU_S = 0.08  # what one file may take; a table of a million functions takes some of it
_REMEMBERED_NAMES, _REMEMBERED_LENGTH = 1 << 14, 512
_REMEMBERED_PROCESSES, _REMEMBERED_OF_ONE = 256, 1024
_REFUSED = (Refused, NotElf, OSError, MemoryError, TooLong)

_FileId = tuple[int, int, int, int]  # device, inode, size, time of change


class _Known(NamedTuple):
    """What is remembered of a process: it may have ended when its last stack is asked about."""

    mappings: list[Mapping]
    names: dict[int, str]


class Resolver:
    """Answers questions. `proc`: the folder in which processes are found by the numbers that are asked for."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._kernel: Kallsyms | None = None
        self._names: dict[tuple[_FileId, int], str] = {}
        self._processes: dict[int, _Known] = {}

    def answer(self, question: Question) -> Answer:
        """Return the names. Whatever a process or its files do is an answer, not an exception."""
        unnamed: Counter[str] = Counter()
        if question.tgid == KERNEL:
            names = self._of_kernel(question.addresses, unnamed)
        else:
            names = self._of_process(question, unnamed)
        return Answer(names, dict(unnamed))

    def _of_kernel(self, addresses: Sequence[int], unnamed: Counter[str]) -> list[str]:
        if self._kernel is None:
            try:
                self._kernel = Kallsyms(self._proc / "kallsyms")
            except (OSError, MemoryError):
                unnamed["kallsyms_unreadable"] += len(addresses)
                return [UNKNOWN] * len(addresses)
        names = [self._kernel.name(address) for address in addresses]
        if missing := names.count(None):
            unnamed["kallsyms_hidden" if self._kernel.hidden else "no_function"] += missing
        return [bounded(name) if name else UNKNOWN for name in names]

    def _of_process(self, question: Question, unnamed: Counter[str]) -> list[str]:
        tgid, addresses = question.tgid, question.addresses
        names: dict[int, str] = {}
        try:
            with Process(self._proc, tgid) as process:
                if question.taken_ns and process.began_ns() > question.taken_ns:
                    raise ProcessLookupError
                self._remember(tgid, process.mappings())
                for mapping, inside in self._by_mapping(tgid, addresses):
                    names |= self._of_mapping(process, tgid, mapping, inside, unnamed)
        except (OSError, MemoryError) as error:
            why = "not_permitted" if isinstance(error, PermissionError) else "process_ended"
            for mapping, inside in self._by_mapping(tgid, addresses):
                known = {address: name for address in inside if (name := self._processes[tgid].names.get(address))}
                left = [address for address in inside if address not in names and address not in known]
                names |= known | _by_offset(mapping, left)
                unnamed[why] += len(left)
        missing = {address for address in addresses if address not in names}
        if missing:
            unnamed["no_mapping" if tgid in self._processes else "process_unknown"] += sum(
                address in missing for address in addresses
            )
        return [names.get(address, UNKNOWN) for address in addresses]

    def _remember(self, tgid: int, mappings: list[Mapping]) -> None:
        if not mappings:
            raise ProcessLookupError  # it is ending: what was known of it stays
        before = self._processes.pop(tgid, None)
        if len(self._processes) >= _REMEMBERED_PROCESSES:
            del self._processes[next(iter(self._processes))]
        self._processes[tgid] = before if before and before.mappings == mappings else _Known(mappings, {})

    def _by_mapping(self, tgid: int, addresses: Iterable[int]) -> list[tuple[Mapping, list[int]]]:
        mappings = self._processes[tgid].mappings if tgid in self._processes else []
        starts = [mapping.start for mapping in mappings]
        found: dict[Mapping, list[int]] = {}
        for address in dict.fromkeys(addresses):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < mappings[at].end:
                found.setdefault(mappings[at], []).append(address)
        return list(found.items())

    def _of_mapping(
        self, process: Process, tgid: int, mapping: Mapping, addresses: list[int], unnamed: Counter[str]
    ) -> dict[int, str]:
        """Return a name for each address."""
        named: dict[int, str] = {}
        try:
            with cpu_budget(_FILE_CPU_S):
                if mapping.made_at_run_time:
                    named |= self._of_jit(process, addresses)
                if mapping.inode and (missing := [address for address in addresses if address not in named]):
                    of_file = self._of_file(process, mapping, missing)
                    self._learn(tgid, of_file)
                    named |= of_file
        except _REFUSED as error:
            missing = [address for address in addresses if address not in named]
            unnamed[_reason(error)] += len(missing)
            return named | _by_offset(mapping, missing)
        missing = [address for address in addresses if address not in named]
        if missing and (mapping.inode or mapping.made_at_run_time):  # else [vdso]
            unnamed["no_function"] += len(missing)
        stripped = dict.fromkeys(missing, f"{bounded(mapping.called)}()")
        return named | (stripped if mapping.inode else _by_offset(mapping, missing))

    def _of_file(self, process: Process, mapping: Mapping, addresses: list[int]) -> dict[int, str]:
        if mapping.path.endswith(" (deleted)"):
            raise Refused("deleted")
        with process.file(mapping.path, mapping) as descriptor:
            status = os.fstat(descriptor)
            file = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            offsets = {address: address - mapping.start + mapping.file_offset for address in addresses}
            named = {address: known for address, at in offsets.items() if (known := self._names.get((file, at)))}
            if len(named) == len(addresses):
                return named
            raw = _in_file(process, ElfFile(descriptor), {a: at for a, at in offsets.items() if a not in named})
            for address, symbol in raw.items():
                named[address] = readable(symbol)
                self._keep(file, offsets[address], named[address])
            return named

    def _learn(self, tgid: int, named: dict[int, str]) -> None:
        names = self._processes[tgid].names
        if len(names) + len(named) > _REMEMBERED_OF_ONE:
            names.clear()
        names.update((address, name) for address, name in named.items() if len(name) <= _REMEMBERED_LENGTH)

    def _keep(self, file: _FileId, offset: int, name: str) -> None:
        if len(self._names) >= _REMEMBERED_NAMES:
            self._names.clear()
        if len(name) <= _REMEMBERED_LENGTH:
            self._names[file, offset] = name

    @staticmethod
    def _of_jit(process: Process, addresses: list[int]) -> dict[int, str]:
        try:
            with process.file(f"/tmp/perf-{process.inner_pid()}.map") as descriptor:  # noqa: S108 - where JITs write it
                return {at: readable(raw) for at, raw in perf_map.functions(descriptor, addresses).items()}
        except FileNotFoundError:
            return {}


def _in_file(process: Process, elf: ElfFile, offsets: dict[int, int]) -> dict[int, bytes]:
    """Return the raw names by address of memory; of a stripped file also from where packages keep its symbols."""
    virtual = {address: at for address, offset in offsets.items() if (at := elf.virtual(offset)) is not None}
    found = elf.functions(list(virtual.values()))
    missing = [at for at in virtual.values() if at not in found]
    if missing and len(build_id := elf.build_id()) > 2:
        try:
            with process.file(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug") as descriptor:
                debug = ElfFile(descriptor)
                if debug.build_id() == build_id:
                    found |= debug.functions(missing)
        except (Refused, NotElf, OSError):
            pass  # there is none that can be used
    return {address: found[at] for address, at in virtual.items() if at in found}


def _by_offset(mapping: Mapping, addresses: Iterable[int]) -> dict[int, str]:
    called = bounded(mapping.called)
    if not mapping.inode:
        return dict.fromkeys(addresses, called or UNKNOWN)
    return {address: f"{called}+0x{address - mapping.start + mapping.file_offset:x}" for address in addresses}


def _reason(error: BaseException) -> str:
    if isinstance(error, Refused):
        return str(error.args[0])
    if isinstance(error, OSError):
        return "not_permitted" if isinstance(error, PermissionError) else "file_away"
    return {NotElf: "not_elf", MemoryError: "memory", TooLong: "cpu_time"}[type(error)]
