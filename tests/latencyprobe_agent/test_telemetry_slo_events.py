"""Counters of objectives while a LatencyProbe is edited: none falls, none mixes two definitions."""

import numpy as np
from msgspec.structs import replace

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.measure.counts import COUNTS, NO_COUNTS, Counts
from latencyprobe_agent.measure.rules import NO_RULES, compile_rules
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role

WEB = "shop/cart/web"
FAST = PlannedObjective("shop/cart/fast", WEB, "fast", Perspective.SERVER, 0, True, "h1", "99", "28d", 100)
OTHER = replace(FAST, id="shop/cart/other", name="other", threshold_index=-1, hash="h0")


def plan(*thresholds_ns, objectives=(FAST, OTHER)):
    spans = SpanPolicy(1, 1.0, 100)
    pods = (TargetPod("a", (80,)),)
    target = Target(WEB, "shop", "cart", "uid", "web", Perspective.SERVER, thresholds_ns, 0, spans, pods=pods)
    return NodePlan("n1", 1, "", (target,), objectives)


class Kernel:
    """Counts by target set of one owner; what is counted falls in the set in force, all of it lasts `ns`."""

    def __init__(self):
        self.rules = NO_RULES
        self.counts = NO_COUNTS
        self.slo = SloEvents()

    def follow(self, new, now_unix_ns):
        self.rules = compile_rules(new, {"a": [1]}, self.rules)
        self.slo.follow(new, self.rules, self.counts, now_unix_ns)

    def count(self, ns, ok=0, failed=0):
        (index,) = set(self.rules.rules.values())
        if index not in self.counts.keys["target_set"]:
            key, value = np.array([(7, index, Role.SERVER)], COUNTS_KEY), np.zeros(1, COUNTS)
            self.counts = Counts(np.append(self.counts.keys, key), np.append(self.counts.values, value))
        value = self.counts.values[self.counts.keys["target_set"] == index]
        value["outcomes"] += np.bincount(
            [Outcome.OK] * ok + [Outcome.RESET] * failed, minlength=len(value["outcomes"][0])
        ).astype("u8")
        for place, threshold_ns in enumerate(self.rules.sets[index].thresholds_ns):
            value["within"][:, place] += (ns <= threshold_ns) * (ok + failed)
            value["failed_within"][:, place] += (ns <= threshold_ns) * failed
        self.counts.values[self.counts.keys["target_set"] == index] = value

    def events(self):
        """Good, bad and start by objective."""
        return {one.objective.name: (one.good, one.bad, one.start_unix_ns) for one in self.slo.of(WEB, self.counts)}


def test_a_threshold_that_is_edited_there_and_back_starts_again_each_time_and_the_other_objective_goes_on():
    kernel = Kernel()
    kernel.follow(plan(10, 1000), 0)
    kernel.count(20, ok=5)
    assert kernel.events() == {"fast": (0, 5, 0), "other": (5, 0, 0)}

    kernel.follow(plan(30, 1000, objectives=(replace(FAST, hash="h2"), OTHER)), 100)
    assert kernel.events() == {"other": (5, 0, 0)}, "nobody knows how many of the five took less than 30"
    kernel.count(20, ok=2)
    assert kernel.events() == {"fast": (2, 0, 100), "other": (7, 0, 0)}

    kernel.follow(plan(10, 1000), 200)
    assert kernel.events() == {"fast": (0, 0, 200), "other": (7, 0, 0)}
    kernel.count(20, ok=1)
    assert kernel.events() == {"fast": (0, 1, 200), "other": (8, 0, 0)}


def test_an_objective_that_judges_errors_otherwise_starts_again_in_the_same_set():
    kernel = Kernel()
    kernel.follow(plan(10, 1000, objectives=(replace(FAST, errors_count_as_bad=False), OTHER)), 0)
    kernel.count(5, ok=5, failed=3)
    assert kernel.events() == {"fast": (8, 0, 0), "other": (5, 3, 0)}

    kernel.follow(plan(10, 1000, objectives=(replace(FAST, hash="h2"), OTHER)), 100)
    kernel.count(5, ok=1, failed=1)
    assert kernel.events() == {"fast": (1, 1, 100), "other": (6, 4, 0)}


def test_other_fields_and_other_rules_change_no_counter():
    kernel = Kernel()
    kernel.follow(plan(10, 1000), 0)
    kernel.count(5, ok=5)
    kernel.follow(plan(10, 20, 1000, objectives=(replace(FAST, goal="90", window="7d"), OTHER)), 100)  # another set
    kernel.count(5, ok=1)
    assert kernel.events() == {"fast": (6, 0, 0), "other": (6, 0, 0)}


def test_an_objective_that_was_away_starts_again():
    kernel = Kernel()
    kernel.follow(plan(10, 1000), 0)
    kernel.count(5, ok=5)
    kernel.follow(plan(10, 1000, objectives=(OTHER,)), 100)
    kernel.count(5, ok=3)
    kernel.follow(plan(10, 1000), 200)
    kernel.count(5, ok=1)
    assert kernel.events() == {"fast": (1, 0, 200), "other": (9, 0, 0)}


def test_a_key_that_the_kernel_let_go_counts_from_0():
    kernel = Kernel()
    kernel.follow(plan(10, 1000), 0)
    kernel.count(5, ok=5)
    kernel.follow(plan(10, 1000, objectives=(replace(FAST, hash="h2"), OTHER)), 100)
    kernel.slo.forget(kernel.counts.keys)
    kernel.counts = NO_COUNTS
    kernel.count(5, ok=1)
    assert kernel.events() == {"fast": (1, 0, 100), "other": (1, 0, 0)}
