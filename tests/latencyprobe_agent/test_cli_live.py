import errno
import io
import logging
import re
from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.cli import live
from latencyprobe_agent.cli.live import LiveLine, LogAbove, figures, line
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.identity.resources import ProcessResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce, Turn, empty
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, HISTOGRAM_MIN, Excluded, Outcome, Role

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (5,), 0, POLICY, ports=(80,))
FAST = PlannedObjective("shop/p/fast", CART.id, "fast", Perspective.SERVER, 0, True, "h", "99", "28d", 1)
PLAN = NodePlan("n1", 4, "", (CART,), (FAST,), host=True)
RULES = Rules(sets={1: TargetSet((CART.id,), (5,), 0, POLICY, "shop/p")})


def turn(*sides: tuple[Role, int, int], lost: int = 0) -> Turn:
    """Each side: role, events, events within the threshold. All durations are about 1 ms."""
    keys, totals = np.zeros(len(sides), COUNTS_KEY), np.zeros(len(sides), COUNTS)
    for key, total, (role, events, within) in zip(keys, totals, sides, strict=True):
        key["target_set"], key["role"] = 1, role
        total["outcomes"][Outcome.OK] = events
        total["within"][0] = within
        total["histogram"][-320 - HISTOGRAM_MIN] = events
    counts = Counts(keys, totals)
    snapshot = Snapshot(counts, counts, keys[:0], {"ring_full": lost})
    return empty(Now(0, 0), InForce(PLAN, RULES, ProcessResources("n1")))._replace(counts=snapshot)


def shown(*ticks: Turn, pairs: int = 0) -> str:
    return line(deque((float(i), figures(tick, pairs)) for i, tick in enumerate(ticks))).plain


def test_an_rpc_that_both_halves_saw_counts_once() -> None:
    text = shown(turn((Role.SERVER, 1000, 990), (Role.CLIENT, 1000, 900)), pairs=1000)
    assert "1,000 RPCs  1,000 pairs  0 lost" in text
    assert "fast 99% ≥ 99%" in text
    assert "p50 987us" in text


def test_an_sli_is_told_as_exactly_as_its_goal() -> None:
    objective = msgspec.structs.replace(FAST, goal="99.9995")
    tick = turn((Role.SERVER, 10**7, 10**7 - 4))
    tick = tick._replace(in_force=tick.in_force._replace(plan=NodePlan("n1", 4, "", (CART,), (objective,), host=True)))
    assert "fast 99.99996% ≥ 99.9995%" in shown(tick)


def excluding(tick: Turn, role: Role = Role.SERVER, **reasons: int) -> Turn:
    assert tick.counts is not None
    keys, values = tick.counts.counts
    for reason, n in reasons.items():
        values["excluded"][keys["role"] == role, Excluded[reason.upper()]] = n
    return tick


def test_turns_that_are_no_rpc_are_said_with_the_most_frequent_reason() -> None:
    both = turn((Role.SERVER, 1000, 990), (Role.CLIENT, 1000, 990))
    assert shown(excluding(both, push=2250, oneway=60)).endswith("≥ 99%  2,310 no RPC, mostly push")
    assert shown(excluding(turn((Role.SERVER, 9, 9)), oneway=60)).endswith("60 no RPC: one-way")
    other_side = excluding(turn((Role.SERVER, 9, 9), (Role.CLIENT, 9, 9)), Role.CLIENT, own=7)
    assert "no RPC" not in shown(other_side)


def test_of_what_is_never_an_rpc_the_side_that_saw_most_is_said() -> None:
    none = turn((Role.SERVER, 0, 0), (Role.CLIENT, 0, 0))
    assert "0 RPCs" in shown(excluding(none, multiplexed=7))
    assert "7 no RPC: multiplexed" in shown(excluding(none, multiplexed=7))
    assert "9 no RPC: multiplexed" in shown(excluding(none, Role.CLIENT, multiplexed=9))


def test_the_last_figures_tell_every_reason() -> None:
    out = io.StringIO()
    live = LiveLine(Console(file=out))
    live.take(excluding(turn((Role.SERVER, 37_690, 1)), push=2250, oneway=60))
    live.close()
    figures, told = out.getvalue().splitlines()
    assert figures.startswith("37,690 RPCs in ")
    assert told == "2,310 of 40,000 turns counted as no RPC: push 2,250, one-way 60"


def test_without_a_server_here_the_clients_count() -> None:
    assert "7 RPCs" in shown(turn((Role.CLIENT, 7, 7)))


def test_the_rate_is_that_of_the_last_ticks() -> None:
    ticks = [turn((Role.SERVER, events, events)) for events in (0, 500, 1000, 3000)]
    assert shown(*ticks).startswith("1,250 RPC/s")


def test_a_missed_goal_and_losses_are_said() -> None:
    text = shown(turn((Role.SERVER, 1000, 900), lost=3))
    assert "fast 90% < 99%" in text
    assert "3 lost" in text


def test_records_of_evidence_that_never_arrived_are_said() -> None:
    lost = {"handshakes": {"ring_full": 4_000, "recursion": 703}, "retransmits": {"ring_full": 0}}
    tick = turn((Role.SERVER, 1, 1))._replace(stats=AgentStats(evidence_lost=lost))
    assert "0 lost  4,703 lost of handshakes  p50" in shown(tick)


def test_records_that_the_limit_left_out_are_said() -> None:
    tick = turn((Role.SERVER, 9000, 9000))
    assert tick.counts is not None
    tick.counts.counts.values["sampled_out_records"] = 8_300
    assert "9,000 RPCs  700 pairs  0 lost  8,300 records sampled out" in shown(tick, pairs=700)


def test_before_the_first_event_nothing_is_claimed() -> None:
    assert shown(turn()) == "0 RPC/s  0 RPCs  0 pairs  0 lost  fast no events yet"


@pytest.mark.parametrize("of", [{}, {"force_terminal": True, "_environ": {"TERM": "dumb"}}], ids=["pipe", "dumb"])
def test_where_no_line_can_be_replaced_one_comes_after_the_other(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PLAIN_EVERY_S", 0.0)
    out = io.StringIO()
    shows = LiveLine(Console(file=out, width=200, **of))
    for rpcs in (1, 2):
        shows.take(turn((Role.SERVER, rpcs, rpcs)))
        assert f"  {rpcs} RPC" in out.getvalue().splitlines()[-1]
    assert "\x1b" not in out.getvalue()


def test_on_a_pipe_there_are_no_escapes_and_the_last_figures_stay(make_halves: Any) -> None:
    out = io.StringIO()
    live = LiveLine(Console(file=out))
    pair = make_halves({"role": Role.SERVER}, {"role": Role.CLIENT})
    live.take(turn()._replace(pairs=LocalJoin().join(pair), counts=None))
    live.take(turn((Role.SERVER, 1000, 990)))
    live.close()
    assert re.match(r"1,000 RPCs in \d+\.\d s, 1 pair, 0 lost", out.getvalue())
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    """As with standard error in a file on a full disk: a listener that fails at it is skipped, and so is its log."""

    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    handler, log, guard = LogAbove(Console(file=Full())), logging.getLogger(), Guard()
    log.addHandler(handler)
    try:
        assert guard.run("live", fail) is None
    finally:
        log.removeHandler(handler)
    assert guard.failures == {"live": 1}
