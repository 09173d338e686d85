"""From a change to the agents that follow it."""

from latencyprobe_operator.plan.deliveries import LOST_S, MAX_OPEN, TRACED_NODES, Change, Deliveries, Delivery


class Sink:
    """What became of the deliveries."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self.delivered: list[Delivery] = []
        self.deliveries = Deliveries(self.took_s.append, delivered=self.delivered.append)

    def plan(self, seen_s: float, **generations: int) -> Change:
        change = Change(seen_s, seen_s + 0.2, seen_s + 0.5, len(generations), ("shop",))
        self.deliveries.planned(change, generations)
        return change


def test_a_change_is_delivered_when_its_last_node_follows() -> None:
    sink = Sink()
    change = sink.plan(10, n1=1, n2=1)
    sink.deliveries.followed("n1", 1, 11)
    assert not sink.delivered
    sink.deliveries.followed("n2", 1, 13)
    assert sink.delivered == [Delivery(change, {"n1": 11, "n2": 13})]
    assert sink.took_s == [1, 3]


def test_a_node_that_jumps_to_a_newer_plan_follows_all_and_counts_from_the_oldest_change() -> None:
    sink = Sink()
    sink.plan(10, n1=1)
    sink.plan(12, n1=2)
    sink.deliveries.followed("n1", 0, 13)  # of a plan from before
    assert not sink.delivered
    sink.deliveries.followed("n1", 2, 14)
    assert [d.followed_s for d in sink.delivered] == [{"n1": 14}, {"n1": 14}]
    assert sink.took_s == [4]
    sink.deliveries.followed("n1", 2, 29)  # its status of each 15 s
    assert sink.took_s == [4]


def test_who_does_not_follow_within_a_minute_is_given_up_and_said() -> None:
    sink = Sink()
    sink.plan(10, n1=1, n2=1)
    sink.deliveries.followed("n1", 1, 11)
    sink.plan(11 + LOST_S, n3=1)
    assert [d.followed_s for d in sink.delivered] == [{"n1": 11, "n2": None}]
    sink.deliveries.followed("n2", 1, 200)
    assert sink.took_s == [1], "a node that was away all the time says nothing of our speed"


def test_changes_of_nobody_who_reads_are_not_waited_for() -> None:
    sink = Sink()
    sink.plan(10)
    assert not sink.delivered


def test_what_is_remembered_is_bounded() -> None:
    sink = Sink()
    sink.plan(10, **{f"n{i}": 1 for i in range(1000)})
    for i in range(1000):
        sink.deliveries.followed(f"n{i}", 1, 11)
    assert len(sink.took_s) == 1000
    assert [len(d.followed_s) for d in sink.delivered] == [TRACED_NODES]
    for second in range(MAX_OPEN + 5):
        sink.plan(20 + second / 100, n1=2 + second)
    assert len(sink.delivered) == 1 + 5
