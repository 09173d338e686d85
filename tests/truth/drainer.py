"""Drain a ring to a file: what the agent's loop does, in a process of its own, which a test can stop (SIGSTOP).

usage: drainer.py DESCRIPTOR BYTES FILE. Ends at SIGTERM, when the ring is empty.
"""

import signal
import sys
from pathlib import Path

from latencyprobe_agent.kernel.ring import Ring
from latencyprobe_agent.vocabulary.records import EXCHANGE

INTERVAL_S = 0.005


def main(descriptor: str, size: str, file: str) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    ring = Ring.open(int(descriptor), int(size), EXCHANGE)
    with Path(file).open("wb", buffering=0) as out:
        while ring.waiting() or not ended:
            if len(batch := ring.drain()):
                out.write(batch.tobytes())
            else:
                ring.wait(INTERVAL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
