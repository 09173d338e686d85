"""Two hosts' clocks are never compared: one that is far off, or drifts away, changes no stage of the other or of both.

A clock that runs too fast does lengthen what its own host measures, by as much and no more.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from latencyprobe.plan import ServerHalf
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin, Pairs
from latencyprobe_agent.measure.remote_join import server_halves
from latencyprobe_agent.signals.exchanges import CLIENT_POINTS as STAMPS
from latencyprobe_agent.vocabulary.records import EXCHANGE, Role

SECOND = 10**9
MILLION_SECONDS = 10**6 * SECOND
UPTIME_NS = 3 * MILLION_SECONDS  # of both hosts: no stamp becomes negative
PPM = 1e-6
# 20 exchanges, one a second, whose stamps come in any order or were not taken (0): the worst that the kernel may tell.
STAMPS_NS = hnp.arrays(np.int64, (20, len(STAMPS)), elements=st.one_of(st.just(0), st.integers(1, SECOND)))
SIDES = st.sampled_from([Role.CLIENT, Role.SERVER])
SIGNS = st.sampled_from([-1, 1])


def records(role: Role, stamps_ns: np.ndarray) -> np.ndarray:
    batch = np.zeros(len(stamps_ns), EXCHANGE)
    batch["role"], batch["request_offset"], batch["srtt_us"] = role, np.arange(len(batch)), 40
    began_ns = UPTIME_NS + SECOND * np.arange(len(batch))
    for name, after_ns in zip(STAMPS, stamps_ns.T, strict=True):
        batch[name] = np.where(after_ns, began_ns + after_ns, 0)
    return batch


def by_another_clock(batch: np.ndarray, more_ns) -> np.ndarray:
    """The same exchanges by a clock that shows `more_ns(stamps)` more."""
    other = batch.copy()
    for name in STAMPS:
        stamps_ns = batch[name].astype(np.int64)
        other[name] = np.where(stamps_ns, stamps_ns + more_ns(stamps_ns), 0)
    return other


def joined(client: Halves, server: Halves) -> Pairs:
    """The pairs, as an agent makes them that holds both halves."""
    join = LocalJoin()
    join.join(client)
    return join.join(server)


def recalled(client: Halves, server: Halves) -> Pairs:
    """The pairs, as the client's agent makes them from what another host tells."""
    rows = zip(server.join_key.tolist(), server.stages.tolist(), server.rec["srtt_us"].tolist(), strict=True)
    return joined(client, server_halves({key: ServerHalf("", tuple(ns), srtt_us=us) for key, ns, us in rows}))


def assert_same_stages(client: np.ndarray, server: np.ndarray, other_client: np.ndarray, other_server: np.ndarray):
    before = [halves(batch) for batch in (client, server)]
    after = [halves(batch) for batch in (other_client, other_server)]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.join_key, other.join_key)
        np.testing.assert_array_equal(one.stages, other.stages)
        np.testing.assert_array_equal(one.duration_ns, other.duration_ns)
    for pair in (joined, recalled):
        pairs, others = pair(*before), pair(*after)
        assert 20 == len(pairs) == len(others)
        np.testing.assert_array_equal(pairs.client.join_key, others.client.join_key)
        np.testing.assert_array_equal(pairs.stages, others.stages)
        np.testing.assert_array_equal(pairs.network_excess, others.network_excess)


@given(STAMPS_NS, STAMPS_NS, SIDES, SIGNS)
def test_a_clock_a_million_seconds_off_changes_no_bit_of_any_stage(client_ns, server_ns, side, sign):
    client, server = records(Role.CLIENT, client_ns), records(Role.SERVER, server_ns)

    other = {Role.CLIENT: client, Role.SERVER: server}
    other[side] = by_another_clock(other[side], lambda _: sign * MILLION_SECONDS)

    assert_same_stages(client, server, other[Role.CLIENT], other[Role.SERVER])


@given(STAMPS_NS, STAMPS_NS, SIDES, SIGNS)
def test_clocks_that_drift_apart_by_200_ppm_change_no_bit_of_any_stage(client_ns, server_ns, side, sign):
    """Each exchange finds another distance between the clocks, in the end 600 s."""
    client, server = records(Role.CLIENT, client_ns), records(Role.SERVER, server_ns)
    drift_ns = sign * (200 * PPM * (UPTIME_NS + SECOND * np.arange(len(client)))).astype(np.int64)

    other = {Role.CLIENT: client, Role.SERVER: server}
    other[side] = by_another_clock(other[side], lambda _: drift_ns)

    assert_same_stages(client, server, other[Role.CLIENT], other[Role.SERVER])


@given(STAMPS_NS, SIGNS)
def test_a_clock_that_runs_200_ppm_wrong_mismeasures_its_own_stages_by_200_ppm(stamps_ns, sign):
    server = records(Role.SERVER, stamps_ns)
    fast = by_another_clock(server, lambda ns: np.round(sign * 200 * PPM * ns).astype(np.int64))

    one, other = (halves(batch) for batch in (server, fast))

    allowed_ns = 200 * PPM * one.stages + 1  # of rounding
    assert (np.abs(other.stages - one.stages) <= allowed_ns).all()
