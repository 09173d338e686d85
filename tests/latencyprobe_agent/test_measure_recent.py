"""The halves that evidence is joined to: what is kept of each, and for how long."""

import numpy as np

from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Role


def test_each_side_has_the_message_that_it_sent_and_the_thread_that_had_the_request(make_halves):
    row = {"request_seq": 2**32 - 50, "request_bytes": 100, "response_seq": 7, "response_bytes": 1000}
    threads = {"writer_tid": 11, "reader_tid": 12}
    recent = RecentHalves(4)

    recent.keep(make_halves({"role": Role.CLIENT, **row, **threads}, {"role": Role.SERVER, **row, **threads}))

    assert [(2**32 - 50, 50, 11), (7, 1007, 12)] == recent.rows[["seq", "end_seq", "tid"]][:2].tolist()


def test_the_newest_take_the_place_of_the_oldest(make_halves):
    recent = RecentHalves(4)
    kept = []
    for count in (3, 2, 6):
        recent.keep(make_halves(*({"role": Role.SERVER, "flags": ExchangeFlags.FRESH} for _ in range(count))))
        kept.append((recent.kept, sorted(recent.rows["at"].tolist())))

    assert [(3, [0, 1, 2, 3]), (5, [2, 3, 4, 5])] == kept[:2]
    assert 4 == len(np.unique(recent.rows["at"])), "of a batch that is larger, its newest"
    assert recent.rows["fresh"].all()
