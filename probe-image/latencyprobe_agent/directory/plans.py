"""Keeps the node's current plan: streamed from the directory, saved on disk, reused while the operator is away.

`PlanFollower` has a thread of its own: reading `latest` never waits. The file (mode 0600, it holds the pairing key) is
what a restarted agent measures with until the directory answers.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import NodePlan, RemoteJoinMessage
from latencyprobe.plan_stream import PlanChange, applied
from latencyprobe.wire import UNREADABLE
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.guard import Guard

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0
_STEADY_S = 60.0  # a stream that lived this long ended for a reason of its own, such as an operator's upgrade


class _Listeners(NamedTuple):
    remote_join: Callable[[RemoteJoinMessage], None]
    forget: Callable[[Iterable[str] | None], None]


class PlanFollower:
    """The plan as last received. In the follower's thread: `on_remote_join` gets the messages of the remote join among
    its lines, `on_forget` the addresses to be forgotten, None for all when a stream begins, as some may have gone
    untold."""

    def __init__(
        self,
        directory: Directory,
        node: str,
        state_dir: Path,
        on_remote_join: Callable[[RemoteJoinMessage], None] = lambda _: None,
        on_forget: Callable[[Iterable[str] | None], None] = lambda _: None,
        *,
        guard: Guard | None = None,
    ) -> None:
        self.latest: NodePlan | None = None
        self._directory = directory
        self._node = node
        self._tell = _Listeners(on_remote_join, on_forget)
        self._file = state_dir / "plan.json"
        self._received_s = time.monotonic()
        self._unconfirmed_s = 0
        self._takes_changes = True
        self._streams = Attempts("plan_stream", "the plan so far holds; without one nothing is measured", guard)
        self._stop = threading.Event()

    @property
    def problem(self) -> str:
        """Why there is no stream, empty while there is one."""
        return self._streams.problem

    @property
    def age_s(self) -> float:
        """Seconds since the plan was last confirmed: by the directory, with a plan or a heartbeat, and to the directory
        by the API server."""
        return self.silent_s + self._unconfirmed_s

    @property
    def silent_s(self) -> float:
        """Seconds since the directory last said anything by the stream."""
        return time.monotonic() - self._received_s

    def start(self) -> None:
        """Take the plan on disk, then follow the directory in a thread of its own."""
        self.latest = load(self._file, self._node)
        threading.Thread(target=self._follow, name="plan", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end; it does so at its next line or retry (it is a daemon: nobody waits for it)."""
        self._stop.set()

    def _follow(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stop.is_set():
            began = time.monotonic()
            self._streams.run(self._read)
            if time.monotonic() - began > _STEADY_S:
                retry_s = _FIRST_RETRY_S
            self._stop.wait(self._directory.returning.pause_s(retry_s))
            retry_s = min(retry_s * 2, _LONGEST_RETRY_S)

    def _read(self) -> None:
        """Follow one stream. Raises DirectoryError at its end."""
        begins = True
        for line in self._directory.plans(changes=self._takes_changes):
            if self._stop.is_set():
                return
            if begins or line.forget:
                self._tell.forget(None if begins else line.forget)
            self._confirmed(line.unconfirmed_s)
            if line.plan is not None:
                self._take(line.plan)
            elif line.change is not None:
                self._take(self._changed(line.change))
            if line.remote_join is not None:
                self._tell.remote_join(line.remote_join)
            if begins:
                _log.info("plan stream open", extra={"directory": self._directory.url})
                self._streams.worked()
            begins = False
        raise DirectoryError(f"{self._directory.url}: the plan stream ended")

    def _confirmed(self, unconfirmed_s: int) -> None:
        if unconfirmed_s and not self._unconfirmed_s:
            _log.warning("the operator has lost its API server: the plan is %d s old, and holds", unconfirmed_s)
        elif self._unconfirmed_s and not unconfirmed_s:
            _log.info("the operator has its API server again")
        self._received_s, self._unconfirmed_s = time.monotonic(), unconfirmed_s

    def _changed(self, change: PlanChange) -> NodePlan:
        """Return the plan that the change makes of ours. Raises DirectoryError if that is not the operator's."""
        plan = applied(self.latest, change)
        if plan is None:
            self._takes_changes = False  # an operator of another version may say more than we can read
            raise DirectoryError(
                f"{self._directory.url}: what changed does not make the operator's plan of ours: asking for whole plans"
            )
        return plan

    def _take(self, plan: NodePlan) -> None:
        if plan.node != self._node:
            _log.error("plan for node %r refused: this is %r", plan.node, self._node)
            return
        self.latest = plan
        try:
            save(self._file, plan)
        except OSError as error:
            _log.warning("%s: %s: a restart without the operator would start empty", self._file, error.strerror)


def save(path: Path, plan: NodePlan) -> None:
    """Write the plan for the next start, readable by its owner only, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(plan))
    draft.replace(path)


def load(path: Path, node: str) -> NodePlan | None:
    """Return the saved plan of this node, None if there is none that can be read."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=NodePlan)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        _log.warning("%s: the saved plan cannot be used: %s", path, type(error).__name__)
        return None
    return plan if plan.node == node else None
