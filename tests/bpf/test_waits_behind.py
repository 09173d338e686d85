"""The programs of waits at reads and answers go on where the measuring ones end, as long as waits are asked for."""

import numpy as np
import pytest

from latencyprobe_agent.kernel.attached import u32
from latencyprobe_agent.signals.table import WAITS
from tests.truth import recorder
from tests.truth.waiting_client import BOTH, SLOW, split_of, waiting_server

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

HOOKS = ("tcp_sendmsg_locked", "do_tcp_sendpages", "sock_recv_length", "inet_recvmsg", "inet6_recvmsg")


def behind(programs) -> dict[str, int]:
    """Hooks behind which there is a program, with its id."""
    found, number = {}, np.zeros(1, np.uint32)
    for hook in HOOKS:
        if programs.map(f"behind_{hook}").lookup(u32(0), number.view(np.uint8).data):
            found[hook] = int(number[0])
    return found


def test_they_are_there_while_waits_are_and_can_come_again(session, port):
    session.measure(port, evidence=BOTH, waits=SLOW)
    with waiting_server(port) as server:
        asked = server.connect()
        for _ in range(2):
            asked.ask("sleep 0.03")
            assert {} == behind(session.programs)
            with recorder.beside(session.programs, WAITS) as waits:
                first = behind(session.programs)
                assert 2 <= len(first) <= 4, "reads and answers"
                told = asked.ask("sleep 0.05")
                split_of(waits, told)
                assert waits.counted()["served"].tolist() == [1, 0, 0, 0], "the requests before are not known"
                assert first == behind(session.programs)
    assert {} == behind(session.programs)
