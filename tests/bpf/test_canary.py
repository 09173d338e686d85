"""The canary on the real kernel: it is heard, nobody else hears of it, and a hook that is off is named."""

from pathlib import Path

import pytest

from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.loop.canary import Canary, SilentHookError
from latencyprobe_agent.measure.canary import CANARY_SET
from latencyprobe_agent.measure.rules import NO_RULES
from tests.truth.session import OBJECT
from tests.truth.taking_away import take_away

pytestmark = pytest.mark.root


@pytest.fixture
def programs():
    """Programs that measure nobody but the canary."""
    with Programs.open(OBJECT) as programs:
        own = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        programs.apply(
            NO_RULES, idle_timeout_ns=10**9, own_tgid=0, owner_by_process=False, own_cgroups=[own.stat().st_ino],
            records_per_second=1,
        )  # fmt: skip
        yield programs


@pytest.fixture
def sing(programs):
    """What the canary does in some intervals; returns the records of others that came meanwhile."""
    now_s = 0.0
    canary = Canary(programs, lambda: now_s)

    def sing(times: int) -> int:
        nonlocal now_s
        others = 0
        for _ in range(times):
            canary.sing()
            programs.flush()
            others += len(canary.others(programs.drain()))
            now_s += 10
        return others

    yield sing
    canary.close()


def test_it_is_heard_and_in_no_record_and_no_count_of_others(programs, sing):
    assert sing(20) == 0
    keys, _ = programs.counts()
    assert CANARY_SET not in keys["target_set"]
    assert programs.unaccounted() == {}
    assert not any(programs.lost().values())


@pytest.mark.parametrize("event", ["state", "send_start", "send_end", "ready", "read"])
def test_an_event_whose_hook_is_off_is_named(programs, sing, event):
    sing(2)
    take_away(programs, event)
    with pytest.raises(SilentHookError, match=f"{event} "):
        sing(4)
