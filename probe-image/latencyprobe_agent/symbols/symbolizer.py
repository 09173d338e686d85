"""The asking side: names of addresses, whatever happens to the process that finds them."""

import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Self

import msgspec

from latencyprobe.text import UNKNOWN
from latencyprobe.wire import UNREADABLE
from latencyprobe_agent.symbols.messages import (
    ADDRESSES_AT_ONCE,
    ANSWER_BYTES,
    KERNEL,
    LENGTH,
    Answer,
    Question,
    packed,
)

_ANSWER_S = 10.0  # by the clock, with the start of the process on a busy machine; a file system may never answer
_ENDING_S = 0.5
_ENDED_S = 5.0  # until it is seen that it has: who ends in order is not taken for one that died
_DEATHS, _DEATHS_WITHIN_S = 3, 60.0
_BANNED = 1024
_KERNEL_NAMES = 1 << 14


class _Died(Exception):  # noqa: N818 - of the other process
    """It has ended, or does not answer as it must."""


def inside_calls(stack: Sequence[int]) -> list[int]:
    """Return the addresses of a stack, leaf first, as they are to be named: a caller's is that behind its call, which
    belongs to another function where the call was the last instruction.
    """
    return [*stack[:1], *(address - 1 for address in stack[1:])]


class _Ended(Exception):  # noqa: N818 - of the other process
    """It had ended before it was asked."""


class Symbolizer:
    """Names by address. Starts its process at the first question; that ends after a minute without one.

    Blocks while a name is looked up: some ms, at the worst 10 s. Not for several threads at once. A process whose files
    kill the one that reads them is not asked about again; after three such deaths in a minute nothing is, for a while.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        command: Sequence[str] = (),
        answer_s: float = _ANSWER_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        module = (sys.executable, "-I", "-m", "latencyprobe_agent.symbols.serving")
        self._command = [*(command or module), str(proc)]
        self._now = now
        self._answer_s = answer_s
        self._child: subprocess.Popen[bytes] | None = None
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._banned: dict[int, None] = {}
        self._kernel_names: dict[int, str] = {}
        self._decoder = msgspec.msgpack.Decoder(Answer)
        self.unnamed: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process that answers; 0: none runs."""
        return self._child.pid if self._child and self._child.returncode is None else 0

    def kernel(self, addresses: Iterable[int]) -> list[str]:
        """Return the function of the kernel at each address, without offsets; `[unknown]` if there is none."""
        wanted = list(addresses)
        new = [address for address in dict.fromkeys(wanted) if address not in self._kernel_names]
        if len(self._kernel_names) + len(new) > _KERNEL_NAMES:
            self._kernel_names.clear()
            new = list(dict.fromkeys(wanted))
        found = dict(zip(new, self._ask(KERNEL, new), strict=True))
        self._kernel_names.update((address, name) for address, name in found.items() if name != UNKNOWN)
        return [found.get(address) or self._kernel_names[address] for address in wanted]

    def user(self, tgid: int, addresses: Iterable[int], *, taken_ns: int = 0) -> list[str]:
        """Return the function of a process at each address, demangled, without offsets.

        `taken_ns`: boot time at which the stack was taken; a process that began later has no say in it.

        `library.so()`: that file names no function there. `library.so+0x12`, with the offset in the file: it cannot
        be read, or the process has ended. `[unknown]`: no file, or nothing is known of the process.
        """
        wanted = list(addresses)
        new = list(dict.fromkeys(wanted))
        found = dict(zip(new, self._ask(tgid, new, taken_ns), strict=True))
        return [found[address] for address in wanted]

    def close(self) -> None:
        """End the process, and wait for that for a moment: what it reads may hold it in the kernel for ever."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.wait(_ENDING_S)
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    def _ask(self, tgid: int, addresses: Sequence[int], taken_ns: int = 0) -> Iterator[str]:
        rest = iter(addresses)
        while batch := list(islice(rest, ADDRESSES_AT_ONCE)):
            yield from self._names(Question(tgid, batch, taken_ns))

    def _names(self, question: Question) -> list[str]:
        tgid, addresses = question.tgid, question.addresses
        why = self._cannot(tgid)
        if not why:
            try:
                answer = self._exchange(question)
            except _Died:
                why = self._died(tgid)
            else:
                self.unnamed.update(answer.unnamed)
                return answer.names
        self.unnamed[why] += len(addresses)
        return [UNKNOWN] * len(addresses)

    def _cannot(self, tgid: int) -> str:
        if tgid in self._banned:
            return "banned"
        if len(self._deaths) == _DEATHS and self._now() - self._deaths[0] < _DEATHS_WITHIN_S:
            return "unavailable"
        return ""

    def _died(self, tgid: int) -> str:
        self.close()
        self._deaths.append(self._now())
        if tgid != KERNEL:
            if len(self._banned) >= _BANNED:
                del self._banned[next(iter(self._banned))]
            self._banned[tgid] = None
        return "died"

    def _exchange(self, question: Question) -> Answer:
        try:
            return self._answer(question)
        except _Ended:  # because nobody had asked for a minute, in the moment of this question
            self.close()
        try:
            return self._answer(question)
        except _Ended as error:
            raise _Died from error

    def _answer(self, question: Question) -> Answer:
        try:
            if self._child is None or self._child.poll() is not None:  # it ends when nothing is asked
                self.close()
                self._child = self._start()
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            try:
                os.write(self._child.stdin.fileno(), packed(question))  # fits into the pipe at once
            except BrokenPipeError as error:
                raise _Ended from error
            answers = self._child.stdout.fileno()
            deadline = time.monotonic() + self._answer_s
            header = _read(answers, LENGTH.size, deadline)
            if not header and self._orderly():
                raise _Ended
            size = LENGTH.unpack(header)[0]
            if size > ANSWER_BYTES:
                raise _Died
            answer = self._decoder.decode(_read(answers, size, deadline))
        except (OSError, struct.error, *UNREADABLE) as error:
            raise _Died from error
        if len(answer.names) != len(question.addresses):
            raise _Died
        return answer

    def _orderly(self) -> bool:
        """Return whether the process has ended by itself."""
        assert self._child is not None
        try:
            return self._child.wait(_ENDED_S) == 0
        except subprocess.TimeoutExpired:
            return False

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={"OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the asking process's
        )
        threading.Thread(target=child.wait, name="symbols", daemon=True).start()  # no zombie
        return child


def _read(descriptor: int, size: int, deadline: float) -> bytes:
    """Return so many bytes; fewer at the end of the pipe."""
    pieces = bytearray()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(pieces) < size:
        if not poll.poll(max(0, round(1000 * (deadline - time.monotonic())))):
            raise _Died
        piece = os.read(descriptor, size - len(pieces))
        if not piece:
            break
        pieces += piece
    return bytes(pieces)
