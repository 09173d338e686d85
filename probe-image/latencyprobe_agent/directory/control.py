"""The agent's control in a cluster: plan and identities come from the operator's directory, counts and status go there.

Nothing here waits for the operator: while it is away the last plan holds and counts are kept, on disk if there is one.
"""

from collections.abc import Mapping, Sequence

from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.sli import SliRow
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.plans import PlanFollower
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.directory.reporting import Reporting
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.vocabulary.undelivered import Undelivered


class DirectoryControl:
    """A node of a cluster, under the operator. `guard` tells what its threads raise."""

    patient = True

    def __init__(self, config: Config, guard: Guard) -> None:
        directory = Directory(config.directory, config.node, token_file=config.token_file, ca_file=config.ca_file)
        self.peers: Peers | None = Peers(directory.identities, guard, lambda: self._follower.silent_s)
        self.remote_join: RemoteJoinPost | None = RemoteJoinPost(directory.remote_join, guard)
        self._follower = PlanFollower(
            directory, config.node, config.state_dir, self.remote_join.receive, self.peers.forget, guard=guard
        )
        self._waiting = WaitingRows(config.state_dir)
        self._uplink = Uplink(directory, self._waiting, guard)
        self._reporting = Reporting(directory, config.status_interval_s, guard)

    def start(self) -> None:
        """Start the threads that talk to the directory."""
        self._follower.start()
        self._uplink.start()
        self._reporting.start()
        assert self.peers is not None
        assert self.remote_join is not None
        self.peers.start()
        self.remote_join.start()

    def plan(self) -> NodePlan | None:
        """Return the plan last received, or saved by the run before this one."""
        return self._follower.latest

    def plan_age_s(self) -> float:
        """Return seconds since the directory last confirmed the plan."""
        return self._follower.age_s

    def take(self, rows: Sequence[SliRow]) -> None:
        """Queue rows for the directory."""
        self._uplink.add(rows)

    def report(self, status: AgentStatus) -> None:
        """Queue the status."""
        self._reporting.report(status)

    def problems(self) -> Mapping[str, str]:
        """Return why counts wait in memory, if they do."""
        return {"spool": self._waiting.problem} if self._waiting.problem else {}

    def undelivered(self) -> Undelivered:
        """Return how many rows wait, and how many are dropped."""
        return Undelivered(len(self._waiting), self._waiting.dropped.copy())

    def stop(self, timeout_s: float) -> None:
        """Send what is left: the counts first, as a node that ends takes their folder with it."""
        self._follower.stop()
        assert self.peers is not None
        assert self.remote_join is not None
        self.peers.stop()
        self.remote_join.stop()
        self._uplink.stop(timeout_s)
        self._reporting.stop(timeout_s / 2)
