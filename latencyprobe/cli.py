"""`latencyprobe`: the entry of every process of the project. Decides how signals end it, and its input and output.

Until a command takes SIGINT and SIGTERM itself, they end the process at once and without a word: it has measured
nothing, and the kernel frees programs with their process. An exception would be lost in libbpf's callbacks. Little is
imported here, so that this holds before the rest is imported; `group.py` has the commands.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, what the command returns, 1 failure, 2 usage; a signal is what the shell calls
    130 (SIGINT) and 143 (SIGTERM)."""
    # The kernel spares process 1 of a container what ends all others.
    end = _end if os.getpid() == 1 else signal.SIG_DFL
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)

    from latencyprobe import group, options, output  # noqa: PLC0415 - only now do signals end us quietly

    if not sys.stdin:  # closed, as by `<&-`
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = output.checked(sys.stdout) if sys.stdout else os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    _, _, program = sys.argv[0].rpartition("/")
    sys.exit(group.run(args, options.PLUGIN if program.startswith("kubectl-") else "latencyprobe"))


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
