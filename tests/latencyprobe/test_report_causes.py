"""report/causes.py: shares of `process` by cause that never exceed it, and the line that a person reads."""

import pytest
from msgspec.structs import replace

from latencyprobe.plan import Role
from latencyprobe.report import causes, model
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

MS = 1_000_000
RESULT = model.Result("p", "o", "cart", "Server", "1ms", "99", "1d", State.VIOLATED, 100, 9, 1, COVERAGE, "")


def row(process_ms: int, **cause_ms: int) -> SliRow:
    key = ("shop", "checkout", "u1", "fast", "h1", Role.SERVER)
    cause_ns = {name: ms * MS for name, ms in cause_ms.items()}
    return SliRow(*key, minute=0, stage_ns={"process": process_ms * MS, "send": MS}, cause_ns=cause_ns)


def shares(of: SliRow) -> dict[str, float]:
    return {one.cause: float(one.share) for one in causes.of(of)}


def test_causes_are_shares_of_process_and_what_none_tells_stays_unknown() -> None:
    found = causes.of(row(100, fdatasync=62, throttled=21, futex=1))
    assert found == (
        model.Cause("fdatasync", "62ms", "62"),
        model.Cause("throttled", "21ms", "21"),
        model.Cause("futex", "1ms", "1"),
        model.Cause("unknown", "16ms", "16"),
    )


def test_the_largest_eight_have_a_name() -> None:
    found = causes.of(row(100, other=1, **{f"call{i}": 10 - i for i in range(10)}))
    assert [f"call{i}" for i in range(8)] + ["other", "unknown"] == [one.cause for one in found]
    assert model.Cause("other", "4ms", "4") == found[8], "the two smallest, and what had no name before"
    assert model.Cause("unknown", "44ms", "44") == found[9]


@pytest.mark.parametrize("process_ms", [0, 50, 99, 101, 333])
def test_shares_never_exceed_the_whole(process_ms: int) -> None:
    found = shares(row(process_ms, fdatasync=66, futex=33))
    assert 99 < sum(found.values()) <= 100
    assert ("unknown" in found) == (process_ms > 99)


def test_where_nothing_tells_nothing_is_said() -> None:
    assert () == causes.of(row(100))
    assert "" == causes.line(RESULT)
    assert "" == causes.line(replace(RESULT, causes=(model.Cause("unknown", "9ms", "100"),)))


def test_a_line_names_the_three_largest_in_words_and_how_much_is_unknown() -> None:
    of = row(1000, fdatasync=620, throttled=210, run_queue=30, futex=20, **{"on CPU": 90})
    assert causes.line(replace(RESULT, causes=causes.of(of))) == (
        "of process, 62 % fdatasync, 21 % throttled by the CPU quota, 9 % on CPU, 3 % unknown"
    )
    of = row(1000, page_fault=700, run_queue=299)
    assert "of process, 70 % page faults, 29.9 % woken and waiting for a CPU" == causes.line(
        replace(RESULT, causes=causes.of(of))
    )


def test_a_line_after_that_of_the_peers_is_about_the_same_time() -> None:
    waited = (model.Waited("shop/redis:6379", "580ms", "58"),)
    result = replace(RESULT, waited_for=waited, causes=causes.of(row(1000, recvfrom=590, **{"on CPU": 410})))
    assert "the same by cause: 59 % recvfrom, 41 % on CPU" == causes.line(result)
