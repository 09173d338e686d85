"""Scripts, player, model and checks fit together: played in imagination, no event of the model is untrue. No root."""

from collections import Counter

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded, Role
from tests.truth.endings import ENDS, Author
from tests.truth.findings import Findings
from tests.truth.played import OTHER, Played
from tests.truth.playing import FLUSH_NS, Connection
from tests.truth.script_checks import FLAGS, as_told, modelled
from tests.truth.scripts import Fate
from tests.truth.turn_events import Turn

CLIENT, SERVER = Role.CLIENT, Role.SERVER
SEEDS = range(1000)


class Imagined:
    """Both ends of a connection in a world without delay: each look at the clock takes a microsecond."""

    def __init__(self) -> None:
        self.port, self.address, self.cookies = 1, "127.0.0.1", {CLIENT: 1, SERVER: 2}
        self.ns = 10**9
        self._open = {CLIENT, SERVER}
        self._unread = {CLIENT: 0, SERVER: 0}

    def now_ns(self) -> int:
        self.ns += 1000
        return self.ns

    def is_open(self, end: Role) -> bool:
        return end in self._open

    def send(self, end: Role, size: int) -> None:
        self._unread[OTHER[end]] += size

    def read(self, end: Role, size: int) -> None:
        self._unread[end] -= size

    def look(self, end: Role) -> None:
        assert not self._unread[end]

    def shut(self, end: Role) -> None:
        assert end in self._open

    def close(self, end: Role) -> None:
        self._open.remove(end)

    abort = close

    def readable(self, end: Role) -> int:
        return self._unread[end]

    def is_acknowledged(self, end: Role) -> bool:
        return end in self._open

    got_fin = got_rst = is_acknowledged

    def path(self, end: Role) -> tuple[int, int]:
        assert end in self._open
        return 1000, 0


def imagine(seed: int) -> Played:
    """Play a script of this seed."""
    ends = Imagined()
    connection = Connection(Author(seed).write(), ends, ends.ns)
    flush_ns = ends.ns + FLUSH_NS
    for when_ns in connection.run():
        while flush_ns < when_ns:
            connection.flushed(max(flush_ns, ends.ns), max(flush_ns, ends.ns) + 1000)
            flush_ns += FLUSH_NS
        ends.ns = max(ends.ns, when_ns)
    return connection.played


def measured(turns: list[Turn], role: Role) -> np.ndarray:
    """Turns as records, with all stamps within what the log allows."""
    records = np.zeros(len(turns), EXCHANGE)
    for record, turn in zip(records, turns, strict=True):
        for name in ("conn_class", "excluded", "outcome"):
            record[name] = getattr(turn, name)
        for name in ("request_offset", "request_bytes", "response_offset", "response_bytes"):
            record[name] = getattr(turn, name)
        record["role"] = role
        record["flags"] = sum(flag for flag, name in FLAGS.items() if getattr(turn, name))
        record["ready_first_ns" if role is SERVER else "send_start_ns"] = turn.start.last_ns
        record["send_end_ns" if role is SERVER else "read_last_ns"] = turn.end.last_ns
    return records


@pytest.fixture(scope="module")
def all_played() -> list[Played]:
    return [imagine(seed) for seed in SEEDS]


def look(all_played: list[Played], spoil: str = "") -> Findings:
    """What the checks find of a measurement by the model, with a field that is wrong at the client."""
    found = Findings()
    for played in all_played:
        ends = modelled(played)
        records = {}
        for role, end in ends.items():
            turns = [as_told(turn, np.zeros((), EXCHANGE)[()], ends[OTHER[role]]) for turn in end.turns]
            records[role] = measured(turns, role)
        if spoil:
            records[CLIENT][spoil] += 1
        found.look(played, ends, records)
    return found


def test_a_seed_is_one_script():
    assert str(Author(7).write()) == str(Author(7).write())
    assert Author(7).write().steps == Author(7).write().steps != Author(8).write().steps


@pytest.mark.long
def test_scripts_end_in_every_way_and_hold_requests_of_every_fate(all_played):
    ends = {played.script.acts[-1].partition(" ")[0] for played in all_played}
    assert set(ENDS) <= ends
    fates = Counter(request.fate for played in all_played for request in played.script.requests)
    assert min(fates[fate] for fate in Fate) > 100


@pytest.mark.long
def test_what_the_model_makes_of_a_script_is_true_and_decided(all_played):
    found = look(all_played)
    print(found)
    assert not found.faults, found.report()
    assert found.undecided.total() < len(SEEDS) / 20
    assert found.stalled == 0
    answered = sum(request.fate is Fate.ANSWERED for played in all_played for request in played.script.requests)
    assert found.events["answered"] > answered, "of two ends; half of the scripts are full of what is ambiguous"


@pytest.mark.parametrize(
    "field", ["request_bytes", "response_offset", "conn_class", "excluded", "send_start_ns", "read_last_ns"]
)
def test_a_measurement_that_errs_is_found(all_played, field):
    assert look(all_played[:20], spoil=field).faulty > 10


@pytest.mark.long
def test_an_event_that_is_a_push_is_found(all_played):
    found = Findings()
    for played in all_played:
        ends = modelled(played)
        for end in ends.values():
            for turn in end.turns:
                if turn.excluded is Excluded.PUSH and not turn.request_bytes:
                    turn.excluded = Excluded.NONE
        found.look(played, ends, {role: measured(end.turns, role) for role, end in ends.items()})
    assert any("is no request" in fault for fault in found.faults)
