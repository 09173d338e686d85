"""An agent's uplink that rows come to all the time: `uplink_writer.py FOLDER URL KEY MINUTE`.

For each line that it reads, the number of the first row, it forks a process, which somebody kills; starting Python as
often would take longer. The line -1 asks for one that hands over what is left and ends. It says of which rows the disk
has them: `kept NUMBER...`.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import Role
from latencyprobe.sli import SliRow
from latencyprobe_agent.directory import uplink as module
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows

MINUTES = 300
LOWEST = -600


def numbered(key: list[str], newest: int, number: int) -> SliRow:
    """A row that can be told from all others by its minute and the bucket of its only event."""
    minute, bucket = newest - number % MINUTES * 60, LOWEST + number // MINUTES
    return SliRow(*key[:5], perspective=Role(key[5]), minute=minute, good=1, histogram={bucket: 1})


class Kept(WaitingRows):
    def __init__(self, folder: Path, newest: int) -> None:
        super().__init__(folder)
        self._newest = newest

    def add(self, rows: Iterable[SliRow]) -> None:
        rows = list(rows)
        super().add(rows)
        numbers = (
            (bucket - LOWEST) * MINUTES + (self._newest - row.minute) // 60 for row in rows for bucket in row.histogram
        )
        say(f"problem {self.problem}" if self.problem else f"kept {' '.join(map(str, numbers))}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def run(first: int) -> None:
    folder, url, key, newest = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
    module._FIRST_RETRY_S = module._LONGEST_RETRY_S = 0.02
    waiting = Kept(folder / "state", newest)
    directory = Directory(url, "n1", token_file=folder / "token", ca_file=folder / "tls.crt")
    uplink = Uplink(directory, waiting)
    if first < 0:
        waiting.open()
        while len(waiting):
            try:
                uplink._upload(0.0)
            except DirectoryError:  # so many requests were not expected of one agent
                time.sleep(0.05)
        say(f"left {len(waiting)}")
        os._exit(0)
    uplink.start()
    for number in range(first, first + 3000, 3):
        uplink.add(numbered(key, newest, number + i) for i in range(3))
        time.sleep(0.003)


if __name__ == "__main__":
    for line in sys.stdin:
        if child := os.fork():
            say(f"pid {child}")
            os.waitpid(child, 0)
            say("ended")
        else:
            run(int(line))
