"""Counts lie in shards, which CPUs share where there are more of them: none of their additions is lost."""

import ctypes
import shutil
import threading

import pytest

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import EXCHANGE_COUNTS, HANDSHAKE
from tests.truth.compiling import BPF, compile_bpf
from tests.truth.workload import HERE

pytestmark = pytest.mark.root

ADDS = Signal(name="shards", ring="records", record=HANDSHAKE)
LP_ADD, TIMES = 0x4C500003, 10_000
THREADS, CALLS = 4, 300


@pytest.fixture
def adding(tmp_path):
    """Programs that add, compiled with a single shard for all CPUs, as 32 are for those of a larger machine."""
    headers = shutil.copytree(BPF, tmp_path / "bpf")
    events = headers / "events.h"
    source = events.read_text()
    assert source.count("LP_SHARDS = 32,") == 1
    events.write_text(source.replace("LP_SHARDS = 32,", "LP_SHARDS = 1,"))
    compile_bpf(HERE / "shards.bpf.c", tmp_path / "shards.bpf.o", headers)
    with Attached(Attached.load(tmp_path / "shards.bpf.o", ADDS, None), ADDS) as attached:
        yield attached


def test_cpus_that_share_a_shard_lose_none_of_their_additions(adding):
    libc = ctypes.CDLL(None)

    def add() -> None:
        for _ in range(CALLS):
            libc.prctl(LP_ADD)

    threads = [threading.Thread(target=add) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    keys, totals = adding.evidence_counts()

    assert len(list(adding.map("evidence_counts").keys())) == 1
    assert [7] == keys["owner"].tolist()
    assert [THREADS * CALLS * TIMES] == totals["segs_sent"].tolist()


def test_room_is_for_as_many_shards_as_this_machine_has(session):
    assert counts.entries(EXCHANGE_COUNTS) == session.programs.map("counts").max_entries
