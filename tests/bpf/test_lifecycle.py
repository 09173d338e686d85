"""What the programs cost to verify, what is lost when their ring is too small, and what is left when they are gone."""

import ctypes as c
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.loader import Demands, load
from latencyprobe_agent.kernel.packets import PacketPrograms, Place
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.signals.table import EVIDENCE, EXCHANGES, HANDSHAKES_TC
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded, Role
from tests.support.bpf_ids import alive
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.join import CLIENT, SERVER, match, outside_calls
from tests.truth.streams import of_kernels_that_tell_streams
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
OBJECT = Path(__file__).parents[2] / "build" / "bpf" / "exchange.bpf.o"
VERIFIER_BUDGET = 250_000  # instructions, a quarter of what the verifier allows
EVENTS = {"state", "destroy", "send_start", "send_end", "ready", "read", "flush"}


def held_by_this_process() -> dict[str, dict[int, str]]:
    """Kind (prog, map, link) → id → fdinfo text of every BPF object that this process has a descriptor of."""
    held: dict[str, dict[int, str]] = {"link": {}, "prog": {}, "map": {}}  # a link names its program too
    for path in Path("/proc/self/fdinfo").iterdir():
        try:
            text = path.read_text()
        except OSError:  # the descriptor that reads this folder
            continue
        for kind, objects in held.items():
            if found := re.search(rf"^{kind}_id:\t(\d+)$", text, re.MULTILINE):
                objects[int(found[1])] = text
                break
    return held


def verified(before: dict[str, dict[int, str]]) -> list[int]:
    """How many instructions the verifier processed for each program that came since `before`."""
    fresh = [text for number, text in held_by_this_process()["prog"].items() if number not in before["prog"]]
    return sorted(int(re.search(r"^verified_insns:\t(\d+)$", text, re.MULTILINE)[1]) for text in fresh)


def verified_by_log(logs: list[c.Array[c.c_char]]) -> list[int]:
    """The same from the verifier's own words, which kernels before 5.16 do not keep."""
    said = [re.search(rb"^processed (\d+) insns", log.value, re.MULTILINE) for log in logs]
    return sorted(int(found[1]) for found in said if found)


def test_every_event_has_one_variant_within_the_verifier_budget():
    before = held_by_this_process()
    logs = {}

    def listen(opened: Object) -> None:
        libbpf = c.CDLL("libbpf.so.1")
        for program in opened.programs():
            log, handle = c.create_string_buffer(1 << 16), c.c_void_p(program._handle)
            libbpf.bpf_program__set_log_level(handle, 4)  # BPF_LOG_STATS
            libbpf.bpf_program__set_log_buf(handle, log, c.c_size_t(len(log)))
            logs[program.name] = log

    with Hooks(KERNEL_BTF) as hooks:
        loaded = load(OBJECT, None, hooks, Demands(listen))
        events = EVENTS if hooks.socket_storage else EVENTS - {"flush"}
    with Programs(loaded, EXCHANGES) as programs:
        assert set(programs.variants) == events
        instructions = verified_by_log(list(logs.values()))
        links = held_by_this_process()["link"].keys() - before["link"].keys()
        variants = ", ".join(f"{event} by {variant}" for event, variant in programs.variants.items())
    print(f"{variants}; verified instructions: {instructions}")
    assert len(links) == len(instructions), "two links of one program would count everything twice"
    assert len(instructions) >= len(events)
    assert max(instructions) <= VERIFIER_BUDGET


@pytest.mark.parametrize("signal", [*EVIDENCE, HANDSHAKES_TC], ids=lambda signal: signal.name)
def test_every_program_of_evidence_is_within_the_verifier_budget(session, signal):
    if not session.kernel_cookies:
        pytest.xfail("this kernel has no socket storage for evidence, and does not keep what its verifier processed")
    before = held_by_this_process()
    if signal is HANDSHAKES_TC:
        places = [Place.find("lo", pod=False)]
        programs = PacketPrograms.alone(OBJECT.parent, signal, Filter(), places=places, timeout_ns=10**9)
    else:
        programs = EvidencePrograms.beside(session.programs, OBJECT.parent, signal)
    with programs:
        instructions = verified(before)
        refused = "; ".join(f"{event} by {variant}: {why}" for (event, variant), why in programs.refused.items())
    print(f"{signal.name}: verified instructions {instructions}" + (f" (not: {refused})" if refused else ""))
    assert 0 < max(instructions) <= VERIFIER_BUDGET


def test_programs_for_http2_share_what_exchanges_have_and_are_within_the_verifier_budget(session):
    of_kernels_that_tell_streams()
    before = held_by_this_process()
    with Http2Programs.beside(session.programs, OBJECT.parent) as programs:
        assert {"send", "sent", "ready", "read", "state", "destroy"} == programs.variants.keys()
        instructions = verified(before)
        maps = held_by_this_process()["map"].keys() - before["map"].keys()
        assert len(maps) <= 12, "rings, counts and rules of the session are no maps of their own"
    print(f"http2: verified instructions {instructions}")
    assert 0 < max(instructions) <= VERIFIER_BUDGET
    wait_until(lambda: not alive("map") & maps, "all of it is gone")


