"""What is sent again while the kernel skips the program that records it is counted once, whatever comes next.

As in test_skipped, the program is taken away altogether meanwhile.
"""

import socket

import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.signals.retransmits import sent
from latencyprobe_agent.signals.table import RETRANSMITS
from tests.support.waiting import wait_until
from tests.truth.lossy import SERVER_ADDRESS, counters
from tests.truth.netns import ONCE
from tests.truth.recorder import alone
from tests.truth.taking_away import without

pytestmark = [pytest.mark.root, pytest.mark.hideable]

EBUSY = 16
DATA = "meta length > 500"


def test_a_segment_without_a_record_counts_though_the_next_attempt_is_given_up_before_it_is_sent(lossy, port):
    """It is still in the host's own queue, EBUSY: the kernel's count does not grow by that attempt."""
    lossy.client.sysctl("net.ipv4.tcp_early_retrans", 0)  # no loss probes
    with alone(RETRANSMITS, Filter(port=port)) as watch:
        (programs,) = watch.programs
        ((client, server),) = lossy.connect(port)
        before = counters(lossy.client)["RetransSegs"]

        def sent_again() -> int:
            return counters(lossy.client)["RetransSegs"] - before

        lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
        client.sendall(bytes(1000))
        assert len(server.recv(1000, socket.MSG_WAITALL)) == 1000
        assert sent_again() == 1, "from here on the socket's own count is known"

        lossy.server.unfilter()
        lossy.server.filter("input", f"tcp dport {port} {DATA} {ONCE} drop")
        client.sendall(bytes(1000))
        with lossy.client.limited("8kbit"), lossy.client.inside(), socket.socket(type=socket.SOCK_DGRAM) as filler:
            for _ in range(9):  # as many seconds
                filler.sendto(bytes(1000), (SERVER_ADDRESS, 9))
            with without(programs, "retransmit"):
                wait_until(lambda: sent_again() == 2, "it is sent again")
            watch.until(lambda evidence: -EBUSY in evidence.rec["err"], "an attempt that is given up", client)
        assert len(server.recv(1000, socket.MSG_WAITALL)) == 1000

        records, counts = watch.records(client), watch.counted()
        recorded = records["segs"][sent(records)].sum()
        assert (counts["segs_retrans"], counts["segs_unrecorded"]) == (sent_again(), 1), records["err"]
        assert recorded == sent_again() - 1
