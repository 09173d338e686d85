"""Both sides of the remote join, once per turn: questions and halves for others out, pairs and server halves in.

`measure/remote_join.py` decides, `directory/remote_join.py` carries. Only with a directory: one host alone has both
halves of everything that it can know.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from latencyprobe.plan import LONGEST_NS, NAME, ServerHalf, UnsentBytes
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.identity.resources import UNKNOWN_SERVICE, Resources
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import LocalJoin, Pairs
from latencyprobe_agent.measure.remote_join import Answering, Asking, Found, RemoteJoin
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address


class RemoteJoiner:
    """Both sides of the remote join on one node."""

    def __init__(self, post: RemoteJoinPost, config: Config) -> None:
        self._asking = Asking(
            join_wait_s=config.join_wait_s, answer_wait_s=config.remote_join_wait_s, per_second=config.spans_per_second
        )
        self._answering = Answering(keep_s=config.remote_join_keep_s)
        self._post = post

    @property
    def counts(self) -> Mapping[str, int]:
        """Halves asked for by this node and by others, by what became of them."""
        dropped = Counter({f"dropped_{reason}": count for reason, count in self._post.dropped.copy().items()})
        return self._asking.counts + self._answering.counts + dropped

    def consider(self, halves: Halves, pairs: Pairs, in_force: InForce, now_ns: int) -> None:
        """Take in a batch and what was joined on this node."""
        self._asking.consider(halves, pairs, in_force.rules.sets, in_force.plan.pair_key, now_ns)

    def turn(
        self, join: LocalJoin, in_force: InForce, lost: Callable[[int], Mapping[str, int]], now_s: float
    ) -> tuple[RemoteJoin, Halves]:
        """Send what is due; return what has come, and the halves that shall become spans as their client's have.

        `join` keeps this node's halves without a pair. `lost`: join key → what that server half lost by the evidence,
        in ns by signal.
        """
        received, refused = self._post.take()
        self._asking.refused(refused)
        pairs, answers = self._asking.answered(half for one in received for half in one.halves)
        for one in received:
            self._answering.ask(one.asks, now_s)
        found = self._answering.find(join, in_force.plan.pair_key, now_s)
        due = self._asking.due(now_s)
        if due or found.keys:
            questions = [(address(question.peer), question.span, question.key) for question in due]
            self._post.send(questions, _answers(found, in_force.resources, lost))
        servers = {join_key: (half.service, half.namespace) for join_key, half in answers.items()}
        return RemoteJoin(pairs, servers, self._asking.pending, answers), found.halves.take(found.spans)


def _answers(found: Found, resources: Resources, lost: Callable[[int], Mapping[str, int]]) -> list[ServerHalf]:
    """Return halves as the node that asked gets them."""
    answers = []
    halves = found.halves
    rows = zip(found.keys, halves.join_key.tolist(), halves.stages.tolist(), halves.rec, strict=True)
    for key, join_key, stages_ns, record in rows:
        who = resources.attributes(int(record["cgroup_id"]))
        service = who[names.SERVICE_NAME]
        answers.append(
            ServerHalf(
                key,
                tuple(stages_ns),
                flags=int(record["flags"]),
                srtt_us=int(record["srtt_us"]),
                service="" if service == UNKNOWN_SERVICE else str(service)[:NAME],
                namespace=str(who.get(names.SERVICE_NAMESPACE) or who.get(names.K8S_NAMESPACE_NAME) or "")[:NAME],
                pod=str(who.get(names.K8S_POD_NAME, ""))[:NAME],
                lost_ns=dict(lost(join_key)),
                unsent=_unsent(record),
            )
        )
    return answers


def _unsent(record: np.void) -> UnsentBytes | None:
    """Return what a half's kernel held, as the node that asked gets it."""
    if not record["unsent_reason"]:
        return None
    held_ns = min(int(record["held_ns"]), LONGEST_NS)
    reason, size, bound = (int(record[name]) for name in ("unsent_reason", "unsent_bytes", "held_bound"))
    return UnsentBytes(reason, size, held_ns, bound)
