"""Where the plan comes from and the counts go: this host alone (here), or the directory (directory/control.py)."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.sli import SliRow
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.vocabulary.undelivered import Undelivered


class Control(Protocol):
    """`peers`, `remote_join`: None where nobody can name an address or ask other nodes. `patient`: whether to stay up
    when measuring is impossible."""

    peers: Peers | None
    remote_join: RemoteJoinPost | None
    patient: bool

    def start(self) -> None:
        """Begin; never waits for anybody."""

    def plan(self) -> NodePlan | None:
        """Return the plan in force, None while there is none."""

    def plan_age_s(self) -> float:
        """Return seconds since the plan was last confirmed."""

    def take(self, rows: Sequence[SliRow]) -> None:
        """Take SLI counts over."""

    def report(self, status: AgentStatus) -> None:
        """Take over the agent's status."""

    def problems(self) -> Mapping[str, str]:
        """Return which parts of it do not work, and why: the status tells."""

    def undelivered(self) -> Undelivered:
        """Return what became of rows that nobody has got."""

    def stop(self, timeout_s: float) -> None:
        """Hand on what is left, for at most `timeout_s`."""


class LocalControl:
    """This host alone: the plan of a file; `keep` gets the rows, such as `SqliteStore.add`."""

    patient = False
    peers: Peers | None = None
    remote_join: RemoteJoinPost | None = None

    def __init__(self, plan: NodePlan, keep: Callable[[Sequence[SliRow]], None]) -> None:
        self._plan = plan
        self._keep = keep
        self._began = time.monotonic()

    def start(self) -> None:
        """Nothing to start."""

    def plan(self) -> NodePlan | None:
        """Return the plan of the file."""
        return self._plan

    def plan_age_s(self) -> float:
        """Return seconds since the file was read."""
        return time.monotonic() - self._began

    def take(self, rows: Sequence[SliRow]) -> None:
        """Keep rows."""
        self._keep(rows)

    def report(self, status: AgentStatus) -> None:
        """Drop it: the command prints what matters."""

    def problems(self) -> Mapping[str, str]:
        """Return nothing: `keep` tells of its own."""
        return {}

    def undelivered(self) -> Undelivered:
        """Return nothing: rows are kept when they are taken."""
        return Undelivered()

    def stop(self, timeout_s: float) -> None:
        """Nothing is left: rows are kept when they are taken."""


class FakeControl(Control):
    """`Control` for tests: `current` is its plan; it keeps `rows` and `statuses`. `failing`, `left`: its
    problems and what it has not delivered. `stopped`: it was told to stop."""

    def __init__(
        self,
        current: NodePlan | None = None,
        *,
        peers: Peers | None = None,
        remote_join: RemoteJoinPost | None = None,
        patient: bool = False,
    ) -> None:
        self.current = current
        self.peers = peers
        self.remote_join = remote_join
        self.patient = patient
        self.rows: list[SliRow] = []
        self.statuses: list[AgentStatus] = []
        self.failing: dict[str, str] = {}
        self.left = Undelivered()
        self.stopped = False

    def start(self) -> None:
        """Start nothing."""

    def plan(self) -> NodePlan | None:
        """Return `current`."""
        return self.current

    def plan_age_s(self) -> float:
        """Return 0: the plan is always confirmed."""
        return 0.0

    def take(self, rows: Sequence[SliRow]) -> None:
        """Keep rows."""
        self.rows += rows

    def report(self, status: AgentStatus) -> None:
        """Keep the status."""
        self.statuses.append(status)

    def problems(self) -> Mapping[str, str]:
        """Return `failing`."""
        return self.failing

    def undelivered(self) -> Undelivered:
        """Return `left`."""
        return self.left

    def stop(self, timeout_s: float) -> None:
        """Remember it."""
        self.stopped = True