def test_nothing_is_left_in_the_kernel_after_close(tmp_path):
    before = held_by_this_process()
    with Programs.open(OBJECT):
        ours = {kind: held_by_this_process()[kind].keys() - before[kind].keys() for kind in before}
        workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=100)
        assert all(ours[kind] and ours[kind] <= alive(kind) for kind in ours)
    assert {kind: held.keys() for kind, held in held_by_this_process().items()} == {
        kind: held.keys() for kind, held in before.items()
    }
    for kind, numbers in ours.items():  # the kernel frees them when it has the time

        def left(kind: str = kind, numbers: set[int] = numbers) -> set[int]:
            return numbers & alive(kind)

        wait_until(lambda left=left: not left(), f"{kind}s of ours are freed", 60, seen=left)


def test_opens_and_closes_leak_no_descriptor():
    with Programs.open(OBJECT):
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        Programs.open(OBJECT).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_ring_that_is_too_small_loses_records_and_no_counts(make_session, tmp_path):
    """seen = delivered + lost, to the unit, against the generator's own log."""
    session = make_session(ring_bytes=4096, drain_s=0.2)
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=5_000, seed=10, max_size=1024)

    def counted() -> dict[Role, int]:
        keys, counts = session.programs.counts()
        return {role: int(counts["outcomes"][keys["role"] == role].sum()) for role in (Role.CLIENT, Role.SERVER)}

    wait_until(lambda: counted() == {Role.CLIENT: len(truth), Role.SERVER: len(truth)}, "all exchanges are counted")
    lost = session.programs.lost()
    assert lost["ring_full"] > 0
    assert sum(lost.values()) == lost["ring_full"]
    records = session.records(2 * len(truth) - lost["ring_full"])
    assert len(records) + lost["ring_full"] == 2 * len(truth)
    _, counts = session.programs.counts()
    assert counts["lost_records"].sum() == lost["ring_full"]


def test_a_second_agent_beside_sees_the_same_and_disturbs_nothing(make_session, tmp_path):
    """Each has programs, storage and a ring of its own; the plans differ."""
    sessions = [make_session(), make_session()]
    sessions[0].measure(PORT, pause_ns=NO_PAUSE_NS)
    sessions[1].measure(PORT, pause_ns=NO_PAUSE_NS, thresholds_ns=(1_000_000, 50_000_000))
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=5_000, seed=13)
    for session in sessions:
        records = session.records(2 * len(truth))
        matched = match(truth, records)
        assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0]
        assert len(records) == 2 * len(truth)
        assert not any((outside := outside_calls(truth, records, matched)).values()), outside
    sessions[0].close()
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=1_000, seed=14)
    matched = match(truth, sessions[1].records(12_000))
    assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0], "one leaves, the other goes on"


def test_a_plan_that_changes_under_load_invents_and_doubles_nothing(make_session, tmp_path):
    """The target comes and goes, its thresholds change: every event is an RPC of the log, once, with its own stamps."""
    session = make_session(ring_bytes=64 << 20)
    ended, changes = threading.Event(), 0

    def change() -> None:
        nonlocal changes
        while not ended.wait(0.02):
            thresholds_ns = (1_000 * (1 + changes % 3),)
            session.measure(*([PORT] if changes % 4 else []), pause_ns=NO_PAUSE_NS, thresholds_ns=thresholds_ns)
            changes += 1

    changer = threading.Thread(target=change)
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    changer.start()
    try:
        truth = workload.run_both(
            tmp_path / "log", address=f"127.0.0.1:{PORT}", total=60_000, seed=15, threads=8, max_size=4096, rpcs=200
        )
    finally:
        ended.set()
        changer.join()

    def counted() -> tuple[int, int]:
        _, counts = session.programs.counts()
        return int(counts["outcomes"].sum()), int(counts["excluded"].sum())

    events_counted, excluded_counted = counted()
    records = session.records(events_counted + excluded_counted)
    events = records[records["excluded"] == Excluded.NONE]
    matched = match(truth, events)
    reasons = np.bincount(records["excluded"], minlength=len(Excluded))
    print(
        f"{changes} plans, {len(truth)} RPCs: {len(events)} events ({matched.describe()}); "
        f"excluded: { ({Excluded(i).name: int(n) for i, n in enumerate(reasons) if n}) }"
    )
    assert changes > 4, "it has come and gone"
    assert len(events) > len(truth) // 10
    for role in (CLIENT, SERVER):
        assert len(matched.extra[role]) == 0, "an event that is no RPC, or one twice"
    assert not any((outside := outside_calls(truth, events, matched)).values()), outside
    assert set(records["excluded"]) <= {Excluded.NONE, Excluded.PARTIAL, Excluded.PLAN}
    assert (len(events), len(records) - len(events)) == (events_counted, excluded_counted)
    assert not any(session.programs.lost().values())


def test_ten_thousand_short_connections_leave_nothing_behind(session, tmp_path):
    """Sockets are reused: no stamp, count or class of an earlier connection shows in a later one."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log", address=f"127.0.0.1:{PORT}", total=10_000, seed=16, single_percent=100, max_size=512
    )
    records = session.records(2 * len(truth))
    matched = match(truth, records)
    assert len(records) == 20_000
    assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0]
    assert (records["flags"] & ExchangeFlags.FRESH != 0).all()
    assert not any((outside := outside_calls(truth, records, matched)).values()), outside
    session.measure()
    before = session.programs.counts()[1]["excluded"].sum()
    session.programs.flush()
    assert session.programs.counts()[1]["excluded"].sum() == before, "no storage outlives its socket"
