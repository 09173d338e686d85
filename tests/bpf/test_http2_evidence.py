"""What explains calls of HTTP/2: a segment that was lost held up every stream behind it."""

from random import Random

import pytest

from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.signals.retransmits import EXPLAINS, KEY
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import Role
from tests.truth.http2 import ASK, Connection, Type, frame
from tests.truth.lossy import Network
from tests.truth.netns import ONCE
from tests.truth.recorder import beside
from tests.truth.streams import Streams

pytestmark = [pytest.mark.root, pytest.mark.hideable]


def test_a_lost_segment_is_joined_to_every_stream_that_waited_for_it(
    streams: Streams, port: int, lossy: Network
) -> None:
    """Ten requests, a segment each; the third is lost. It had to wait, and those behind it that had left before it came
    again; none before it."""
    streams.measure(port, evidence=(RETRANSMITS.switch,))
    ((client_end, server_end),) = lossy.connect(port)
    connection, dice = Connection(client_end, server_end), Random(1)
    connection.greet()
    connection.settle(dice)
    with beside(streams.session.programs, RETRANSMITS) as recorder:
        lossy.server.filter("input", f"tcp dport {port} meta length > 200 {ONCE} drop")
        for number in range(10):
            connection.asks.put(frame(Type.HEADERS, ASK, 2 * number + 1, bytes(200 if number == 2 else 40)))
            connection.asks.send(1 << 20, dice)
        connection.settle(dice)
        for number in range(10):
            connection.answers.put(frame(Type.HEADERS, ASK, 2 * number + 1, bytes(40)))
        connection.settle(dice)
        connection.close()
        found = streams.records(20)
        resent = recorder.until(len, "it was sent again", role=Role.CLIENT)
    recent = RecentHalves()
    recent.keep(halves(found.copy()))
    joined = EvidenceJoin(recent, KEY, EXPLAINS.waits).join(resent, int(resent.key["at_ns"].max()))
    assert joined is not None
    client = found[found["role"] == Role.CLIENT]
    streams_at = {int(one["request_seq"]): int(one["stream_id"]) for one in client}
    again_ns = int(resent.key["at_ns"].max())
    began_ns = connection.asks.sent.began_ns[-10:]
    waited = {2 * number + 1 for number in range(2, 10) if began_ns[number] < again_ns}
    print(f"{len(waited)} of 10 streams waited")
    assert {streams_at[int(seq)] for seq in joined.half["seq"]} == waited
