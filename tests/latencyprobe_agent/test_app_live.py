import io
import re
from collections import deque
from typing import Any

import numpy as np
from rich.console import Console

from latencyprobe.plan import NodePlan, Objective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.kernel.records import COUNTS_KEY, HISTOGRAM_MIN, Outcome, Role
from latencyprobe_agent.live import LiveLine, figures, line
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measuring import Moment

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (5,), 0, POLICY, ports=(80,))
FAST = Objective("shop/p/fast", CART.id, "fast", Perspective.SERVER, 0, True, "h", "99", "28d", 1)
PLAN = NodePlan("n1", 4, "", (CART,), (FAST,), host=True)
RULES = Rules(sets={1: TargetSet((CART.id,), (5,), 0, POLICY, "shop/p")})


def moment(*sides: tuple[Role, int, int], pairs: int = 0, lost: int = 0) -> Moment:
    """Each side: role, events, events within the threshold. All durations are about 1 ms."""
    keys, totals = np.zeros(len(sides), COUNTS_KEY), np.zeros(len(sides), COUNTS)
    for key, total, (role, events, within) in zip(keys, totals, sides, strict=True):
        key["target_set"], key["role"] = 1, role
        total["outcomes"][Outcome.OK] = events
        total["within"][0] = within
        total["histogram"][-320 - HISTOGRAM_MIN] = events
    return Moment(PLAN, RULES, keys, totals, len(keys), {"ring_full": lost}, 0, pairs)


def shown(*ticks: Moment) -> str:
    return line(deque((float(i), figures(tick)) for i, tick in enumerate(ticks))).plain


def test_an_rpc_that_both_halves_saw_counts_once() -> None:
    text = shown(moment((Role.SERVER, 1000, 990), (Role.CLIENT, 1000, 900), pairs=1000))
    assert "1,000 RPCs  1,000 pairs  0 lost" in text
    assert "fast 99% ≥ 99%" in text
    assert "p50 987us" in text


def test_without_a_server_here_the_clients_count() -> None:
    assert "7 RPCs" in shown(moment((Role.CLIENT, 7, 7)))


def test_the_rate_is_that_of_the_last_ticks() -> None:
    ticks = [moment((Role.SERVER, events, events)) for events in (0, 500, 1000, 3000)]
    assert shown(*ticks).startswith("1,250 RPC/s")


def test_a_missed_goal_and_losses_are_said() -> None:
    text = shown(moment((Role.SERVER, 1000, 900), lost=3))
    assert "fast 90% < 99%" in text
    assert "3 lost" in text


def test_records_that_the_limit_left_out_are_said() -> None:
    tick = moment((Role.SERVER, 9000, 9000), pairs=700)
    tick.totals["thinned_records"] = 8_300
    assert "9,000 RPCs  700 pairs  0 lost  8,300 records thinned" in shown(tick)


def test_before_the_first_event_nothing_is_claimed() -> None:
    assert shown(moment()) == "0 RPC/s  0 RPCs  0 pairs  0 lost  fast no events yet"


def test_on_a_pipe_there_are_no_escapes_and_the_last_figures_stay(monkeypatch: Any) -> None:
    out = io.StringIO()
    with LiveLine(Console(file=out)) as live:
        live(moment((Role.SERVER, 1000, 990), pairs=5))
    assert re.match(r"1,000 RPCs in \d+\.\d s, 5 pairs, 0 lost", out.getvalue())
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1
