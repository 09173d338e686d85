"""Connections of two containers that have address, port and descriptor one after the other: each one's RPC is its own.

CONNECTIONS=1000000 in the environment makes it as many as that.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import Role
from tests.support.cgroups import own_cgroup
from tests.support.ports import free_port
from tests.truth import same_port

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

CONNECTIONS = int(os.environ.get("CONNECTIONS", "20000"))


def test_whoever_has_the_port_after_another_is_never_taken_for_it(session, tmp_path: Path) -> None:
    port, own_port = free_port(), free_port()
    with own_cgroup("lp-ports") as parent:
        *dialers, serves = cgroups = [parent / name for name in ("first", "second", "server")]
        owners = np.array([one.folder.stat().st_ino for one in cgroups], np.uint64)
        session.measure(port)
        rules = replace(session.rules, scopes=dict.fromkeys(owners.tolist(), session.rules.host), host=(0, 0))
        session.programs.apply(rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False)
        with same_port.serving(port, serves.folder):
            spans = same_port.dial(port, own_port, CONNECTIONS, [one.folder for one in dialers], tmp_path)
        records = session.records_of_ended()

    skipped = sum(session.skipped().values())
    for role, begins, ends in (
        (Role.CLIENT, "send_start_ns", "read_last_ns"),
        (Role.SERVER, "ready_first_ns", "send_start_ns"),
    ):
        mine = records[records["role"] == role]
        nth = np.searchsorted(spans["began_ns"], mine[begins], "right") - 1
        of = spans[nth]
        print(f"{role.name}: {len(mine)} of {CONNECTIONS}, {skipped} firings skipped on this machine")
        assert 0 <= CONNECTIONS - len(mine) <= skipped
        assert len(set(nth.tolist())) == len(nth), "one RPC of each connection"
        assert (mine["request_bytes"] == same_port.length_of(nth)).all()
        assert (mine["response_bytes"] == mine["request_bytes"]).all()
        expected = owners[nth % same_port.SENDERS] if role == Role.CLIENT else owners[-1]
        assert (mine["cgroup_id"] == expected).all(), "nobody is taken for who had the port before"
        assert ((mine[begins] >= of["began_ns"]) & (mine[ends] <= of["ended_ns"])).all(), "no stamp of before"
