"""report/pressure.py: what held up containers, in words, and one line of advice where it burned the budget."""

import pytest
from msgspec.structs import replace

from latencyprobe.report import model, pressure
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

RESULT = model.Result("p", "o", "cart", "Server", "1ms", "99", "1d", State.VIOLATED, 100, 9, 1, COVERAGE, "")


def result(bad: int = 9, **shares: tuple[str, str | None]) -> model.Result:
    kinds = tuple(model.Pressure(kind, share, "1s", bad_share) for kind, (share, bad_share) in shares.items())
    return replace(RESULT, bad=bad, pressure=kinds)


def test_throttling_that_burned_the_budget_has_its_share_and_its_remedy() -> None:
    found = result(throttled=("4.1", "23"), io=("0.2", "0"), cpu=("9", "31"))
    assert pressure.told(found) == (
        "containers were held up: throttled 4.1 % (23 %), cpu 9 % (31 %); in brackets when bad ones ended"
    )
    assert pressure.advice(found) == (
        "containers were throttled by their CPU quota at most 23 % of the time in the seconds that burned the budget: "
        "raise limits.cpu"
    )


@pytest.mark.parametrize(
    ("shares", "remedy"),
    [
        ({"throttled": ("4", "9.9"), "memory": ("1", "40")}, "waiting for memory 40 % of the time"),
        ({"throttled": ("0", "0"), "io": ("1", "12")}, "a faster volume"),
        ({"throttled": ("0", "0"), "cpu": ("1", "12")}, "raise requests.cpu"),
        ({"throttled": ("100", "100")}, "CPU quota 100 % of the time"),
    ],
)
def test_the_first_kind_that_matters_is_advised_on(shares: dict[str, tuple[str, str]], remedy: str) -> None:
    assert remedy in pressure.advice(result(**shares))


def test_what_did_not_hold_up_bad_ones_has_no_advice() -> None:
    assert pressure.advice(result(throttled=("60", "9.9"))) == ""
    assert pressure.advice(result(throttled=("60", None))) == ""
    assert pressure.advice(result(bad=0, throttled=("60", "60"))) == ""
    assert pressure.told(result(throttled=("60", None))) == "containers were held up: throttled 60 %"


def test_nothing_notable_takes_no_line() -> None:
    assert pressure.told(result(throttled=("0.9", "0"), io=("0", None))) == pressure.told(result()) == ""
