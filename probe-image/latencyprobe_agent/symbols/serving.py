"""The process that knows names: `python -m latencyprobe_agent.symbols.serving PROC`, started by symbolizer.py.

Questions come on standard input, answers go to standard output. Ends with the questions, or after a minute without.
"""

import os
import resource
import select
import sys
from pathlib import Path

import msgspec

from latencyprobe_agent.kernel.confinement import Capability, confine
from latencyprobe_agent.symbols.messages import LENGTH, Question, packed
from latencyprobe_agent.symbols.processes import Process
from latencyprobe_agent.symbols.resolving import Resolver

IDLE_S = 60
_QUESTION_CPU_S = 2  # the last resort, for a call into C that does not return: the kernel ends the process
MEMORY_BYTES = 56 << 20  # above what it has when it starts: names that it remembers, 20 MiB; 32 MiB for a file
_DESCRIPTORS = 32
# SYS_PTRACE: /proc/PID/root and maps of others. DAC_READ_SEARCH: files of other users. SYSLOG: addresses of the kernel.
_KEPT = (Capability.SYS_PTRACE, Capability.DAC_READ_SEARCH, Capability.SYSLOG)


def main() -> None:
    """Give up what is not needed, then answer."""
    resolver = Resolver(Path(sys.argv[1]))
    _warm_up()
    confine(_KEPT, answers=sys.stdout.fileno(), memory_bytes=MEMORY_BYTES, descriptors=_DESCRIPTORS)
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    poll = select.poll()
    poll.register(questions, select.POLLIN)
    decoder = msgspec.msgpack.Decoder(Question)
    while poll.poll(1000 * IDLE_S) and (header := questions.read(LENGTH.size)):
        _limit_cpu()
        answers.write(packed(resolver.answer(decoder.decode(questions.read(*LENGTH.unpack(header))))))
        answers.flush()


def _warm_up() -> None:
    """Name a function of this very process: what libraries import late they cannot import later."""
    with Process(Path("/proc"), os.getpid()) as itself:
        first = next(mapping for mapping in itself.mappings() if mapping.inode)
    Resolver(Path("/proc")).answer(Question(os.getpid(), [first.start]))


def _limit_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + _QUESTION_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
