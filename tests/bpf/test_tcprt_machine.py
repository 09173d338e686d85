"""bpf/tcprt_machine.h writes the records of the machine that replays (tools/tcprt/), field by field."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latencyprobe_agent.tools.tcprt.decoded import decoded
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.operations import NO_RTT, operations
from latencyprobe_agent.tools.tcprt.replay import replay
from latencyprobe_agent.vocabulary.records import TCPRT
from tests.truth.operations import Script, example

pytestmark = pytest.mark.root  # needs a C compiler

ROOT = Path(__file__).parents[2]
KINDS = ["init", "recv_data", "send_data", "pkts_acked", "release"]
SIDES = {"local": 1, "peer": 2}


class Op(ctypes.Structure):
    _fields_ = [
        ("now_ns", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("snd_nxt", "snd_una", "rcv_nxt", "sent", "received")),
        *((name, ctypes.c_uint32) for name in ("total_retrans", "min_rtt_us", "mss", "ofo")),
    ]


@pytest.fixture(scope="module")
def in_c(tmp_path_factory) -> Callable[[list[str]], list[Record]]:
    library = tmp_path_factory.mktemp("machine") / "machine.so"
    source = Path(__file__).with_name("tcprt_machine.c")
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-D__always_inline=inline", f"-I{ROOT / 'bpf'}"]
    subprocess.run(["cc", *flags, "-o", library, source], check=True)
    machine = ctypes.CDLL(str(library))
    machine.machine_size.restype = ctypes.c_ulong

    def run(lines: list[str]) -> list[Record]:
        state = ctypes.create_string_buffer(machine.machine_size())
        found: list[Record] = []
        for _, op in operations(lines, "script"):
            side = SIDES.get(getattr(op, "side", ""), 0)
            rtt = NO_RTT if op.min_rtt_us is None else op.min_rtt_us
            ends = (op.snd_nxt, op.snd_una, op.rcv_nxt, op.snd_nxt, op.rcv_nxt)
            given_op = Op(op.unix_ns, *ends, op.total_retrans, rtt, op.mss, int(op.ofo))
            out = np.zeros(2, TCPRT)
            n = machine.apply(
                state, KINDS.index(op.op), side, ctypes.byref(given_op), out.ctypes.data_as(ctypes.c_void_p)
            )
            found += decoded(out[:n], 0)
        return found

    return run


def in_python(lines: list[str]) -> list[Record]:
    return list(replay(lines))


def same(one: Record, other: Record) -> None:
    """All but the addresses, which the machine in C knows nothing of."""
    assert one.connection.side == other.connection.side
    assert one == replace(other, connection=one.connection)


def test_the_example(in_c):
    lines = example().lines
    for one, other in zip(in_python(lines), in_c(lines), strict=True):
        same(one, other)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["recv_data", "send_data", "acked", "fins"]),
        st.sampled_from([0, 1, 2, 100, 1448, 70_000]),
        st.integers(0, 3_000_000),
        st.fixed_dictionaries(
            {},
            optional={
                "ofo": st.booleans(),
                "total_retrans": st.integers(0, 9),
                "min_rtt_us": st.sampled_from([None, 5]),
            },
        ),
    ),
    max_size=40,
)
U32 = st.sampled_from([0, 1000, 0xFFFFFFFF, 0xFFFFFFF0, 0x7FFFFFFF]) | st.integers(0, 0xFFFFFFFF)


@given(STEPS, st.sampled_from(["local", "peer"]), U32, U32)
@settings(max_examples=400, deadline=None)
def test_any_script(in_c, steps, side, snd_nxt, rcv_nxt):
    script = Script(side, snd_nxt=snd_nxt, snd_una=snd_nxt, rcv_nxt=rcv_nxt)
    ns = 0
    for step, size, later_ns, fields in steps:
        ns += later_ns
        unacked = (script.now["snd_nxt"] - script.now["snd_una"]) & 0xFFFFFFFF
        if step == "fins":
            script.fins()
        else:
            getattr(script, step)(ns / 1e6, min(size, unacked) if step == "acked" else size, **fields)
    lines = script.release((ns + 1) / 1e6).lines
    ours, theirs = in_python(lines), in_c(lines)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
